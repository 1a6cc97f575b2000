"""The overview: how much goes through, in which queues, by which tasks, with how much memory; what fails, and where it is stored.

All figures were counted when things happened. What a queue or a task does is shown over the last minutes: long enough to be
steady, short enough to be current. The store counts what waits by queue: where several tasks share one, the jobs themselves are
looked at if they are few, and else it is said how many there are at most.

Enters: a `WebRequest`, and a snapshot of the store.  Leaves: plain values.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from laneway.core.buckets import OTHERS, Key
from laneway.desk.inspection import Inspection
from laneway.desk.stats import Point, Stats, Summary
from laneway.present.actions import WAITING, waiting
from laneway.present.snapshot import Snapshot, working_of
from laneway.store.inspection import QueueInfo
from laneway.store.workers import serving_of
from laneway.web.metrics import totals_by_task
from laneway.web.pages.frame import slots_of
from laneway.web.pages.points import row_at, spark
from laneway.web.request import WebRequest, bad

__all__ = ["Backlog", "backlogs", "drain", "overview", "queue_rows", "task_rows"]

#: The time over which rates, times and errors of queues are shown, seconds.
LATELY = 300
#: What the charts can show.
RANGES = {"15m": "15 minutes", "3h": "3 hours", "24h": "24 hours"}
#: The most queues that are shown.
QUEUES = 200
#: The most tasks that are shown.
TASKS = 20
#: Which tasks wait in a queue that several share is counted: in LOOK jobs at most, by LISTS queries.
LOOK, LISTS = 500, 10
#: The most kinds of failures that are shown.
ERRORS = 5


def overview(ask: WebRequest, seen: Snapshot) -> dict[str, Any]:
    """Show how it goes."""
    stats = ask.app.stats
    span = ask.given.get("range", "15m")
    if span not in RANGES:
        raise bad(f"range: there are {', '.join(RANGES)}")
    points = _points(stats, span)
    busy, slots = slots_of(seen.workers)
    by_queue, by_task = stats.summaries(LATELY)
    tasks = task_rows(seen, by_task, backlogs(ask.app.inspect, seen, totals_by_task(ask.app.store_inspect).series))
    return {
        "range": span,
        "ranges": RANGES,
        "throughput": [row_at(at, [done, failed], with_day=span != "15m") for at, done, failed, _ in points],
        "memory": [row_at(at, [memory], with_day=span != "15m") for at, _, _, memory in points],
        "queues": queue_rows(seen, by_queue, stats.series(900, by_queue=True)),
        "number_of_queues": len(seen.queues),
        "other_queues": max(len(seen.queues) - QUEUES, 0),
        "tasks": tasks[:TASKS],
        "other_tasks": max(len(tasks) - TASKS, 0),
        "lately": LATELY // 60,
        "errors": stats.errors(ERRORS),
        "store": ask.app.store_inspect.about(),
        "crew": {"count": len(seen.workers), "busy": busy, "slots": slots, "memory": sum(one.rss for one in seen.workers)},
        "new": not seen.queues,
    }


# -- the charts --------------------------------------------------------------------------------------------------

Plotted = tuple[Any, float, float, float | None]


def _points(stats: Stats, span: str) -> list[Plotted]:
    """Return (begin, done a second, failed a second, memory) for each point."""
    # The last one is left out while it has only begun: a rate over a moment jumps.
    points = (stats.series(910) if span == "15m" else stats.minutes(3 if span == "3h" else 24))[:-1]
    if span != "24h":
        return [_plotted([point]) for point in points]
    by_clock = itertools.groupby(points, key=lambda point: int(point.at.timestamp()) // 600)  # ten minutes each
    return [_plotted(list(some)) for _, some in by_clock]


def _plotted(points: Sequence[Point]) -> Plotted:
    seconds = sum(point.seconds for point in points)
    told = [point.memory for point in points if point.workers]
    memory = sum(told) / len(told) if told else None
    done, failed = (sum(getattr(point, name) for point in points) / seconds for name in ("processed", "failed"))
    return points[0].at, done, failed, memory


# -- the queues --------------------------------------------------------------------------------------------------


def queue_rows(seen: Snapshot, lately: Mapping[str, Summary], series: Mapping[str, Sequence[Point]]) -> list[dict[str, Any]]:
    """Return the table of queues by name: those in which most waits, if there are many."""
    shown = heapq.nlargest(QUEUES, seen.queues, key=lambda queue: waiting(queue.counts))
    return [
        _row(one, seen, lately.get(one.name), series.get(one.name, ())) for one in sorted(shown, key=lambda queue: queue.name)
    ]


def _row(queue: QueueInfo, seen: Snapshot, sums: Summary | None, points: Sequence[Point]) -> dict[str, Any]:
    counts, rates = queue.counts, _rates(sums)
    return {
        "name": queue.name, "collects": queue.collects, "paused": queue.paused, "paused_by": queue.paused_by,
        "unserved": not serving_of(queue.name, working_of(seen.workers)), "length": waiting(counts), "ready": counts["ready"],
        "running": counts["running"], "dead": counts["dead"], "lag": queue.lag, **rates,
        "drain": drain(counts["ready"] + counts["blocked"], rates["in_rate"], rates["ended"], collects=queue.collects),
        "spark": spark([point.processed for point in points[:-1]]),
    }  # fmt: skip


def _rates(sums: Summary | None) -> dict[str, Any]:
    """Return what came, went and ended in a second, the share of runs that failed (None: nothing ran), and how long runs took.

    Of a collector payloads come and go, and lanes end.
    """
    if sums is None:
        return {"in_rate": 0.0, "out_rate": 0.0, "ended": 0.0, "errors": None, "p50": None, "p95": None}
    runs = sums.wait.count  # of a collector's run each lane
    return {
        "in_rate": sums.enqueued / sums.seconds,
        "out_rate": (sums.processed + sums.dead + sums.cancelled) / sums.seconds,
        "ended": (runs - sums.retried - sums.snoozed) / sums.seconds,
        "errors": sums.failed / runs if runs else None,
        "p50": sums.run.p50 if sums.run.count else None,
        "p95": sums.run.p95 if sums.run.count else None,
    }


def drain(waiting: int, in_rate: float, out_rate: float, *, collects: bool = False) -> float | None:
    """Return in how many seconds nothing due waits any more, if it goes on so; None: it does not get less.

    Of a collector payloads come in, and it is lanes that wait and go out, so what comes is not taken off.

    >>> drain(0, 5, 1), drain(100, 1, 2), drain(100, 2, 2), drain(100, 9, 5, collects=True)
    (0.0, 100.0, None, 20.0)
    """
    if not waiting:
        return 0.0
    spare = out_rate if collects else out_rate - in_rate
    return waiting / spare if spare > 0 else None


# -- the tasks ---------------------------------------------------------------------------------------------------


class Backlog(NamedTuple):
    """How much of a task waits."""

    number: int
    at_most: bool  #: its queues have so many, and other tasks use them, too


def backlogs(inspect: Inspection, seen: Snapshot, pairs: Iterable[Key]) -> dict[str, Backlog]:
    """Return what waits by task, as far as it is known. `pairs` are the queues and tasks that were ever used together."""
    used: dict[str, set[str]] = {}
    for name, task in pairs:
        used.setdefault(name, set()).add(task)
    full = [queue for queue in seen.queues if waiting(queue.counts)]
    found, unsure = Counter({task: 0 for tasks in used.values() for task in tasks}), set[str]()
    look, lists = LOOK, LISTS
    for queue in sorted(full, key=lambda queue: waiting(queue.counts)):  # the shortest first: so most of them are counted
        tasks, number = used.get(queue.name, set()), waiting(queue.counts)
        if len(tasks) == 1 and OTHERS not in tasks:
            found.update(dict.fromkeys(tasks, number))
            continue
        states = [state for state in WAITING if queue.counts[state]]
        look, lists = look - number, lists - len(states)
        if look >= 0 and lists >= 0:
            found.update(job.task for state in states for job in inspect.jobs(state, queue=queue.name, limit=LOOK))
        else:
            found.update(dict.fromkeys(tasks, number))
            unsure |= tasks
    return {task: Backlog(number, task in unsure) for task, number in found.items()}


def task_rows(seen: Snapshot, lately: Mapping[str, Summary], waits: Mapping[str, Backlog]) -> list[dict[str, Any]]:
    """Return the table of tasks: of those that did something lately, run or wait, the most active first."""
    running = Counter(job.task for worker in seen.workers for job in worker.jobs)
    known = {*lately, *running, *(task for task, backlog in waits.items() if backlog.number and not backlog.at_most)} - {OTHERS}
    rows = [_task_row(name, running[name], lately.get(name), waits.get(name)) for name in known]
    return sorted(rows, key=lambda row: (-row["active"], row["name"]))


def _task_row(name: str, running: int, sums: Summary | None, waits: Backlog | None) -> dict[str, Any]:
    """Return a task's figures, with what is done and what fails in a minute, and how many runs there were."""
    row: dict[str, Any] = {"name": name, "running": running, "waiting": waits, "active": running}
    if sums is None:
        return {**row, "done": 0.0, "failed": 0.0, "p50": None, "p95": None, "waited": None}
    return {
        **row, "active": running + sums.wait.count, "done": 60 * sums.processed / sums.seconds,
        "failed": 60 * sums.failed / sums.seconds, "p50": sums.run.p50 if sums.run.count else None,
        "p95": sums.run.p95 if sums.run.count else None, "waited": sums.wait.p95 if sums.wait.count else None,
    }  # fmt: skip
