"""A snapshot of a store: what `status`, `top` and the demo show, and health, metrics and the live stream are made of.

Figures are those the store keeps: taking a snapshot looks at no jobs. Only `Details` does.

Enters: an app.  Leaves: `Snapshot`, `Details`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from laneway.config import safe_url
from laneway.desk.app import App
from laneway.store.inspection import Counts, JobInfo, QueueInfo, WorkerStatus, sum_counts
from laneway.store.runs import Run
from laneway.worker.shares.learn import Kind, Learner

__all__ = ["SILENT", "Details", "Snapshot", "working_of"]

#: A worker whose last heartbeat is older than this does not count as alive, seconds.
SILENT = 15.0

#: A store with more jobs than this is not searched every second for the job that has waited longest.
MANY = 100_000
DEAD = 4
#: The most names in a line.
SHOWN = 8
MAIN = ("enqueued", "processed", "failed", "retried", "dead")


class Snapshot(Struct, frozen=True):
    """The figures of a store at a moment."""

    store: str
    counts: Counts
    queues: list[QueueInfo]
    totals: dict[str, int]  #: all that the store has counted since it began
    workers: list[WorkerStatus]
    recent: list[Run] = []  #: the last runs, the newest first
    kinds: dict[str, Kind] = {}  #: what workers have learned of tasks: those that compute ("cpu"), and those that wait ("io")

    @classmethod
    def of(cls, app: App, runs: int = 0) -> Snapshot:
        """Ask an app's store; with `runs` also for this many of the last runs, and for what workers have learned."""
        queues = app.inspect.queues()
        counts = sum_counts(queue.counts for queue in queues)
        figures = cls(safe_url(app.url), counts, queues, app.store_inspect.totals(), app.inspect.workers())
        if not runs:
            return figures
        return structs.replace(figures, recent=app.stats.recent(runs), kinds=dict(Learner(app.stats.learned()).kinds))

    @property
    def main_totals(self) -> dict[str, int]:
        """The totals that people are shown first."""
        return {name: self.totals[name] for name in MAIN}

    @property
    def lag(self) -> float:
        """How long the oldest due job of all queues has waited, seconds; 0: none is due."""
        return max((queue.lag for queue in self.queues), default=0.0)

    @property
    def crew(self) -> str:
        """The workers and their slots, in words."""
        busy, slots = sum(one.busy for one in self.workers), sum(one.slots for one in self.workers)
        return f"{len(self.workers)}, running {busy} of {slots} slots"

    @property
    def learned(self) -> str:
        """What workers have learned of tasks, in words; empty if nothing."""
        words = {"cpu": ("computes", "compute"), "io": ("waits", "wait")}
        found = {kind: sorted(task for task, is_ in self.kinds.items() if is_ == kind) for kind in words}
        return "; ".join(f"{_some(tasks)} {words[kind][len(tasks) > 1]}" for kind, tasks in found.items() if tasks)

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return sum(number for state, number in self.counts.items() if state != "dead")


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= SHOWN else f"{', '.join(names[: SHOWN - 1])} and {len(names) - SHOWN + 1} more"


class Details(Struct, frozen=True):
    """Single jobs worth showing."""

    running: list[JobInfo]
    blocked: list[JobInfo]
    dead: list[JobInfo]  #: the latest, newest first
    oldest: dict[str, datetime]  #: since when the first job of a queue is ready

    @classmethod
    def of(cls, app: App, seen: Snapshot) -> Details:
        """Look at an app's jobs."""
        jobs = app.inspect.jobs
        waiting = [queue.name for queue in seen.queues if queue.counts["ready"]] if seen.unfinished < MANY else []
        first = {name: found[0].due_at for name in waiting if (found := jobs("ready", queue=name, limit=1))}
        return cls(jobs("running"), jobs("blocked", limit=500), _dead(app, seen), first)


def _dead(app: App, seen: Snapshot) -> list[JobInfo]:
    """The latest to die, as far as the last runs reach, then the latest to come."""
    if not seen.counts["dead"]:
        return []
    ids = [run.id for run in seen.recent if run.outcome == "dead"][:DEAD]
    found = {id_: job for id_ in ids if (job := app.inspect.job(id_)) is not None and job.state == "dead"}
    if len(found) < DEAD:
        found |= {job.id: job for job in app.inspect.jobs("dead", limit=DEAD, newest=True) if job.id not in found}
    return list(found.values())[:DEAD]


def working_of(workers: Sequence[WorkerStatus]) -> list[WorkerStatus]:
    """Return the workers that live and claim."""
    return [worker for worker in workers if worker.phase == "working" and (worker.beat_age or 0.0) <= SILENT]
