"""Points: figures over time, as charts and their tables need them.

Enters: numbers and moments.  Leaves: rows, and the points of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

__all__ = ["PointRow", "row_at", "row_of_day", "spark"]

#: The most points of a small line: it is about this wide.
FINE = 60


class PointRow(NamedTuple):
    """A moment and its numbers: a row of a chart's table."""

    at: int  #: seconds since 1970
    exact: str
    values: list[float | None]


def row_at(at: datetime, values: Sequence[float | None], *, with_day: bool = False) -> PointRow:
    """Return the row of a moment."""
    moment = at.astimezone(UTC)
    return PointRow(int(moment.timestamp()), f"{moment:%Y-%m-%d %H:%M}" if with_day else f"{moment:%H:%M:%S}", list(values))


def row_of_day(day: date, values: Sequence[float | None]) -> PointRow:
    """Return the row of a day."""
    return PointRow(int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()), day.isoformat(), list(values))


def spark(values: Sequence[float]) -> str:
    """Return a line through values in a box of 100 by 24, for SVG; nothing for less than two. Of many, means are drawn.

    >>> spark([0, 5, 10]), spark([0, 0]), spark([1])
    ('0,23 50,12 100,1', '0,23 100,23', '')
    """
    if len(values) < 2:
        return ""
    drawn = _fewer(values)
    top = max(drawn) or 1
    return " ".join(f"{index * 100 / (len(drawn) - 1):.4g},{23 - 22 * value / top:.4g}" for index, value in enumerate(drawn))


def _fewer(values: Sequence[float]) -> Sequence[float]:
    """Return at most `FINE` values: means of as many neighbours each, counted from the end."""
    each = -(-len(values) // FINE)
    if each == 1:
        return values
    parts = [values[max(end - each, 0) : end] for end in range(len(values), 0, -each)]
    return [sum(part) / len(part) for part in reversed(parts)]
