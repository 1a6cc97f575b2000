"""Kinds of failures, as they are kept: see `laneway.core.error_groups`.

The sample is one value: the last failure of its kind. A long traceback is packed, as those of jobs are. An unreadable sample is
reported as such, and does not fail the call.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from laneway.core.error_groups import Fault
from laneway.core.instant import as_datetime
from laneway.core.outcome import ErrorInfo
from laneway.core.plain import Plain
from laneway.store.error_history import add_error, read_errors

__all__ = ["ErrorGroup", "pack_fault", "read_fault"]


class ErrorGroup(Plain, frozen=True, kw_only=True):
    """Failures of one kind, with the same message except for names and numbers, from one place."""

    id: str
    kind: str  #: the exception's class, or what happened: `unknown task`, `garbage`
    message: str  #: its message, without names and numbers
    place: str  #: file, line and function in the user's code; empty if not known
    count: int
    first_at: datetime  #: when it was seen first, and last
    last_at: datetime
    error: ErrorInfo  #: the last one, with its traceback
    job: str  #: of the last one: its job, task and queue
    task: str
    queue: str


class _Sample(Struct, array_like=True):
    kind: str
    message: str
    place: str
    job: str
    task: str
    queue: str
    error: msgspec.Raw


_sample = msgspec.json.Decoder(_Sample)


def pack_fault(fault: Fault) -> bytes:
    """Return the stored form of a fault, without its count and times."""
    error = msgspec.Raw(add_error(None, fault.error, 0, 0))
    told = (fault.kind, fault.message, fault.place, fault.job, fault.task, fault.queue)
    return msgspec.json.encode(_Sample(*told, error))


def read_fault(id_: str, count: int, first: int, last: int, raw: bytes) -> ErrorGroup:
    """Return a stored fault."""
    try:
        found = _sample.decode(raw)
    except (ValueError, RecursionError):
        found = _Sample("garbage", "what was kept of this failure cannot be read", "", "", "", "", msgspec.Raw(b"[]"))
    errors = read_errors(bytes(found.error)) or [ErrorInfo(found.kind, found.message)]
    return ErrorGroup(
        id=id_, kind=found.kind, message=found.message, place=found.place, count=count, first_at=as_datetime(first),
        last_at=as_datetime(last), error=errors[-1], job=found.job, task=found.task, queue=found.queue,
    )  # fmt: skip
