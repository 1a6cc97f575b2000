"""Figures: counts of an interval, as values that can be added up.

A bucket is an interval: ten seconds, a minute or a day. It has figures for each queue and task (counts, the sums of run
and wait times, a histogram of both) and a gauge of the workers. Merging is adding: it is commutative and associative, so the
counts of two workers, or six buckets of a minute, give the same sum in any order.

A histogram has four steps for each doubling, from a microsecond to twelve days, and only steps that are in use take room. A
quantile read from it is off by 10 % at most.

A worker counts in memory and sends the store a `Report` once a second.

Enters: numbers.  Leaves: their sums, also as bytes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field

from laneway.core.error_groups import Fault

__all__ = [
    "BOUNDS",
    "OTHERS",
    "Bucket",
    "Counts",
    "Depth",
    "Figures",
    "Gauge",
    "Gauges",
    "Key",
    "Report",
    "Seen",
    "add_times",
    "decode",
    "decode_report",
    "encode",
    "encode_report",
    "quantile",
    "step_of",
]

#: Queue and task.
Key = tuple[str, str]
#: A histogram: step → how many.
Steps = dict[int, int]
#: What a worker has learned of a task, see `laneway.worker.shares.learn`. Adding is merging.
Seen = tuple[float, float, float, float, float, float]

#: The most queues and tasks in one bucket; further ones are counted as a task of this name.
MOST_SERIES = 1_000
OTHERS = "(others)"

#: The lower bounds of the steps, microseconds. Times below the first are in step 0, times beyond the last in the last.
BOUNDS = sorted({round(2 ** (n / 4)) for n in range(4 * 40 + 1)})

#: Return the step of a time in microseconds; a negative time (clocks differ) is in the first.
step_of = partial(bisect_right, BOUNDS)


def quantile(steps: Mapping[int, int], share: float) -> float:
    """Return a time in microseconds that is as long as this share of all times or longer; 0 if there are none.

    >>> round(quantile({step_of(1000): 99, step_of(50_000): 1}, 0.5))
    939
    """
    rank = max(math.ceil(share * sum(steps.values())), 1)
    for step in sorted(steps):
        rank -= steps[step]
        if rank <= 0:
            return _middle(step)
    return 0.0


def _middle(step: int) -> float:
    """Return the time that represents a step: as far from the shortest as from the longest, in proportion."""
    if not 0 < step < len(BOUNDS):
        return float(BOUNDS[-1] if step else 0)
    return math.sqrt(BOUNDS[step - 1] * (BOUNDS[step] - 1))


def add_times(into: Steps, more: Mapping[int, int]) -> None:
    """Add a histogram to another."""
    for step, number in more.items():
        into[step] = into.get(step, 0) + number


class Counts(Struct, array_like=True):
    """The counts of one queue and task."""

    enqueued: int = 0  #: accepted by the store; of a collector payloads, and so are those processed, dead and cancelled
    processed: int = 0  #: done
    failed: int = 0  #: attempts
    retried: int = 0  #: failed attempts that are made again
    dead: int = 0  #: failed attempts after which the job died
    cancelled: int = 0  #: runs that ended cancelled
    snoozed: int = 0  #: runs that ended snoozed
    run_time: int = 0  #: of all runs, microseconds
    wait_time: int = 0  #: from due to start, of all that ran, microseconds

    def add(self, more: Counts) -> None:
        """Add counts of another worker, or of another time."""
        self.enqueued += more.enqueued
        self.processed += more.processed
        self.failed += more.failed
        self.retried += more.retried
        self.dead += more.dead
        self.cancelled += more.cancelled
        self.snoozed += more.snoozed
        self.run_time += more.run_time
        self.wait_time += more.wait_time


class Figures(Counts, array_like=True):
    """Counts with histograms of how long jobs ran and waited."""

    runs: Steps = field(default_factory=dict[int, int])
    waits: Steps = field(default_factory=dict[int, int])

    def add(self, more: Counts) -> None:
        """Add counts of another worker, or of another time."""
        super().add(more)
        if isinstance(more, Figures):
            add_times(self.runs, more.runs)
            add_times(self.waits, more.waits)


class Gauge(Struct, array_like=True):
    """One worker since its last report."""

    samples: int = 0  #: the number of its measurements
    busy: int = 0  #: slots in use, summed over samples
    slots: int = 0
    rss: int = 0  #: memory, the highest measured, bytes
    cpu: float = 0.0  #: CPU seconds used

    def add(self, more: Gauge) -> None:
        """Add measurements of the same worker at another time."""
        self.samples += more.samples
        self.busy += more.busy
        self.slots = max(self.slots, more.slots)
        self.rss = max(self.rss, more.rss)
        self.cpu += more.cpu


class Gauges(Struct, array_like=True):
    """All workers, over one or more intervals of ten seconds. Divide all but the CPU time by `stretches`."""

    stretches: int = 0  #: intervals in which a worker reported
    workers: int = 0
    slots: int = 0
    running: float = 0.0  #: the mean of busy slots of each worker, summed
    memory: int = 0  #: the highest memory of each worker, summed
    cpu: float = 0.0  #: CPU seconds used

    def add(self, more: Gauges) -> None:
        """Add other intervals."""
        self.stretches += more.stretches
        self.workers += more.workers
        self.slots += more.slots
        self.running += more.running
        self.memory += more.memory
        self.cpu += more.cpu

    @classmethod
    def of(cls, gauges: Iterable[Gauge]) -> Gauges:
        """Return the workers of one interval."""
        found = list(gauges)
        if not found:
            return cls()
        return cls(
            stretches=1, workers=len(found), slots=sum(gauge.slots for gauge in found),
            running=sum(gauge.busy / max(gauge.samples, 1) for gauge in found),
            memory=sum(gauge.rss for gauge in found), cpu=sum(gauge.cpu for gauge in found),
        )  # fmt: skip


class Bucket(Struct):
    """The figures of an interval."""

    series: dict[Key, Counts] = field(default_factory=dict[Key, Counts])
    gauges: Gauges = field(default_factory=Gauges)

    def at(self, key: Key) -> Counts:
        """Return the figures of a queue and task, to be added to."""
        found = self.series.get(key)
        if found is None:
            if len(self.series) >= MOST_SERIES:
                key = (key[0] if len(self.series) < 2 * MOST_SERIES else OTHERS, OTHERS)
            found = self.series.setdefault(key, Figures())
        return found

    def add(self, more: Bucket) -> None:
        """Add another interval."""
        for key, figures in more.series.items():
            self.at(key).add(figures)
        self.gauges.add(more.gauges)


class Report(Struct, frozen=True, kw_only=True):
    """A worker's report to the store. Sent twice it counts once, by its number; without a worker each counts."""

    worker: str = ""  #: the id of the reporting worker
    number: int = 0  #: grows with each report of the worker
    series: Mapping[Key, Figures] = {}
    gauge: Gauge | None = None
    faults: tuple[Fault, ...] = ()  #: how runs failed, grouped
    learned: Mapping[str, Seen] = {}  #: task → new measurements, to be added to the stored ones
    counters: Mapping[str, int] = {}  #: to be added to the store's counters


