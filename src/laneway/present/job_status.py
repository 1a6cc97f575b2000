"""A job's status: what the user who waits for it is told. Neither its arguments nor tracebacks are part of it.

Enters: an app and a job's id.  Leaves: plain values.
"""

from __future__ import annotations

from typing import Any

from laneway.core.instant import as_datetime
from laneway.core.job import FINISHED, check_id
from laneway.desk.app import App
from laneway.errors import UnknownJob
from laneway.present.documents import result_of
from laneway.store.inspection import JobInfo, StoredResult

__all__ = ["job_status"]

#: Nothing more comes after these, unless a user replays a dead job.
ENDED = (*FINISHED, "dead", "gone")


def job_status(app: App, id_: str, task: str = "") -> dict[str, Any]:
    """Return where a job stands, its result included. Blocks.

    Raises UnknownJob if there is no such job, or none any more; also for a job of another task, if one is named.
    """
    unknown = UnknownJob(f'no job "{id_}" is in the store: it has finished long ago, or never was', id=id_)
    try:
        check_id(id_)
    except ValueError:
        raise unknown from None
    found = app.inspect.job(id_)
    stored = app.store_inspect.result(id_) if found is None or found.state in FINISHED else StoredResult(found.state)
    if found is None and stored.state == "gone":
        raise unknown
    made = _of_result(id_, stored) if found is None else _of_info(found)
    if task and made["task"] not in (task, ""):
        raise unknown
    known = not task or made["task"] == task  # of what has no record, only the state may be known
    return {**made, "ended": made["state"] in ENDED, "result": result_of(stored.value, None) if known else None}


def _of_info(job: JobInfo) -> dict[str, Any]:
    ended = job.due_at if job.state == "dead" else job.finished_at
    errors = [
        {"attempt": error.attempt, "at": as_datetime(error.at).isoformat() if error.at else None, "kind": error.kind,
         "message": error.message}
        for error in job.errors
    ]  # fmt: skip
    return {
        "id": job.id,
        "task": job.task,
        "state": job.state,
        "attempt": job.attempt,
        "progress": {"done": job.progress[0], "total": job.progress[1]} if job.progress else None,
        "errors": errors,
        "enqueued_at": job.enqueued_at.isoformat(),
        "started_at": job.started_at.isoformat() if job.started_at else None,
        "finished_at": ended.isoformat() if ended else None,
    }


def _of_result(id_: str, found: StoredResult) -> dict[str, Any]:
    """Return what is known of a job that has left, and has no record."""
    nothing = dict.fromkeys(("progress", "enqueued_at", "started_at", "finished_at"))
    return {"id": id_, "task": found.task, "state": found.state, "attempt": 0, "errors": [], **nothing}
