"""Explaining: why a job is where it is, in sentences. Pure: facts come in, sentences come out.

Enters: a job and its surroundings.  Leaves: sentences, the most important one first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from laneway.core.instant import as_datetime
from laneway.store.error_history import WORKER_LOST
from laneway.store.inspection import JobInfo, QueueInfo, WorkerStatus
from laneway.store.workers import serving_of

__all__ = ["Around", "ago", "explain", "span"]


class Around(Struct, frozen=True, kw_only=True):
    """The surroundings of a job."""

    now: datetime  #: by the store's clock
    queue: QueueInfo | None = None
    workers: Sequence[WorkerStatus] = ()
    holder: JobInfo | None = None  #: the holder of its lane
    before: int = 0  #: how many jobs wait in its lane before it, without the holder


def explain(job: JobInfo, around: Around) -> list[str]:
    """Say why a job is where it is; and, if a claim was lost with its worker, that it may have run before."""
    return [*_state(job, around), *_lost(job, around)]


def _state(job: JobInfo, around: Around) -> list[str]:
    match job.state:
        case "running":
            return _running(job, around)
        case "dead":
            return _dead(job, around)
        case "done" | "cancelled":
            return _finished(job, around)
        case "blocked":
            return [_behind(job, around), *_hindrances(job, around)]
        case "ready":
            held = around.holder is not None and around.holder.id != job.id
            behind = [_behind(job, around)] if held else []
            found = [*behind, *_hindrances(job, around)]
            since = f"it has been due for {ago(around.now, job.due_at)}"
            return [*found, since] if found else [f"{since}: the next free slot takes it"]
        case _:
            return [_later(job, around), *_hindrances(job, around)]


def _running(job: JobInfo, around: Around) -> list[str]:
    worker = next((worker for worker in around.workers if worker.id == job.worker), None)
    if worker is None:
        return [f"it is held by worker {job.worker}, which is not known any more: it is recovered by the next worker that looks"]
    run = next((run for run in worker.jobs if run.id == job.id), None)
    where = f"worker {worker.id} (pid {worker.pid} on {worker.host})"
    if run is None or run.started_at is None:
        said = [f"it is held by {where}, which has not reported yet since when it runs"]
    else:
        said = [f"it has run on {where} for {ago(around.now, run.started_at)}"]
    if worker.beat_age is not None and worker.beat_age > 10:
        said.append(f"the last heartbeat of that worker came {span(worker.beat_age)} ago")
    if job.mark:
        said.append(f"it is to be {_MARKS.get(job.mark, job.mark)} when its run has ended")
    return said


def _finished(job: JobInfo, around: Around) -> list[str]:
    said = "it was cancelled" if job.state == "cancelled" else "it was done"
    if job.finished_at is None:  # pragma: no cover - a finished job has ended
        return [said]
    tried = f", in attempt {job.attempt}" if job.attempt > 1 else ""
    took = "" if job.started_at is None else f", which took {span((job.finished_at - job.started_at).total_seconds())}"
    return [f"{said} {ago(around.now, job.finished_at)} ago{tried}", f"worker {job.worker} made its last run{took}"]


def _dead(job: JobInfo, around: Around) -> list[str]:
    why = f": {job.errors[-1].kind}: {job.errors[-1].message}" if job.errors else ""
    said = [f"it gave up {ago(around.now, job.due_at)} ago, after attempt {job.attempt}{why}", "replay it with: retry"]
    return [*said, f"lane {job.lane} is halted until then, or until it is deleted"] if job.holds else said


def _lost(job: JobInfo, around: Around) -> list[str]:
    lost = [error for error in job.errors if error.kind == WORKER_LOST]
    if not lost:
        return []
    times = f"{len(lost)} times, last " if len(lost) > 1 else ""
    when = f" {times}{ago(around.now, as_datetime(lost[-1].at))} ago" if lost[-1].at else ""
    return [f"a claim of it was lost{when} ({lost[-1].message}), so it may have run before; no attempt counts for that"]


def _later(job: JobInfo, around: Around) -> str:
    wait = span((job.due_at - around.now).total_seconds())
    if job.state == "retrying" and job.errors:
        error = job.errors[-1]
        return f"attempt {job.attempt} failed ({error.kind}: {error.message}); the next one is due in {wait}"
    if job.holds:
        return f"it snoozes, and is due again in {wait}"
    return f"it is due in {wait}"


def _behind(job: JobInfo, around: Around) -> str:
    holder = around.holder
    if holder is None:
        return f"its lane {job.lane} is about to go on"
    others = f", with {around.before} more before it" if around.before else ""
    worker = next((worker for worker in around.workers if worker.id == holder.worker), None)
    run = next((run for run in worker.jobs if run.id == holder.id), None) if worker else None
    if holder.state == "running":
        since = f" for {ago(around.now, run.started_at)}" if run and run.started_at else ""
        doing = f"has run on worker {holder.worker}{since}" if since else f"runs on worker {holder.worker}"
    elif holder.state == "dead":
        doing = "is dead and halts the lane: replay it (retry), or delete it to go on with the next"
    elif holder.due_at > around.now:
        doing = f"is {holder.state} and due in {span((holder.due_at - around.now).total_seconds())}"
    else:
        doing = f"is {holder.state}"
    return f"it waits in lane {job.lane} behind job {holder.id} ({holder.task}), which {doing}{others}"


def _hindrances(job: JobInfo, around: Around) -> list[str]:
    """Return what would keep the job from being claimed, were it due."""
    said: list[str] = []
    queue = around.queue
    if queue is not None and queue.paused:
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        since = f" for {ago(around.now, queue.paused_at)}" if queue.paused_at else ""
        said.append(f"queue {job.queue} has been paused{by}{since}")
    working = [worker for worker in around.workers if worker.phase == "working"]
    serving = serving_of(job.queue, working)
    if not working:
        return [*said, "no worker runs: start one with laneway worker"]
    if not serving:
        return [*said, f"no worker serves queue {job.queue}: the {len(working)} that run serve others"]
    knowing = [worker for worker in serving if job.task in worker.tasks]
    if not knowing:
        return [*said, f"no worker of queue {job.queue} knows the task {job.task}: it is put back until one does, for an hour"]
    slots = sum(worker.slots for worker in knowing)
    busy = sum(worker.busy for worker in knowing)
    if job.state == "ready" and busy >= slots:
        said.append(f"all {slots} slots of the {len(knowing)} workers that can run it are busy")
    return said


_MARKS = {"cancel": "cancelled", "delete": "deleted", "kill": "dead"}


def ago(now: datetime, then: datetime) -> str:
    """Return how long ago a time was."""
    return span((now - then).total_seconds())


def span(seconds: float) -> str:
    """Return a duration in at most two units."""
    seconds = max(seconds, 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    shown = [f"{number}{unit}" for number, unit in parts if number]
    return " ".join(shown[:2])
