"""Schedules: when a task runs by itself. Pure: no store, no clock.

A schedule is a series of occurrences, instants that every worker computes alike: the times of a cron expression in a time zone,
or the multiples of an interval. An occurrence fires once, whichever worker comes first; the store sees to that.

Across clock changes a time that is skipped fires right after the gap, and a time that comes twice fires once; an expression that
means every hour, or every few minutes, fires each time it comes.

Enters: a declaration.  Leaves: occurrences in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError
from msgspec import Struct

from laneway.core.instant import FAR, SECOND, as_datetime
from laneway.errors import did_you_mean

__all__ = ["Schedule", "missed", "read_schedule"]

#: The most missed occurrences that are made up for at once.
MOST_MISSED = 10_000

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UTC = ("UTC", "Etc/UTC")
_EXAMPLE = 'use "0 3 * * *" (minute, hour, day, month, weekday; seconds in front if wanted), "@daily" or timedelta(minutes=5)'


class Schedule(Struct, frozen=True):
    """When a task runs by itself."""

    expression: str = ""  #: cron, five fields or six; empty for an interval
    every: int = 0  #: the interval, microseconds
    timezone: str = "UTC"

    def occurrences(self, after: int) -> Iterator[int]:
        """Yield the occurrences after a time."""
        if self.every:
            moment = after - after % self.every
            while True:
                moment += self.every
                yield moment
        start = as_datetime(after).astimezone(_zone(self.timezone))
        for found in CronSim(self.expression, start):
            yield round(found.timestamp()) * SECOND

    def last(self, until: int) -> int | None:
        """Return the last occurrence up to a time."""
        if self.every:
            return until - until % self.every
        start = as_datetime(until).astimezone(_zone(self.timezone)) + timedelta(seconds=1)
        found = next(CronSim(self.expression, start.replace(microsecond=0), reverse=True), None)
        return None if found is None else round(found.timestamp()) * SECOND

    def __str__(self) -> str:
        if self.every:
            return f"every {timedelta(microseconds=self.every)}"
        return f"{self.expression} ({self.timezone})"


def missed(schedule: Schedule, last: int, now: int, catch_up: str) -> list[int]:
    """Return the occurrences after the last fired one that are to be made up for.

    >>> every = Schedule(every=10 * SECOND)
    >>> [[moment // SECOND for moment in missed(every, 20 * SECOND, 55 * SECOND, policy)] for policy in ("one", "all", "none")]
    [[50], [30, 40, 50], []]
    """
    if catch_up == "none":
        return []
    if catch_up == "one":
        moment = schedule.last(now)
        return [] if moment is None or moment <= last else [moment]
    return list(islice(takewhile(lambda moment: moment <= now, schedule.occurrences(last)), MOST_MISSED))


def read_schedule(value: object, timezone: object = None) -> Schedule:
    """Return a declared schedule, or raise ValueError that says what to write."""
    if isinstance(value, timedelta):
        return _interval(value, timezone)
    if not isinstance(value, str):
        raise ValueError(f"schedule={value!r} is not a schedule: {_EXAMPLE}")
    name = "UTC" if timezone is None else timezone
    if not isinstance(name, str):
        raise ValueError(f"timezone={name!r} is not a time zone. Use a name such as Europe/Paris")
    try:
        zone = _zone(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError(_no_zone(name)) from None
    expression = _NAMED.get(value.strip().lower(), value.strip())
    if expression.startswith("@"):
        raise ValueError(f"schedule={value!r}:{did_you_mean(expression, _NAMED)} There are {', '.join(_NAMED)}")
    try:
        if next(CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC).astimezone(zone)), None) is None:
            raise ValueError(f"schedule={value!r} never comes")
    except CronSimError as error:
        raise ValueError(f"schedule={value!r}: {str(error).lower()}: {_EXAMPLE}") from None
    return Schedule(expression=expression, timezone=name)


def _interval(value: timedelta, timezone: object) -> Schedule:
    every = round(value / timedelta(microseconds=1))
    if every < SECOND:
        raise ValueError(f"schedule={value!r}: use an interval of at least a second")
    if every > FAR * SECOND:
        raise ValueError(f"schedule={value!r}: use an interval of at most ten years")
    if timezone is not None:
        raise ValueError("timezone= goes with a cron expression: an interval has none")
    return Schedule(every=every)


def _zone(name: str) -> tzinfo:
    """Return a time zone by its name; UTC also on a machine without time zone data, as in slim images."""
    return UTC if name in _UTC else ZoneInfo(name)


def _no_zone(name: str) -> str:
    known = available_timezones()
    if not known:
        return (
            f"timezone={name!r}: Python finds no time zone data here. Install it: pip install tzdata, "
            "or the system's package (apt-get install tzdata). UTC needs none"
        )
    return f"timezone={name!r} is not a time zone.{did_you_mean(name, known)} Use a name such as Europe/Paris"