# -- as bytes ----------------------------------------------------------------------------------------------------

#: How much of a bucket is read: the sum of all tasks, the counts of each, or these with histograms. Less is faster.
Depth = Literal["total", "counts", "times"]


class _EncodedReport(Struct, array_like=True):
    """A report's figures, which wait to be summed."""

    worker: str
    gauge: Gauge | None
    series: list[tuple[str, str, Figures]]


class _Total(Struct, array_like=True):
    """A bucket up to its total: a reader of the total need not decode what comes after it."""

    gauges: Gauges
    total: Counts


class _Counted(_Total, array_like=True):
    """The whole bucket. The histograms of each series are bytes, which are skipped quickly."""

    series: list[tuple[str, str, Counts, bytes, bytes]]


_encode = msgspec.msgpack.Encoder().encode
_encoded_report = msgspec.msgpack.Decoder(_EncodedReport)
_total = msgspec.msgpack.Decoder(_Total)
_counted = msgspec.msgpack.Decoder(_Counted)
_steps = msgspec.msgpack.Decoder(list[int])
_T = TypeVar("_T")


def encode(bucket: Bucket) -> bytes:
    """Return a bucket as bytes."""
    total = Counts()
    series: list[tuple[str, str, Counts, bytes, bytes]] = []
    for (queue, task), one in bucket.series.items():
        total.add(one)
        runs, waits = (one.runs, one.waits) if isinstance(one, Figures) else ({}, {})
        counts = Counts()
        counts.add(one)
        series.append((queue, task, counts, _pack(runs), _pack(waits)))
    return _encode((bucket.gauges, total, series))


def decode(raw: bytes | None, depth: Depth = "times") -> Bucket:
    """Read a bucket, or as much of it as `depth` says. Without bytes, or if another program wrote them, it is empty.

    A total has the key of a queue and task without names.
    """
    if depth == "total":
        brief = _read(_total, raw)
        return Bucket() if brief is None else Bucket({("", ""): brief.total}, brief.gauges)
    found = _read(_counted, raw)
    if found is None:
        return Bucket()
    if depth == "counts":
        return Bucket({(queue, task): counts for queue, task, counts, _, _ in found.series}, found.gauges)
    series: dict[Key, Counts] = {}
    for queue, task, counts, runs, waits in found.series:
        figures = series[queue, task] = Figures(runs=_unpack(runs), waits=_unpack(waits))
        Counts.add(figures, counts)
    return Bucket(series, found.gauges)


def _pack(steps: Steps) -> bytes:
    """Return a histogram as its first step, and the counts of this and each step after it."""
    if not steps:
        return b""
    first = min(steps)
    return _encode([first, *[steps.get(step, 0) for step in range(first, max(steps) + 1)]])


def _unpack(raw: bytes) -> Steps:
    found = _read(_steps, raw)
    return {} if not found else {step: number for step, number in enumerate(found[1:], found[0]) if number}


def encode_report(report: Report) -> bytes:
    """Return the figures of a report as bytes; empty if there are none."""
    if not report.series and report.gauge is None:
        return b""
    return _encode((report.worker, report.gauge, [(queue, task, one) for (queue, task), one in report.series.items()]))


def decode_report(raw: bytes) -> tuple[str, Gauge | None, dict[Key, Figures]]:
    """Read the figures of a report: its worker, its gauge, its series."""
    found = _read(_encoded_report, raw)
    return ("", None, {}) if found is None else (found.worker, found.gauge, {(q, task): one for q, task, one in found.series})


def _read(decoder: msgspec.msgpack.Decoder[_T], raw: bytes | None) -> _T | None:
    try:
        return decoder.decode(raw) if raw else None
    except (ValueError, RecursionError):
        return None
