"""Locks that a forked child finds free.

A child has only the thread that forked: a lock that another thread held would stay locked in it for ever. So such a lock is taken
before a fork, and given back on both sides. That is right for locks that are held for moments only.
"""

from __future__ import annotations

import os
import threading

__all__ = ["lock_held_over_forks"]


def lock_held_over_forks() -> threading.RLock:
    """Make a lock for a module. A thread that holds it may fork."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
