"""A job as a JSON object: how it travels in transactions of users, by any driver, language or trigger.

`laneway.enqueue` of a PostgreSQL store takes such texts, and each row of an outbox has one. Laneway itself writes `body` and
`gather`; people write `args` and `kwargs`, and a task's name is all they must give.

Enters: jobs, or texts.  Leaves: texts, or jobs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from laneway.core.codec import check_size
from laneway.core.instant import FAR, SECOND, as_datetime
from laneway.core.job import Gather, Job, check_id, check_lane, check_priority, check_queue
from laneway.errors import PayloadTooLarge
from laneway.ids import new_id

__all__ = ["as_json", "read_job", "write_job"]

_encode = msgspec.json.Encoder().encode


def as_json(job: Job) -> dict[str, Any]:
    """Return a job as an object; the fields that it needs."""
    found: dict[str, Any] = {"id": job.id, "task": job.task, "queue": job.queue, "body": job.body.decode()}
    if job.lane is not None:
        found["lane"] = job.lane
    if job.priority:
        found["priority"] = job.priority
    if job.at:
        found["run_after"] = as_datetime(job.at).isoformat()
    elif job.delay:
        found["run_after"] = job.delay / SECOND
    if job.unique is not None:
        found["unique"] = job.unique
    if job.until_end:
        found["unique_until"] = "end"
    if job.expires:
        found["expires"] = job.expires / SECOND
    if job.gather is not None:
        found["gather"] = job.gather
    return found


def write_job(job: Job) -> str:
    """Return a job as a text."""
    return _encode(as_json(job)).decode()


class WrittenJob(Struct, forbid_unknown_fields=True):
    """The fields of such an object."""

    task: str
    id: str | None = None
    queue: str = "default"
    lane: str | int | None = None
    priority: int = 0
    run_after: float | str | None = None
    expires: float | None = None
    unique: str | None = None
    unique_until: Literal["claim", "end"] = "claim"
    args: Raw = Raw(b"[]")
    kwargs: Raw = Raw(b"{}")
    body: str | None = None
    gather: Gather | None = None


_decoder = msgspec.json.Decoder(WrittenJob)


def read_job(text: str) -> Job:
    """Return the job in a text, or raise ValueError that says why it is none."""
    try:
        return _job(_decoder.decode(text))
    except (ValueError, RecursionError, PayloadTooLarge) as error:  # of msgspec, too
        raise ValueError(f"it is not a job that can be enqueued: {error}") from None


def _job(given: WrittenJob) -> Job:
    if not 0 < len(given.task) <= 200 or not given.task.isprintable() or " " in given.task:
        raise ValueError('task: name the task, as "shop.ship"')
    lane = None if given.lane is None else check_lane(given.lane)
    priority = check_priority(given.priority)
    if lane is not None and priority:
        raise ValueError("lane and priority together: a lane is in order, so its jobs have no priority")
    if given.unique is not None and (not 0 < len(given.unique) <= 500 or not given.unique.isprintable()):
        raise ValueError("unique: use 1 to 500 printable characters")
    if given.expires is not None and not 0 < given.expires <= 1e9:
        raise ValueError("expires: use seconds, more than 0")
    body = _body(given)
    check_size(body)
    delay, at = _when(given.run_after)
    if given.gather is not None and lane is None:
        raise ValueError("lane: a payload of a collector needs one")
    return Job(
        new_id() if given.id is None else check_id(given.id), given.task, check_queue(given.queue), body, lane, priority,
        delay, at, given.unique, 0 if given.expires is None else max(round(given.expires * SECOND), 1), given.gather,
        given.unique_until == "end" and given.unique is not None,
    )  # fmt: skip


def _body(given: WrittenJob) -> bytes:
    if given.body is not None:
        if given.body or given.gather is None:  # the payload of a collector may be left out
            msgspec.json.decode(given.body, type=Raw)
        return given.body.encode()
    args, kwargs = bytes(given.args), bytes(given.kwargs)
    if not args.startswith(b"["):
        raise ValueError("args: use an array of positional arguments")
    if not kwargs.startswith(b"{"):
        raise ValueError("kwargs: use an object of arguments by name")
    return b"[" + args + b"," + kwargs + b"]"


def _when(run_after: float | str | None) -> tuple[int, int]:
    """Return a delay and a moment, microseconds."""
    if run_after is None:
        return 0, 0
    if isinstance(run_after, str):
        moment = datetime.fromisoformat(run_after)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return 0, max((moment - as_datetime(0)) // timedelta(microseconds=1), 0)
    if not 0 <= run_after <= FAR:
        raise ValueError('run_after: use seconds, or a time such as "2027-01-31T12:00:00Z"')
    return round(run_after * SECOND), 0
