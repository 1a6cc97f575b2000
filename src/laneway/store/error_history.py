"""The errors of a job as bytes: the last ones, oldest first.

A long traceback is packed, since most of a dead job is its tracebacks. Only the stores see that. Another program may have written
the bytes: unreadable ones are reported as such, and do not fail the call.

Enters: `ErrorInfo`.  Leaves: JSON.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from laneway.core.outcome import ErrorInfo

__all__ = ["KILLED", "WORKER_LOST", "add_error", "read_errors", "worker_lost", "write_errors"]

#: How many errors a job remembers.
KEEP = 10
#: A traceback longer than this, in characters, is packed: a tenth of it is left.
LONG = 2_000
#: The longest traceback, in characters; bytes that unpack to more are not ours.
MOST = 1_000_000

#: The error of a job that a user killed.
KILLED = ErrorInfo(kind="killed", message="killed by hand")
#: The kind of error of a job whose worker ended before its claim was settled.
WORKER_LOST = "worker lost"


def worker_lost(cause: str) -> ErrorInfo:
    """Return the error for a lost claim. The job has not failed: no attempt counts."""
    return ErrorInfo(kind=WORKER_LOST, message=cause)


class _StoredError(ErrorInfo, frozen=True, omit_defaults=True):
    packed: bytes = b""  #: the traceback, if it is long


_errors = msgspec.json.Decoder(list[_StoredError])


def add_error(stored: bytes | None, error: ErrorInfo, at: int, attempt: int, worker: str | None = None) -> bytes:
    """Return the stored errors and one more, of a run of `worker` if there was one."""
    traceback, packed = error.traceback, b""
    if len(traceback) > LONG:
        traceback, packed = "", zlib.compress(traceback.encode(errors="replace"))
    now = _StoredError(error.kind, error.message, traceback, at, attempt, worker or "", packed)
    return msgspec.json.encode([*_read(stored), now][-KEEP:])


def write_errors(errors: Iterable[ErrorInfo]) -> bytes | None:
    """Return errors as they are stored."""
    stored = None
    for error in errors:
        stored = add_error(stored, error, error.at, error.attempt, error.worker)
    return stored


def read_errors(stored: bytes | None) -> list[ErrorInfo]:
    """Return the stored errors."""
    return [ErrorInfo(e.kind, e.message, e.traceback or _unpack(e.packed), e.at, e.attempt, e.worker) for e in _read(stored)]


def _read(stored: bytes | None) -> list[_StoredError]:
    try:
        return _errors.decode(stored) if stored else []
    except (ValueError, RecursionError) as trouble:
        return [_StoredError(kind="garbage", message=f"the stored errors cannot be read: {trouble}")]


def _unpack(packed: bytes) -> str:
    try:
        return zlib.decompressobj().decompress(packed, MOST).decode(errors="replace") if packed else ""
    except zlib.error as trouble:
        return f"(the stored traceback cannot be read: {trouble})"
