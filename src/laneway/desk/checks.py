"""What is examined of the work in a store, whatever store it is: workers, queues, schedules, dead jobs, clocks. Pure: facts come
in, findings come out.

Enters: `Work`.  Leaves: findings.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from laneway.core.instant import SECOND
from laneway.desk.explain import span
from laneway.desk.schedule_inspection import ScheduleInfo, no_worker_knows
from laneway.logs import some
from laneway.store.findings import Finding
from laneway.store.inspection import QueueInfo, WorkerStatus
from laneway.store.workers import live_of, serving_of

__all__ = ["Work", "check_work"]

#: A share of the limit for dead jobs that is near.
NEAR = 0.9
#: By how much clocks may differ, seconds: beyond the first it is worth knowing, beyond the second it moves what runs when.
APART, FAR_APART = 2.0, 60.0


class Work(Struct, frozen=True, kw_only=True):
    """The work in a store, and the limits it is judged by."""

    workers: Sequence[WorkerStatus]
    queues: Sequence[QueueInfo]
    schedules: Sequence[ScheduleInfo]
    ahead: int  #: how far the store's clock is ahead of this machine's, microseconds
    dead_after: float  #: a worker that is silent for longer counts as dead, seconds
    dead_max: int  #: the most dead jobs that are kept
    max_lag: float  #: a due job should not wait longer, seconds


def check_work(work: Work) -> list[Finding]:
    """Judge whether jobs get done."""
    return [
        _workers(work), *_beats(work), _queues(work), *_paused(work), _lag(work), *_schedules(work), _dead(work), _clock(work)
    ]  # fmt: skip


def _workers(work: Work) -> Finding:
    live = live_of(work.workers, work.dead_after)
    if not live:
        return Finding("workers", "warning", "no worker lives: jobs wait, and schedules do not fire", "Start one: laneway worker")
    claiming = [worker for worker in live if worker.phase == "working"]
    slots, busy = sum(worker.slots for worker in live), sum(worker.busy for worker in live)
    if not claiming:
        text = f"none of {len(live)} live workers claims jobs: they are quiet, or stopping"
        return Finding("workers", "warning", text, "Start one: laneway worker")
    return Finding("workers", "ok", f"{len(live)} live, {busy} of {slots} slots busy")


def _beats(work: Work) -> list[Finding]:
    """Judge the workers whose heartbeats are late, or have stopped."""
    live = live_of(work.workers, work.dead_after)
    silent = [worker for worker in work.workers if worker not in live]
    findings: list[Finding] = []
    if silent:
        held = sum(len(worker.jobs) for worker in silent)
        text = f"no heartbeat for more than {work.dead_after:g} s from {_names(silent)}; jobs that wait for it: {held}"
        advice = "A live worker gives their jobs back within seconds. If they stay, look at their processes: they are frozen"
        if not live:
            advice = "Start a worker: it gives their jobs back"
        findings.append(Finding("beats", "problem" if held and not live else "warning", text, advice))
    late = [worker for worker in live if (worker.beat_age or 0) > work.dead_after / 2]
    if late:
        oldest = max(worker.beat_age or 0 for worker in late)
        text = f"the last heartbeat of {_names(late)} is {span(oldest)} old: after {work.dead_after:g} s others take the jobs"
        findings.append(Finding("beats", "warning", text, "Look at the load of the machine, and at its way to the store"))
    return findings or ([Finding("beats", "ok", "all heartbeats are recent")] if live else [])


def _names(workers: Sequence[WorkerStatus]) -> str:
    return some([f"worker {one.id} (pid {one.pid} on {one.host})" if one.host else f"worker {one.id}" for one in workers])


def _queues(work: Work) -> Finding:
    """Judge whether each queue with due jobs has a worker."""
    claiming = [worker for worker in live_of(work.workers, work.dead_after) if worker.phase == "working"]
    due = [queue for queue in work.queues if queue.counts["ready"] and not queue.paused]
    left = [queue for queue in due if not serving_of(queue.name, claiming)]
    if not left:
        return Finding("queues", "ok", "every queue with due jobs has a worker")
    text = f"queues with due jobs that no worker serves: {_due_in(left)}"
    return Finding("queues", "problem", text, "Start a worker for them: laneway worker, or with -q QUEUE")


def _due_in(queues: Sequence[QueueInfo]) -> str:
    return some([f"{queue.name} ({queue.counts['ready']:,})" for queue in queues])


def _paused(work: Work) -> list[Finding]:
    paused = [queue for queue in work.queues if queue.paused and queue.counts["ready"]]
    if not paused:
        return []
    text = f"paused queues with due jobs: {_due_in(paused)}"
    return [Finding("paused", "note", text, "To let them run: laneway queues resume QUEUE")]


def _lag(work: Work) -> Finding:
    """Judge how long due jobs wait."""
    worst = max((queue for queue in work.queues if not queue.paused), key=lambda queue: queue.lag, default=None)
    if worst is None or worst.lag <= 0:
        return Finding("lag", "ok", "no job is overdue")
    text = f"a due job of queue {worst.name} has waited {span(worst.lag)}"
    if worst.lag <= work.max_lag:
        return Finding("lag", "ok", text)
    advice = "Start more workers: laneway plan says how many; laneway jobs explain says why a job waits"
    return Finding("lag", "warning", f"{text}, more than {span(work.max_lag)} (health_lag)", advice)


def _schedules(work: Work) -> list[Finding]:
    """Judge whether each schedule can fire."""
    if not work.schedules:
        return []
    known = {task for worker in live_of(work.workers, work.dead_after) for task in worker.tasks}
    active = [one for one in work.schedules if not one.paused]
    trouble = {one.name: one.trouble or ("" if one.task in known else no_worker_knows(one.task)) for one in active}
    wrong = {name: why for name, why in trouble.items() if why}
    if not wrong:
        return [Finding("schedules", "ok", "live workers know the tasks of all schedules")]
    first, why = next(iter(wrong.items()))
    others = f"; as for {some(list(wrong)[1:])}" if len(wrong) > 1 else ""
    text = f'schedule "{first}" does not fire: {why}{others}'
    return [Finding("schedules", "warning", text, "Start a worker that knows the task, or see laneway schedules list")]


def _dead(work: Work) -> Finding:
    dead = sum(queue.counts["dead"] for queue in work.queues)
    text = f"dead jobs: {dead:,} of at most {work.dead_max:,}"
    if dead < NEAR * work.dead_max:
        return Finding("dead", "ok", text)
    return Finding(
        "dead", "warning", f"{text} (dead_max): beyond that the oldest are removed",
        "See why they died, laneway jobs list --state dead; retry or delete them, or raise dead_max",
    )  # fmt: skip


def _clock(work: Work) -> Finding:
    seconds = work.ahead / SECOND
    if abs(seconds) <= APART:
        return Finding("clock", "ok", "the store's clock and this machine's agree")
    way = "ahead of" if seconds > 0 else "behind"
    return Finding(
        "clock", "warning" if abs(seconds) > FAR_APART else "note",
        f"the store's clock is {span(abs(seconds))} {way} this machine's: moments that are given as a datetime are off by that",
        "Set both by NTP. The time of a file does not advance until the machine's clock has reached it",
    )  # fmt: skip
