"""Metrics: the store's figures in Prometheus' text format.

Counters are the store's: those of the whole store are exact, those of queues and tasks are what workers reported, added up since
the store began (`EVER`). So they never shrink, whichever process is asked, and a restart of the dashboard resets none of them.

The number of series is bounded, however many queues and tasks there are: a limited number keep their names, in the order
in which the store saw them; all others are added up as "other".

Enters: `Snapshot`, the bucket of totals.  Leaves: text.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from laneway.core.buckets import BOUNDS, OTHERS, Bucket, Figures, Key
from laneway.core.instant import SECOND
from laneway.errors import StoreError
from laneway.outbox.database import OutboxURL
from laneway.outbox.status import look
from laneway.present.snapshot import Snapshot
from laneway.store.inspection import Inspect, QueueInfo, sum_counts
from laneway.store.statistics import EVER

__all__ = ["CONTENT_TYPE", "LIMITS", "MOST", "Metrics", "Names", "outbox_text", "totals_by_task"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The most queues, and the most tasks, with series of their own.
MOST = 200
OTHER = "other"

#: The limits of a histogram's buckets, microseconds: a millisecond to 19 hours. Each is a bound of the store's own histograms, so
#: no number is guessed. (A time equal to a limit is counted above it: a microsecond makes no difference.)
LIMITS = tuple(2**n for n in (*range(10, 27), 28, 30, 32, 34, 36))
_STEPS = tuple(BOUNDS.index(limit) for limit in LIMITS)
_LES = (*(repr(limit / SECOND) for limit in LIMITS), "+Inf")

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
#: Of each queue and task.
TASK_COUNTERS = {
    "enqueued": "Jobs and payloads that the store took, by queue and task.",
    "processed": "Jobs and payloads that were done, by queue and task.",
    "failed": "Attempts that failed, by queue and task.",
    "retried": "Attempts that failed and are made again, by queue and task.",
    "dead": "Jobs and payloads that gave up after an attempt, by queue and task.",
    "cancelled": "Jobs and payloads whose run ended cancelled, by queue and task.",
    "snoozed": "Runs that ended with a snooze, by queue and task.",
}

#: Of each task.
HISTOGRAMS = {
    "run": "How long runs took, by task; a collector's run counts once.",
    "wait": "How long jobs waited from when they were due to their start, by task.",
}

#: Labels and a value.
Sample = tuple[Mapping[str, str], float]
#: A name, its type, its meaning, and its samples.
Family = tuple[str, str, str, Sequence[Sample]]


def totals_by_task(store: Inspect) -> Bucket:
    """Return what happened to each queue and task since the store began."""
    return next(iter(store.figures(EVER, 1).buckets.values()), Bucket())


class Names:
    """Names that have series of their own: the first that come, up to a number.

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
            if name not in self._kept and len(self._kept) < self._most and name != OTHERS:
                self._kept.add(name)
            return name if name in self._kept else OTHER


class Metrics:
    """Writes metrics; remembers which names it has shown."""

    def __init__(self) -> None:
        self._queues = Names()
        self._tasks = Names()

    def text(self, seen: Snapshot | None, totals: Bucket | None = None) -> str:
        """Return a snapshot of a store and its totals by queue and task as text; None: it cannot be reached."""
        lines = _family("laneway_up", "gauge", "Whether the store can be reached.", [({}, 0 if seen is None else 1)])
        if seen is not None:
            named = self._named(totals or Bucket())  # first, so that names are kept in the order of the totals
            families = (*self._of_queues(seen), *_of_store(seen), *_of_tasks(named), *self._of_workers(seen))
            lines += itertools.chain.from_iterable(itertools.starmap(_family, families))
            lines += _histograms(named)
        return "\n".join([*lines, ""])

    def _named(self, totals: Bucket) -> dict[Key, Figures]:
        """Return the totals by the names under which they are shown."""
        found: dict[Key, Figures] = {}
        for (queue, task), figures in totals.series.items():
            found.setdefault((self._queues.of(queue), self._tasks.of(task)), Figures()).add(figures)
        return found

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
        free = sum(max(worker.slots - worker.busy, 0) for worker in seen.workers)
        yield "laneway_slots_free", "gauge", "Slots that wait for a job.", [({}, free)]
        yield "laneway_memory_bytes", "gauge", "Memory of all workers.", [({}, sum(worker.rss for worker in seen.workers))]
        yield "laneway_running", "gauge", "Jobs that run.", [({"task": task}, number) for task, number in running.items()]


def outbox_text(outbox: OutboxURL) -> str:
    """Return the figures of an outbox."""
    families: list[Family] = []
    try:
        oldest, aside = look(outbox)
        families.append(
            ("laneway_outbox_oldest_seconds", "gauge", "How long the oldest row has waited; 0: none.", [({}, oldest)])
        )
        families.append(("laneway_outbox_aside", "gauge", "Rows that cannot become jobs and were set aside.", [({}, aside)]))
    except StoreError:
        pass
    up = _family("laneway_outbox_up", "gauge", "Whether the outbox can be read.", [({}, 1 if families else 0)])
    return "\n".join([*up, *itertools.chain.from_iterable(itertools.starmap(_family, families)), ""])


def _of_store(seen: Snapshot) -> Iterable[Family]:
    return ((f"laneway_{name}_total", "counter", meaning, [({}, seen.totals.get(name, 0))]) for name, meaning in COUNTERS.items())


def _of_tasks(named: Mapping[Key, Figures]) -> Iterable[Family]:
    for name, meaning in TASK_COUNTERS.items():
        samples = [({"queue": queue, "task": task}, getattr(figures, name)) for (queue, task), figures in named.items()]
        yield f"laneway_task_{name}_total", "counter", meaning, samples


def _histograms(named: Mapping[Key, Figures]) -> Iterator[str]:
    """Write times by task."""
    tasks: dict[str, Figures] = {}
    for (_, task), figures in named.items():
        tasks.setdefault(task, Figures()).add(figures)
    for kind, meaning in HISTOGRAMS.items():
        name = f"laneway_{kind}_seconds"
        yield from _family(name, "histogram", meaning, ())
        for task, figures in tasks.items():
            yield from _histogram(
                name, f'task="{_escaped(task)}"', getattr(figures, f"{kind}s"), getattr(figures, f"{kind}_time")
            )


def _histogram(name: str, label: str, steps: Mapping[int, int], total: int) -> Iterator[str]:
    per_step = [0] * (len(BOUNDS) + 1)
    for step, number in steps.items():
        per_step[min(step, len(BOUNDS))] += number
    up_to = list(itertools.accumulate(per_step))
    for le, number in zip(_LES, (*(up_to[step] for step in _STEPS), up_to[-1]), strict=True):
        yield f'{name}_bucket{{{label},le="{le}"}} {number}'
    yield f"{name}_sum{{{label}}} {total / SECOND!r}"
    yield f"{name}_count{{{label}}} {up_to[-1]}"


def _family(name: str, kind: str, meaning: str, samples: Sequence[Sample]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
