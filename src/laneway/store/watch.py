"""Waiting for a server's answer. If answers usually come soon, the thread polls for them: a thread that
sleeps is awake 50 µs late.

Enters: a socket, and how soon is soon.  Leaves: whether something is here.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

__all__ = ["Watch"]

#: An answer that takes longer than this may wait for the core that this thread uses, seconds.
AT_ONCE = 0.00003
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Watch:
    """Watches the socket of one connection. `quick`: if answers usually come this fast, the thread polls for them, seconds."""

    def __init__(self, socket: int, quick: float) -> None:
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self._quick = quick
        self._usual = 0.0  # how long an answer takes, seconds

    def is_quiet(self) -> bool:
        """Return whether nothing has come: neither an answer nor the end of the connection."""
        return not self._poll.poll(0)

    def comes_at_once(self) -> bool:
        """Poll for an answer that is expected at once; return whether it is here."""
        begun = now = time.monotonic()
        here: object = None
        while self._is_quick and not (here := self._poll.poll(0)) and now - begun < 2 * self._quick:
            now = time.monotonic()
            if now - begun > AT_ONCE:
                _let_others_run()  # on a machine of few cores the server may be waiting for this one
        if self._is_quick:  # after one late answer the thread still polls for the next ones
            self._usual += 0.1 * (now - begun - self._usual)
        return bool(here)

    @property
    def _is_quick(self) -> bool:
        return self._usual < self._quick and CORES > 1

    def wait(self, until: float) -> bool:
        """Wait until something comes; return False if nothing has by `until`, on the monotonic clock."""
        quick = self._is_quick
        if self.comes_at_once():
            return True
        begun = time.monotonic()
        here = self._poll.poll(max(until - begun, 0) * 1000)
        if here and not quick:
            self._usual += 0.1 * (time.monotonic() - begun - self._usual)
        return bool(here)
