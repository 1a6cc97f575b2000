"""What `app.stats` offers: figures that the store keeps, for users and their charts.

Events are counted when they happen. So nothing here reads jobs, and an answer takes as long whether there were a thousand or a
million of them. Lists have a value for each interval, also for those without events, oldest first; the last interval is still
going on.

Enters: buckets of the store.  Leaves: points, days, summaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Literal, TypeVar, overload

from laneway.core.buckets import Bucket, Counts, Depth, Figures, Gauges, Key, Seen, quantile
from laneway.core.instant import SECOND, as_datetime
from laneway.core.plain import Plain
from laneway.errors import ConfigError
from laneway.store.contract import Store
from laneway.store.error_groups import ErrorGroup
from laneway.store.inspection import Inspect
from laneway.store.runs import Run
from laneway.store.statistics import DAY, MINUTE, TEN, Kept, Level, begin_of

__all__ = ["Counted", "Day", "Point", "Stats", "Summary", "Times"]

#: The most buckets of each level that can be asked for: as many as are promised, and a few more.
MOST: dict[Level, int] = {TEN: 110, MINUTE: 25 * 60, DAY: 366}


class Counted(Plain, frozen=True, kw_only=True):
    """What is counted in a period."""

    enqueued: int  #: accepted by the store; of a collector payloads, and so are those processed, dead and cancelled
    processed: int  #: done
    failed: int  #: attempts
    retried: int  #: failed attempts that are made again
    dead: int  #: failed attempts after which the job died
    cancelled: int  #: runs that ended cancelled
    snoozed: int  #: runs that ended snoozed


class Point(Counted, frozen=True, kw_only=True):
    """What happened in ten seconds, or in a minute."""

    at: datetime  #: when it began
    seconds: float  #: how long it is; the last one has only begun
    #: slots in use, on average, over all workers; of a task or queue by the run times of ended runs
    running: float
    memory: int  #: of all workers together, bytes; 0 for a task or queue
    cpu: float  #: cores in use by all workers, on average; 0 for a task or queue
    workers: float  #: workers that reported; 0 for a task or queue
    slots: float  #: slots of these workers


class Times(Plain, frozen=True):
    """How long something took, in seconds. Quantiles are off by 10 % at most."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float


class Day(Counted, frozen=True, kw_only=True):
    """What happened on a day, in UTC."""

    date: date


class Summary(Counted, frozen=True, kw_only=True):
    """A task, or a queue, over a period."""

    name: str
    seconds: float  #: the length of the period: as asked for, in whole buckets
    rate: float  #: processed per second
    run: Times  #: of all runs, from start to end; a collector's run counts once
    wait: Times  #: from the due time to the start


Points = list[Point]
T = TypeVar("T")


