"""Documents: what `--json` and the API show, as plain values with the same names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from laneway.core.instant import as_datetime
from laneway.present.words import summary

if TYPE_CHECKING:
    from laneway.capacity import Load, Plan
    from laneway.capacity.observe import Observed
    from laneway.store.inspection import JobInfo, LaneInfo, PayloadInfo, WorkerStatus
    from laneway.store.runs import Run

__all__ = [
    "call_text", "job_document", "job_entry", "lane_entry", "payload_entry", "plan_document", "result_of", "run_document",
    "worker_document",
]  # fmt: skip


def job_entry(job: JobInfo) -> dict[str, Any]:
    """Return a job as an entry of a list."""
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "lane": job.lane,
        "priority": job.priority,
        "state": job.state,
        "attempt": job.attempt,
        "args": job.args,
        "kwargs": job.kwargs,
        "payloads": job.payloads,
        "score": job.score,
        "enqueued_at": job.enqueued_at.isoformat(),
        "due_at": job.due_at.isoformat(),
        "expires_at": job.expires_at.isoformat() if job.expires_at else None,
        "worker": job.worker,
        "mark": job.mark,
        "progress": list(job.progress) if job.progress else None,
        "error": summary(job.errors[-1]) if job.errors else None,
    }


def job_document(job: JobInfo, reasons: Sequence[str]) -> dict[str, Any]:
    """Return everything about a job."""
    errors = [
        {
            "attempt": error.attempt, "at": as_datetime(error.at).isoformat() if error.at else None, "kind": error.kind,
            "message": error.message, "traceback": error.traceback,
        }
        for error in job.errors
    ]  # fmt: skip
    known = {name: value for name, value in job_entry(job).items() if name != "error"}
    return {**known, "unique": job.unique, "holds_lane": job.holds, "log": job.log, "errors": errors, "reasons": list(reasons)}


def call_text(job: JobInfo) -> str:
    """Return a job's arguments as they would be written."""
    if job.args is None or job.kwargs is None:
        return f"cannot be read: {job.body[:60]!r}"
    shown = [json.dumps(value, ensure_ascii=False) for value in job.args]
    shown += [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in job.kwargs.items()]
    return ", ".join(shown) or "none"


def run_document(run: Run) -> dict[str, Any]:
    """Return a finished run as a document."""
    return {
        "id": run.id,
        "task": run.task,
        "queue": run.queue,
        "lane": run.lane,
        "outcome": run.outcome,
        "enqueued_at": run.enqueued_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "finished_at": run.finished_at.isoformat(),
    }


def result_of(value: bytes) -> Any:
    """Return a kept result, or words that say that it cannot be read."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return "(unreadable)"


def lane_entry(lane: LaneInfo) -> dict[str, Any]:
    """Return a lane as an entry of a list."""
    return {
        "queue": lane.queue,
        "lane": lane.lane,
        "task": lane.task,
        "collects": lane.collects,
        "state": lane.state,
        "halted": lane.state == "dead",
        "size": lane.size,
        "attempts": lane.attempts,
        "due_at": lane.due_at.isoformat(),
        "lag": lane.lag,
        "head": lane.head,
        "error": summary(lane.error) if lane.error else None,
    }


def payload_entry(payload: PayloadInfo) -> dict[str, Any]:
    """Return a payload as an entry of a list."""
    return {"payload": payload.value, "score": payload.score, "running": payload.running}


def worker_document(worker: WorkerStatus) -> dict[str, Any]:
    """Return a worker as a document."""
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "fleet": worker.fleet or None,
        "version": worker.version,
        "phase": worker.phase,
        "queues": list(worker.queues),
        "slots": worker.slots,
        "balance": worker.balance or None,
        "started_at": worker.started_at.isoformat() if worker.started_at else None,
        "last_beat": worker.last_beat.isoformat() if worker.last_beat else None,
        "rss": worker.rss,
        "pss": worker.pss,
        "jobs": [
            {
                "id": job.id, "task": job.task, "queue": job.queue, "lane": job.lane,
                "started_at": job.started_at.isoformat() if job.started_at else None,
            }
            for job in worker.jobs
        ],
    }  # fmt: skip


def plan_document(answers: Plan, seen: Observed | None) -> dict[str, Any]:
    """Return a plan as a document: seconds, hours and bytes as numbers."""
    return {
        "based_on": _basis_document(seen),
        "load": _load_document(answers),
        "machine": {**asdict(answers.machine), "processes": answers.machine.processes},
        "workers": None if answers.crew is None else asdict(answers.crew),
        "alone": asdict(answers.alone),
        "with_machine": asdict(answers.with_machine),
        "now": None if answers.now is None else asdict(answers.now),
        "needed": asdict(answers.need),
    }


def _basis_document(seen: Observed | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    return {
        "runs": seen.runs, "seconds": seen.over, "ended_ago": seen.ago, "enough": seen.enough,
        "paused": list(seen.paused),
    }  # fmt: skip


def _load_document(answers: Plan) -> dict[str, Any]:
    load: Load = answers.load
    return {
        **asdict(load),
        "jobs_a_second": float(load.jobs),
        "jobs_a_day": answers.jobs_a_day,
        "hours_of_work_a_day": answers.hours_of_work_a_day,
        "at_once": float(load.work),
    }
