"""Instants and durations.

Users see durations as float seconds and instants as aware datetimes; stores count integer microseconds.
Only this module converts.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

__all__ = ["FAR", "FIRST", "LAST", "SECOND", "When", "as_datetime", "micros", "parse_when"]

SECOND = 1_000_000
#: The longest wait that is accepted, seconds; a longer one mixes up seconds, milliseconds and time stamps.
FAR = 10 * 366 * 24 * 3600

_EPOCH = datetime.fromtimestamp(0, UTC)
_DAY = 24 * 3600 * SECOND
#: The calendar has all instants between these, in every time zone.
FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) + 2 * _DAY
LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) - 2 * _DAY

#: The type of `run_after=`: seconds from now, or a moment.
When = float | timedelta | datetime


def micros(seconds: float) -> int:
    """Return seconds as microseconds."""
    return round(seconds * SECOND)


def as_datetime(instant: int) -> datetime:
    """Return an instant of the store as an aware datetime; the nearest one that the calendar has in every time zone."""
    return _EPOCH + timedelta(microseconds=min(max(instant, FIRST), LAST))


def parse_when(when: object, now: int) -> tuple[int, int]:
    """Return `(delay, at)` in microseconds: one from the store's now, one absolute; the other is 0. `now` is this machine's.

    Raises ValueError that says what to give instead.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None or when.utcoffset() is None:
            raise ValueError(f"{when!r} has no time zone: use an aware datetime such as datetime.now(UTC) + timedelta(minutes=5)")
        at = (when - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        if at - now > FAR * SECOND:
            raise ValueError(f"{when!r} is more than ten years away")
        return 0, max(at, 0)
    if isinstance(when, timedelta):
        when = when.total_seconds()
    if isinstance(when, bool) or not isinstance(when, int | float):
        raise ValueError(f"{when!r} is not a time: use seconds, a timedelta or an aware datetime")
    if isinstance(when, float) and not math.isfinite(when) and when != math.inf:
        raise ValueError(f"{when!r} is not a time: use seconds, a timedelta or an aware datetime")
    if when > FAR:
        raise ValueError(f"{when!r} is more than ten years of waiting: {_what_was_meant(when, now / SECOND)}")
    return max(micros(when), 0), 0


def _what_was_meant(seconds: float, now: float) -> str:
    seconds = min(seconds, 1e18)
    if abs(seconds - now) < FAR:
        return "a time stamp is given as datetime.fromtimestamp(x, UTC)"
    if abs(seconds / 1000 - now) < FAR:
        return "it looks like a time stamp in milliseconds, which is given as datetime.fromtimestamp(x / 1000, UTC)"
    return "it is counted in seconds, not in milliseconds"
