"""Statistics of a worker: outcomes of runs, counted in memory and reported to the store once a second.

So a job needs no call of its own. A report without an answer may have been stored: it is sent again as it was, with its number,
and the store counts it once; later counts go into the next report. A clean stop reports the rest. A killed worker loses what it
counted since its last report: a second's worth.

Enters: settled runs.  Leaves: a `Report`.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from laneway.core.buckets import BOUNDS, OTHERS, Counts, Figures, Gauge, Key, Report, Seen, step_of
from laneway.core.error_groups import Fault, fault_of
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled
from laneway.errors import StoreError
from laneway.events import RunsSettled
from laneway.logs import log
from laneway.store.contract import Store
from laneway.worker.duties.service import Service

__all__ = ["StatsReporter"]

#: How often a worker without new counts reports its gauges, seconds: once in each interval of ten seconds.
IDLE = 9.0
#: The most kinds of failures in one report, and the most errors known by their text.
MOST_KINDS = 200
KNOWN_ERRORS = 1_000
#: The most times that are kept before they are summed.
AT_ONCE = 1_000

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_STATM = Path("/proc/self/statm")


class StatsReporter(Service):
    """Counts for one worker."""

    name = "statistics"

    def __init__(
        self, store: Store, worker: str, slots: int, busy: Callable[[], int], news: Callable[[], Mapping[str, Seen]] = dict
    ) -> None:
        super().__init__()
        self._store = store
        self._worker = worker
        self._slots = slots
        self._busy = busy
        self._news = news
        self._number = 0  # of the last report
        self._unsure: Report | None = None  # sent, but without an answer
        self._reported_at = float("-inf")
        self._cpu = time.process_time()
        self._gauge = Gauge(slots=slots)
        self._lock = threading.Lock()  # held while counts change or are taken
        self._series: dict[Key, Figures] = {}
        self._times: dict[Key, tuple[list[int], list[int]]] = {}  # of successes: run and wait times that are not summed yet
        self._faults: dict[str, Fault] = {}
        self._kinds: dict[tuple[str, str, str], Fault] = {}  # the kind of each error, by its text

    # -- counting --------------------------------------------------------------------------------------------

    def count(self, event: RunsSettled) -> None:
        """Count the outcomes of runs, except for units whose outcomes were refused."""
        if not event.settled:
            return
        with self._lock:
            if event.refused or not self._count_alike(event.settled):
                self._count_some(event.settled, frozenset(event.refused))

    def _count_alike(self, settled: Sequence[Settled]) -> bool:
        """Count successes of one task, and return whether these were such. Most reports are: this path is fast."""
        runs: list[int] = []
        waits: list[int] = []
        add_run, add_wait = runs.append, waits.append
        first = settled[0].claim
        task, queue = first.task, first.queue
        for item in settled:
            claim, started = item.claim, item.started
            unit = claim.units[0]
            if type(item.outcomes[0]) is not Done or unit.payloads or claim.task != task or claim.queue != queue:
                return False
            add_run(item.finished - started)
            add_wait(started - unit.due)
        self._done((queue, task), runs, waits)
        return True

    def _done(self, key: Key, runs: list[int], waits: list[int]) -> None:
        times = self._times.get(key)
        if times is None:
            self._times[key] = (runs, waits)
            return
        all_runs, all_waits = times
        all_runs += runs
        all_waits += waits
        if len(all_runs) >= AT_ONCE:
            self._add_up()

    def _add_up(self) -> None:
        """Sum the times of successes: many at once take a fraction of the time of one by one."""
        for key, (runs, waits) in self._times.items():
            figures = self._of(key)
            figures.processed += len(runs)
            _add_runs(figures, runs)
            _add_waits(figures, waits)
        self._times = {}

    def _count_some(self, settled: Sequence[Settled], refused: frozenset[str]) -> None:
        """Count the outcomes of units: for a collector's lanes the payloads. Each waited for itself, and all ran once."""
        for item in settled:
            claim = item.claim
            ours = [pair for pair in zip(claim.units, item.outcomes, strict=True) if pair[0].id not in refused]
            if not ours:
                continue
            figures = self._of((claim.queue, claim.task))
            _add_runs(figures, [item.finished - item.started])
            if not claim.garbage:  # else the time since when it waited is not known
                _add_waits(figures, [item.started - unit.due for unit, _ in ours])
            for unit, outcome in ours:
                self._count_outcome(figures, outcome, len(unit.payloads) or 1, unit.id, claim.task, claim.queue)

    def _count_outcome(self, figures: Counts, outcome: Outcome, payloads: int, job: str, task: str, queue: str) -> None:
        """Count the outcome of a job, which is one payload, or of a collector's lane."""
        if isinstance(outcome, Done):
            figures.processed += payloads
        elif isinstance(outcome, Retrying | Dead):
            figures.failed += 1
            figures.retried += isinstance(outcome, Retrying)
            if isinstance(outcome, Dead):
                figures.dead += len(set(outcome.payloads)) or 1
            self._see(outcome.error, job, task, queue)
        elif isinstance(outcome, Cancelled):
            figures.cancelled += payloads
        else:
            figures.snoozed += 1

    def _of(self, key: Key) -> Figures:
        figures = self._series.get(key)
        if figures is None:
            figures = self._series[key] = Figures()
        return figures

    def _see(self, error: ErrorInfo, job: str, task: str, queue: str) -> None:
        text = (error.kind, error.message, error.traceback)
        kind = self._kinds.get(text)
        if kind is None:
            if len(self._kinds) >= KNOWN_ERRORS:
                self._kinds.clear()
            kind = self._kinds[text] = fault_of(error, job, task, queue)
        id_ = kind.id
        if id_ not in self._faults and len(self._faults) >= MOST_KINDS:
            kind = Fault(OTHERS, OTHERS, "more kinds of failures at once than are counted separately", "", 1, kind.error)
            id_ = OTHERS
        before = self._faults.get(id_)
        count = 1 if before is None else before.count + 1
        self._faults[id_] = Fault(id_, kind.kind, kind.message, kind.place, count, kind.error, job, task, queue)

    # -- reporting -------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Measure this worker, and report the counts."""
        self._look()
        if self._unsure or self._times or self._series or self._faults or time.monotonic() - self._reported_at > IDLE:
            self._report()

    def finish(self) -> None:
        """End, and report the rest: nothing is counted any more."""
        self.stop()
        if self._unsure or self._times or self._series or self._faults or self._number:
            self._look()
            if not self._report():
                log.warning("worker: its last statistics could not be written, and are lost")

    def _report(self) -> bool:
        """Report new counts to the store; return False if that failed: then the report is kept."""
        try:
            if self._unsure is not None:
                self._send(self._unsure)
            self._send(self._take())
        except StoreError as error:
            log.debug("statistics not written: %s", error)
            return False
        except ValueError:
            self._unsure = None  # a report that cannot be written now cannot be written later
            log.exception("worker: statistics cannot be written, and are dropped")
        self._reported_at = time.monotonic()
        return True

    def _send(self, report: Report) -> None:
        self._unsure = report
        self._store.record(report)
        self._unsure = None

    def _take(self) -> Report:
        with self._lock:
            self._add_up()
            series, self._series = self._series, {}
            faults, self._faults = self._faults, {}
        gauge, self._gauge = self._gauge, Gauge(slots=self._slots)
        self._number += 1
        return Report(
            worker=self._worker, number=self._number, series=series, gauge=gauge if gauge.samples else None,
            faults=tuple(faults.values()), learned=dict(self._news()),
        )  # fmt: skip

    def _look(self) -> None:
        cpu = time.process_time()
        self._gauge.add(Gauge(1, self._busy(), self._slots, _resident(), max(cpu - self._cpu, 0.0)))
        self._cpu = cpu


def _add_runs(figures: Figures, times: Sequence[int]) -> None:
    """Add run times. Those of short jobs are often equal, to the microsecond."""
    figures.run_time += sum(times)
    runs = figures.runs
    for time_, number in Counter(times).items():
        step = step_of(time_)
        runs[step] = runs.get(step, 0) + number


def _add_waits(figures: Figures, times: list[int]) -> None:
    """Add wait times. They differ, but are almost in order, and for sorted times the number in a step is found quickly."""
    figures.wait_time += max(sum(times), 0)
    waits = figures.waits
    times.sort()
    at = 0
    while at < len(times):
        step = step_of(times[at])
        begun, at = at, bisect_left(times, BOUNDS[step], at + 1) if step < len(BOUNDS) else len(times)
        waits[step] = waits.get(step, 0) + at - begun


def _resident() -> int:
    """Return the resident memory of this process, bytes."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        from laneway.kernel import memory  # noqa: PLC0415 - only where there is no such file

        return memory(os.getpid())[0]
