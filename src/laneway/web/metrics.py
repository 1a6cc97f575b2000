"""Metrics: the store's figures in Prometheus' text format.

The number of series is bounded, however many queues and tasks there are: the first so many that are seen keep their names as long
as this process lives, all others are added up as "other".

Enters: `Snapshot`.  Leaves: text.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from laneway.present.snapshot import Snapshot
from laneway.store.inspection import Counts

__all__ = ["CONTENT_TYPE", "MOST", "Metrics", "Names"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: So many queues, and so many tasks, have series of their own.
MOST = 100
OTHER = "other"

COUNTERS = {
    "enqueued": "Jobs and payloads that the store took.",
    "merged": "Payloads that became one with an equal payload.",
    "processed": "Jobs and payloads that were done.",
    "failed": "Attempts that failed.",
    "retried": "Attempts that failed and are made again.",
    "dead": "Jobs and payloads that gave up.",
    "cancelled": "Jobs and payloads that were cancelled.",
    "recovered": "Claims that were given back because their worker died.",
    "refused": "Outcomes that were refused because their claim was lost.",
}

#: Labels and a value.
Sample = tuple[Mapping[str, str], float]


class Names:
    """Names that have series of their own: at most so many, the first that come.

    >>> names = Names(2)
    >>> [names.of(name) for name in ("a", "b", "c", "a")]
    ['a', 'b', 'other', 'a']
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: set[str] = set()
        self._lock = threading.Lock()

    def of(self, name: str) -> str:
        """Return under which name it is shown."""
        with self._lock:
            if name not in self._kept and len(self._kept) < self._most:
                self._kept.add(name)
            return name if name in self._kept else OTHER


class Metrics:
    """Writes metrics; remembers which names it has shown."""

    def __init__(self) -> None:
        self._queues = Names()
        self._tasks = Names()

    def text(self, seen: Snapshot | None) -> str:
        """Return a snapshot of a store as text; None: it cannot be reached."""
        lines = _family("laneway_up", "gauge", "Whether the store can be reached.", [({}, 0 if seen is None else 1)])
        if seen is not None:
            for family in (*self._of_queues(seen), *_of_store(seen), *self._of_workers(seen)):
                lines += _family(*family)
        return "\n".join([*lines, ""])

    def _of_queues(self, seen: Snapshot) -> Iterable[tuple[str, str, str, list[Sample]]]:
        counts: dict[str, Counts] = {}
        lags: dict[str, float] = {}
        paused: dict[str, int] = {}
        for queue in seen.queues:
            name = self._queues.of(queue.name)
            mine = counts.setdefault(name, {})
            for state, number in queue.counts.items():
                mine[state] = mine.get(state, 0) + number
            paused[name] = paused.get(name, 0) + queue.paused
            lags[name] = max(lags.get(name, 0.0), queue.lag)
        jobs: list[Sample] = [
            ({"queue": name, "state": state}, number) for name, mine in counts.items() for state, number in mine.items()
        ]
        yield "laneway_jobs", "gauge", "Jobs in the store; of a collector lanes, and dead payloads.", jobs
        lagging: list[Sample] = [({"queue": name}, lag) for name, lag in lags.items()]
        yield "laneway_lag_seconds", "gauge", "How long the oldest due job has waited.", lagging
        resting: list[Sample] = [({"queue": name}, number) for name, number in paused.items()]
        yield "laneway_paused", "gauge", "Whether the queue is paused; of other the number of those that are.", resting

    def _of_workers(self, seen: Snapshot) -> Iterable[tuple[str, str, str, list[Sample]]]:
        phases = dict.fromkeys(("working", "quiet", "stopping"), 0)
        running: dict[str, int] = {}
        for worker in seen.workers:
            phases[worker.phase if worker.phase in phases else "working"] += 1
            for job in worker.jobs:
                name = self._tasks.of(job.task)
                running[name] = running.get(name, 0) + 1
        yield "laneway_workers", "gauge", "Workers.", [({"phase": phase}, number) for phase, number in phases.items()]
        yield "laneway_slots", "gauge", "Slots of all workers.", [({}, sum(worker.slots for worker in seen.workers))]
        yield "laneway_slots_busy", "gauge", "Slots in use.", [({}, sum(worker.busy for worker in seen.workers))]
        yield "laneway_memory_bytes", "gauge", "Memory of all workers.", [({}, sum(worker.rss for worker in seen.workers))]
        yield "laneway_running", "gauge", "Jobs that run.", [({"task": task}, number) for task, number in running.items()]


def _of_store(seen: Snapshot) -> Iterable[tuple[str, str, str, list[Sample]]]:
    for name, meaning in COUNTERS.items():
        yield f"laneway_{name}_total", "counter", meaning, [({}, seen.totals.get(name, 0))]


def _family(name: str, kind: str, meaning: str, samples: Sequence[Sample]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        number = value if isinstance(value, int) else f"{value:.9g}"
        lines.append(f"{name}{{{shown}}} {number}" if shown else f"{name} {number}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
