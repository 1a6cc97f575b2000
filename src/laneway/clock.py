"""This machine's clock. Stores have clocks of their own, which decide what is due."""

from __future__ import annotations

import time

__all__ = ["now_micros"]


def now_micros() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000
