"""The page of workers: slots, the queues that have them and by which rule, running jobs, memory, and facts about tasks."""

from __future__ import annotations

from typing import Any

from laneway.core.buckets import Seen
from laneway.present.snapshot import SILENT
from laneway.present.words import share_of
from laneway.store.inspection import WorkerStatus
from laneway.web.request import WebRequest
from laneway.worker.shares.learn import Learner

__all__ = ["workers"]

#: The most jobs of a worker that are listed.
MOST = 20
#: The most queues that are listed of those that use its slots.
MOST_QUEUES = 8
#: What a policy does, where its name is one of ours.
RULES = {
    "even": "equally to queues with work",
    "adaptive": "one each, the rest by what waits",
    "strict": "to the first of its queues with work",
    "weighted": "by weight; a queue without one has 1",
}


def workers(ask: WebRequest) -> dict[str, Any]:
    """Show the workers."""
    found = ask.app.inspect.workers()
    learned = ask.app.stats.learned()
    most = max((one.pss or one.rss for one in found), default=0) or 1
    return {
        "workers": [_row(one, most) for one in found],
        "slots": sum(one.slots for one in found),
        "busy": sum(one.busy for one in found),
        "rss": sum(one.rss for one in found),
        "pss": sum(one.pss for one in found),
        "hosts": sorted({one.host for one in found}),
        "fleets": _fleets(found),
        "learned": _learned(learned),
        "versions": sorted({one.version for one in found if one.version}),
    }


def _row(one: WorkerStatus, most: int) -> dict[str, Any]:
    return {
        "id": one.id, "host": one.host, "pid": one.pid, "fleet": one.fleet, "version": one.version, "phase": one.phase,
        "queues": list(one.queues), "slots": one.slots, "busy": one.busy, "free": max(one.slots - one.busy, 0),
        "over": max(one.held - one.slots, 0),
        "started_at": one.started_at, "last_beat": one.last_beat, "silent": one.beat_age is None or one.beat_age > SILENT,
        "rss": one.rss, "pss": one.pss, "share": (one.pss or one.rss) / most,
        "balance": one.balance, "rule": RULES.get(one.balance.partition(" ")[0], "a rule of your own"),
        "held": [
            {"queue": queue, "slots": number, "share": min(number / (one.slots or number), 1.0)}
            for queue, number in list(one.busy_by_queue.items())[:MOST_QUEUES]
        ],
        "more_queues": max(len(one.busy_by_queue) - MOST_QUEUES, 0),
        "jobs": [
            {"id": job.id, "task": job.task, "queue": job.queue, "lane": job.lane, "started_at": job.started_at}
            for job in one.jobs[:MOST]
        ],
        "more": max(len(one.jobs) - MOST, 0), "tasks": len(one.tasks),
    }  # fmt: skip


def _fleets(found: list[WorkerStatus]) -> list[dict[str, Any]]:
    """Return how evenly work is spread over the workers of each fleet."""
    fleets: dict[str, list[WorkerStatus]] = {}
    for one in found:
        if one.fleet:
            fleets.setdefault(one.fleet, []).append(one)
    return [
        {
            "id": id_, "host": crew[0].host, "workers": len(crew), "busy": sum(one.busy for one in crew),
            "slots": sum(one.slots for one in crew), "least": min(one.busy for one in crew),
            "most": max(one.busy for one in crew),
        }
        for id_, crew in fleets.items()
    ]  # fmt: skip


def _learned(seen: dict[str, Seen]) -> list[dict[str, Any]]:
    """Return what workers know of tasks: how many runs they saw, and how much of a core each of them used."""
    kinds = Learner(seen).kinds
    words = {"cpu": "runs alone in its process", "io": "many run side by side"}
    return [
        {
            "task": task, "runs": runs + more_runs, "kind": kinds.get(task),
            "words": words.get(kinds.get(task, ""), "not known yet"),
            "share": share_of(cpu + more_cpu, could + more_could) if could + more_could > 0 else None,
        }
        for task, (runs, could, cpu, more_runs, more_could, more_cpu) in sorted(seen.items())
    ]  # fmt: skip