class Stats:
    """Figures kept by the store."""

    def __init__(self, store: Callable[[], Inspect], contract: Callable[[], Store]) -> None:
        self._store = store
        self._contract = contract

    def totals(self) -> dict[str, int]:
        """Return the counts since the store was created: enqueued, processed (done), failed (attempts), retried, dead."""
        totals = self._store().totals()
        return {name: totals[name] for name in ("enqueued", "processed", "failed", "retried", "dead")}

    def recent(self, limit: int = 100) -> list[Run]:
        """Return the last finished runs, newest first; the store keeps 1,000."""
        return self._store().recent(_at_least_one("limit", limit))

    # -- over time -------------------------------------------------------------------------------------------

    @overload
    def series(self, seconds: float = 1000) -> Points: ...
    @overload
    def series(self, seconds: float = 1000, *, by_task: Literal[True]) -> dict[str, Points]: ...
    @overload
    def series(self, seconds: float = 1000, *, by_queue: Literal[True]) -> dict[str, Points]: ...
    @overload
    def series(self, seconds: float = 1000, *, by_task: bool, by_queue: bool = False) -> Points | dict[str, Points]: ...
    def series(self, seconds: float = 1000, *, by_task: bool = False, by_queue: bool = False) -> Points | dict[str, Points]:
        """Return a point for each ten seconds; by task or by queue a list of points for each. Up to 1,100 s are kept."""
        return self._points(TEN, math.ceil(_number("seconds", seconds) * SECOND / TEN), by_task=by_task, by_queue=by_queue)

    @overload
    def minutes(self, hours: float = 24) -> Points: ...
    @overload
    def minutes(self, hours: float = 24, *, by_task: Literal[True]) -> dict[str, Points]: ...
    @overload
    def minutes(self, hours: float = 24, *, by_queue: Literal[True]) -> dict[str, Points]: ...
    @overload
    def minutes(self, hours: float = 24, *, by_task: bool, by_queue: bool = False) -> Points | dict[str, Points]: ...
    def minutes(self, hours: float = 24, *, by_task: bool = False, by_queue: bool = False) -> Points | dict[str, Points]:
        """Return a point for each minute; by task or by queue a list of points for each. Up to 25 hours are kept."""
        return self._points(MINUTE, math.ceil(_number("hours", hours) * 60), by_task=by_task, by_queue=by_queue)

    @overload
    def history(self, days: int = 365) -> list[Day]: ...
    @overload
    def history(self, days: int = 365, *, by_task: Literal[True]) -> dict[str, list[Day]]: ...
    @overload
    def history(self, days: int = 365, *, by_queue: Literal[True]) -> dict[str, list[Day]]: ...
    @overload
    def history(self, days: int = 365, *, by_task: bool, by_queue: bool = False) -> list[Day] | dict[str, list[Day]]: ...
    def history(
        self, days: int = 365, *, by_task: bool = False, by_queue: bool = False
    ) -> list[Day] | dict[str, list[Day]]:  # fmt: skip
        """Return a `Day` for each day (UTC); by task or by queue a list of days for each. Up to 366 days are kept."""
        kept, begins = self._kept(DAY, _at_least_one("days", days), "counts" if by_task or by_queue else "total")
        return _lay_out(kept, begins, by_task, by_queue, _day)

    def _points(self, level: Level, number: int, *, by_task: bool, by_queue: bool) -> Points | dict[str, Points]:
        whole = not (by_task or by_queue)
        kept, begins = self._kept(level, number, "total" if whole else "counts")

        def point(at: int, counts: Counts, gauges: Gauges) -> Point:
            passed = min(kept.now - at, level) / SECOND
            return _point(at, passed, counts, gauges if whole else None)

        return _lay_out(kept, begins, by_task, by_queue, point)

    # -- summed up -------------------------------------------------------------------------------------------

    def tasks(self, seconds: float = 3600) -> dict[str, Summary]:
        """Return a summary of each task by name: what happened lately, and how long its runs took and waited."""
        return self.summaries(seconds)[1]

    def queues(self, seconds: float = 3600) -> dict[str, Summary]:
        """Return a summary of each queue by name."""
        return self.summaries(seconds)[0]

    def summaries(self, seconds: float = 3600) -> tuple[dict[str, Summary], dict[str, Summary]]:
        """Return `queues` and `tasks` of the same moment, at the cost of one of them."""
        _number("seconds", seconds)
        level = next((level for level in (TEN, MINUTE) if seconds * SECOND <= MOST[level] * level), DAY)
        kept, begins = self._kept(level, math.ceil(seconds * SECOND / level), "times")
        pairs: dict[Key, Figures] = {}
        for at in begins:
            for key, figures in kept.buckets.get(at, Bucket()).series.items():
                pairs.setdefault(key, Figures()).add(figures)
        passed = (kept.now - begins[0]) / SECOND
        return _summed(pairs, 0, passed), _summed(pairs, 1, passed)

    def _kept(self, level: Level, number: int, depth: Depth) -> tuple[Kept, list[int]]:
        """Return the last `number` buckets of a level, and when each of them began, oldest first."""
        if not 1 <= number <= MOST[level]:
            one = {TEN: "10-second points", MINUTE: "minutes", DAY: "days"}[level]
            raise ConfigError(f"{number:,} {one} were asked for: use 1 to {MOST[level]:,}, which is how many are kept")
        kept = self._store().figures(level, number, depth)
        last = begin_of(kept.now, level)
        return kept, [last - n * level for n in range(number - 1, -1, -1)]

    # -- failures --------------------------------------------------------------------------------------------

    def errors(self, limit: int = 100) -> list[ErrorGroup]:
        """Return failures grouped by kind, message and place, the most recent first; the store keeps 500 groups."""
        return self._store().errors(_at_least_one("limit", limit))

    def forget_error(self, group: ErrorGroup | str) -> bool:
        """Forget a group, until it is seen again; by its id, or as `errors` returned it. Returns False if it is not known."""
        return self._store().forget_error(group.id if isinstance(group, ErrorGroup) else str(group))

    # -- what workers learned --------------------------------------------------------------------------------

    def learned(self) -> dict[str, Seen]:
        """Return what workers measured of each task, on idle and busy processes: runs, CPU seconds available, and used."""
        return self._contract().learned()


