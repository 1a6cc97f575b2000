"""Documents: what `--json` and the API show, as plain values with the same names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from laneway.core.instant import as_datetime
from laneway.present.words import summary

if TYPE_CHECKING:
    from laneway.desk.inspection import ScheduleInfo
    from laneway.store.inspection import JobInfo, LaneInfo, PayloadInfo, WorkerStatus
    from laneway.store.runs import Run

__all__ = [
    "arguments_text", "call_text", "job_document", "job_entry", "lane_entry", "payload_entry", "by_fields", "result_of",
    "run_document", "schedule_document", "worker_document",
]  # fmt: skip


def by_fields(value: Any) -> Any:
    """Return a value, a Struct or a dataclass as plain JSON values, by its fields."""
    if isinstance(value, Struct):
        return {name: by_fields(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: by_fields(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): by_fields(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [by_fields(item) for item in cast("list[Any]", value)]
    return value.isoformat() if isinstance(value, date) else value  # a datetime is one too


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
        "started_at": job.started_at.isoformat() if job.started_at else None,
        "finished_at": job.finished_at.isoformat() if job.finished_at else None,
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
    ended = {} if job.finished_at is None else {"outcome": job.state}  # as a run has it
    return {
        **known,
        **ended,
        "unique": job.unique,
        "holds_lane": job.holds,
        "log": job.log,
        "errors": errors,
        "reasons": list(reasons),
    }


def call_text(job: JobInfo) -> str:
    """Return a job's arguments as they would be written."""
    if job.args is None or job.kwargs is None:
        return f"cannot be read: {job.body[:60]!r}"
    return arguments_text(job.args, job.kwargs) or "none"


def arguments_text(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return arguments as they would be written in a call."""
    shown = [json.dumps(value, ensure_ascii=False) for value in args]
    return ", ".join([*shown, *(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in kwargs.items())])


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


def result_of(value: bytes | None, unreadable: Any) -> Any:
    """Return a kept result, if there is one, and something else for one that cannot be read."""
    try:
        return None if value is None else msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return unreadable


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


def schedule_document(schedule: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule as a document."""
    return {**by_fields(schedule), **{name: getattr(schedule, name) or None for name in ("paused_by", "set_by", "trouble")}}


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
