"""Metrics: the store's figures in Prometheus' text format.

The number of series is bounded, however many queues and tasks there are: the first so many that are seen keep their names as long
as this process lives, all others are added up as "other".

Enters: `Snapshot`.  Leaves: text.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from laneway.present.snapshot import Snapshot, sum_counts
from laneway.store.inspection import QueueInfo

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
#: A name, its type, its meaning, and its samples.
Family = tuple[str, str, str, Sequence[Sample]]


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

    def _of_queues(self, seen: Snapshot) -> Iterable[Family]:
        named: dict[str, list[QueueInfo]] = {}
        for queue in seen.queues:
            named.setdefault(self._queues.of(queue.name), []).append(queue)
        jobs: list[Sample] = [
            ({"queue": name, "state": state}, number)
            for name, queues in named.items()
            for state, number in sum_counts(queue.counts for queue in queues).items()
        ]
        yield "laneway_jobs", "gauge", "Jobs in the store; of a collector lanes, and dead payloads.", jobs
        lags: list[Sample] = [({"queue": name}, max(queue.lag for queue in queues)) for name, queues in named.items()]
        yield "laneway_lag_seconds", "gauge", "How long the oldest due job has waited.", lags
        paused: list[Sample] = [({"queue": name}, sum(queue.paused for queue in queues)) for name, queues in named.items()]
        yield "laneway_paused", "gauge", "Whether the queue is paused; of other the number of those that are.", paused

    def _of_workers(self, seen: Snapshot) -> Iterable[Family]:
        phases = dict.fromkeys(("working", "quiet", "stopping"), 0)
        for worker in seen.workers:
            phases[worker.phase if worker.phase in phases else "working"] += 1
        running = Counter(self._tasks.of(job.task) for worker in seen.workers for job in worker.jobs)
        yield "laneway_workers", "gauge", "Workers.", [({"phase": phase}, number) for phase, number in phases.items()]
        yield "laneway_slots", "gauge", "Slots of all workers.", [({}, sum(worker.slots for worker in seen.workers))]
        yield "laneway_slots_busy", "gauge", "Slots in use.", [({}, sum(worker.busy for worker in seen.workers))]
        yield "laneway_memory_bytes", "gauge", "Memory of all workers.", [({}, sum(worker.rss for worker in seen.workers))]
        yield "laneway_running", "gauge", "Jobs that run.", [({"task": task}, number) for task, number in running.items()]


def _of_store(seen: Snapshot) -> Iterable[Family]:
    return ((f"laneway_{name}_total", "counter", meaning, [({}, seen.totals.get(name, 0))]) for name, meaning in COUNTERS.items())


def _family(name: str, kind: str, meaning: str, samples: Sequence[Sample]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        number = value if isinstance(value, int) else f"{value:.9g}"
        lines.append(f"{name}{{{shown}}} {number}" if shown else f"{name} {number}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