def _at_least_one(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r}: use a whole number from 1 on")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{name}={value!r}: use a number above 0")
    return value


def _lay_out(
    kept: Kept, begins: list[int], by_task: bool, by_queue: bool, make: Callable[[int, Counts, Gauges], T]
) -> list[T] | dict[str, list[T]]:
    """Return a value for each bucket, or a list of values for each task or queue."""
    if by_task and by_queue:
        raise ConfigError("by_task and by_queue: choose one of them")
    if not (by_task or by_queue):
        return [_whole(kept.buckets.get(at, Bucket()), at, make) for at in begins]
    part = 1 if by_task else 0
    sums: dict[str, dict[int, Counts]] = {}
    for at in begins:
        for key, counts in kept.buckets.get(at, Bucket()).series.items():
            sums.setdefault(key[part], {}).setdefault(at, Counts()).add(counts)
    return {name: [make(at, sums[name].get(at, Counts()), Gauges()) for at in begins] for name in sorted(sums)}


def _whole(bucket: Bucket, at: int, make: Callable[[int, Counts, Gauges], T]) -> T:
    counts = Counts()
    for one in bucket.series.values():
        counts.add(one)
    return make(at, counts, bucket.gauges)


def _point(at: int, passed: float, counts: Counts, gauges: Gauges | None) -> Point:
    if gauges is None:
        running, memory, cpu, workers, slots = counts.run_time / SECOND / max(passed, 1e-6), 0, 0.0, 0.0, 0.0
    else:
        number = max(gauges.stretches, 1)
        running, memory = gauges.running / number, round(gauges.memory / number)
        cpu, workers, slots = gauges.cpu / max(passed, 1.0), gauges.workers / number, gauges.slots / number
    return Point(
        at=as_datetime(at), seconds=passed, enqueued=counts.enqueued, processed=counts.processed, failed=counts.failed,
        retried=counts.retried, dead=counts.dead, cancelled=counts.cancelled, snoozed=counts.snoozed, running=running,
        memory=memory, cpu=cpu, workers=workers, slots=slots,
    )  # fmt: skip


def _day(at: int, counts: Counts, _: Gauges) -> Day:
    return Day(
        date=as_datetime(at).date(), enqueued=counts.enqueued, processed=counts.processed, failed=counts.failed,
        retried=counts.retried, dead=counts.dead, cancelled=counts.cancelled, snoozed=counts.snoozed,
    )  # fmt: skip


def _summed(pairs: Mapping[Key, Figures], part: int, passed: float) -> dict[str, Summary]:
    found: dict[str, Figures] = {}
    for key, figures in pairs.items():
        found.setdefault(key[part], Figures()).add(figures)
    return {name: _summary(name, passed, figures) for name, figures in sorted(found.items())}


def _summary(name: str, passed: float, figures: Figures) -> Summary:
    return Summary(
        name=name, seconds=passed, enqueued=figures.enqueued, processed=figures.processed, failed=figures.failed,
        retried=figures.retried, dead=figures.dead, cancelled=figures.cancelled, snoozed=figures.snoozed,
        rate=figures.processed / max(passed, 1e-6), run=_times(figures.run_time, figures.runs),
        wait=_times(figures.wait_time, figures.waits),
    )  # fmt: skip


def _times(total: int, steps: Mapping[int, int]) -> Times:
    count = sum(steps.values())
    p50, p95, p99 = (quantile(steps, share) / SECOND for share in (0.5, 0.95, 0.99))
    return Times(count, total / SECOND / max(count, 1), p50, p95, p99)
