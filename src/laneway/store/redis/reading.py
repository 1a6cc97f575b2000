"""Reading: the contents of keys as values. Unreadable bytes of other programs are reported as such, and affect nothing else.

Enters: answers of the server.  Leaves: `JobInfo`, `QueueInfo`, `Run`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from laneway.core.instant import SECOND, as_datetime
from laneway.core.job import FINISHED, STATES, State
from laneway.core.outcome import ErrorInfo
from laneway.errors import GarbageError
from laneway.store.error_history import read_errors
from laneway.store.inspection import JobInfo, QueueInfo, read_notes
from laneway.store.redis.record import NO_END, RAN, Record, read, read_payload
from laneway.store.runs import Run, read_runs
from laneway.store.workers import Held

__all__ = [
    "DEAD_PAYLOAD",
    "NO_LANE",
    "errors_of",
    "held_job",
    "instant",
    "job_info",
    "number",
    "queue_info",
    "record_of",
    "runs_of",
]

#: The number of payloads in look.lua's answer for jobs that are not lanes of a collector.
NO_LANE, DEAD_PAYLOAD = -1, -2
FARTHEST = float(1 << 62)


def number(raw: bytes | None) -> int:
    """Return a whole number; 0 if it is none, or larger than the server counts."""
    return int(raw) if raw is not None and len(raw) < 20 and raw.removeprefix(b"-").isdigit() else 0


def instant(raw: bytes | None) -> int:
    """Return a score as microseconds. Infinity becomes the latest time that a store knows, NaN becomes 0."""
    try:
        value = float(raw or 0)
    except ValueError:
        value = 0.0
    return 0 if math.isnan(value) else round(min(max(value, -FARTHEST), FARTHEST))


def queue_info(name: str, answer: Sequence[Any]) -> QueueInfo:
    *counts, paused, by, kind, lag = answer
    since = as_datetime(number(paused)) if paused else None
    return QueueInfo(
        name, bool(paused), dict(zip(STATES, counts, strict=True)), by.decode(errors="replace"), since, collects=kind == b"lanes",
        lag=lag / SECOND,
    )  # fmt: skip


def record_of(raw: bytes) -> Record:
    """Return a record; unreadable bytes are the body of a job of an unknown task."""
    try:
        return read(raw)
    except GarbageError:
        return Record(0, 100, 0, 0, 0, 0, 0, None, None, None, "", raw)


def job_info(queue: str, row: Sequence[Any]) -> JobInfo:
    id_, raw, state, worker, token, mark, errors, notes, holds, keyed, payloads, _ = row
    record, told = record_of(raw), read_notes(notes)
    score, body = None, record.body
    if payloads == DEAD_PAYLOAD:
        score, body = read_payload(record.body)
    if payloads != NO_LANE:
        body = b"[[%b],{}]" % (body if payloads == DEAD_PAYLOAD else b"")  # a payload as a call with it
    over = record.expires is None or record.flags & (RAN | NO_END) or state in (b"running", b"dead")
    return JobInfo(
        id=id_.decode(errors="replace"), task=record.task, queue=queue, lane=record.lane, priority=record.rank - 100,
        state=state_of(state), attempt=record.attempt, enqueued_at=as_datetime(record.enqueued),
        place_at=as_datetime(record.place), due_at=as_datetime(record.due),
        expires_at=None if over else as_datetime(record.place + (record.expires or 0)), unique=bool(keyed), holds=bool(holds),
        worker=worker.decode(errors="replace") or None, token=number(token) or None, mark=mark.decode() or None,
        errors=errors_of(errors), body=body, payloads=payloads if payloads >= 0 else None, score=score,
        progress=told.progress, log=told.log,
    )  # fmt: skip


_STATES: dict[bytes, State] = {state.encode(): state for state in (*STATES, *FINISHED)}


def state_of(raw: bytes) -> State:
    """Return a state; a job that is in no index, or no job, waits to be set aside."""
    return _STATES.get(raw, "ready")


def errors_of(stored: bytes) -> list[ErrorInfo]:
    errors: list[ErrorInfo] = []
    while stored:
        length = int.from_bytes(stored[:4])
        text, stored = stored[4 : 4 + length], stored[4 + length :]
        errors += read_errors(b"[" + text + b"]" if text and len(text) == length else b"\xff")
    return errors


def runs_of(portion: bytes) -> list[Run]:
    """Return finished runs, the oldest first."""
    at = int.from_bytes(portion[:8])
    return [run if run.finished else msgspec.structs.replace(run, finished=at) for run in read_runs(portion[12:])]


def held_job(queue: str, id_: bytes, token: bytes, raw: bytes | None) -> Held:
    record = record_of(raw or b"")
    return id_.decode(errors="replace"), record.task, queue, record.lane, number(token)
