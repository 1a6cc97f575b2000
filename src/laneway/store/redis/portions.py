"""Portions of a copy, as values and as commands: see `laneway.store.transfer`.

Enters: answers of the server, or a `Portion`.  Leaves: values, or commands on keys without their base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct as Packed
from typing import Any

from msgspec.structs import replace

from laneway.core.instant import SECOND
from laneway.core.job import FINISHED, State, lane_id, payload_id
from laneway.core.outcome import ErrorInfo
from laneway.store.error_history import add_error
from laneway.store.redis import record as records
from laneway.store.redis.finished import Parts, parts_of, write_finished
from laneway.store.redis.keys import QUEUE_KEYS, SHARED_KEYS
from laneway.store.redis.reading import DEAD_PAYLOAD, NO_LANE, errors_of, record_of
from laneway.store.redis.record import HALTS, LOST, NO_END, RAN, Record
from laneway.store.redis.statistics import pack_seen
from laneway.store.transfer import Portion, SharedState, StoredJob, StoredPayload, StoredQueue, StoredRecord

__all__ = ["read_job", "read_payload", "read_record", "shared_commands", "take_commands"]

Commands = list[tuple[str | bytes, ...]]

_payload = Packed(">Qd")
_STATES: dict[bytes, State] = {b"retrying": "retrying", b"blocked": "blocked", b"dead": "dead"}

# -- what is stored, as values -----------------------------------------------------------------------------------


def read_job(row: Sequence[Any], lost: bytes) -> StoredJob:
    """Return a job by what `look.lua` answers."""
    id_, raw, state, _, _, _, errors, notes, holds, keyed, payloads, end_key = row
    job = record_of(raw)
    score, body = records.read_payload(job.body) if payloads == DEAD_PAYLOAD else (None, job.body)
    ends = job.expires is not None and not job.flags & (RAN | NO_END)
    return StoredJob(
        id=id_.decode(errors="replace"), task=job.task, lane=job.lane, priority=job.rank - 100, number=job.seq, place=job.place,
        due=job.due, enqueued=job.enqueued, state=_STATES.get(state, "ready"), holds=bool(holds), ran=bool(job.flags & RAN),
        attempt=job.attempt, unique=job.unique if keyed else None, end_key=end_key.decode(errors="replace") or None,
        expires=job.place + (job.expires or 0) if ends else None,
        lost=lost.decode(errors="replace"), errors=errors_of(errors), notes=notes, body=b"" if payloads >= 0 else body,
        collects=payloads not in (NO_LANE, DEAD_PAYLOAD), score=score,
    )  # fmt: skip


def read_record(id_: str, raw: bytes, now: int) -> StoredRecord | None:
    """Return the record of a finished job; None if it is not kept any more."""
    parts = parts_of(raw, now)
    if parts is None:
        return None
    job, state = record_of(parts.record), FINISHED[parts.state]
    return StoredRecord(
        id=id_, task=job.task, lane=job.lane, priority=job.rank - 100, number=job.seq, place=job.place, due=parts.finished,
        enqueued=job.enqueued, state=state, attempt=job.attempt + (state == "done"), errors=errors_of(parts.errors),
        notes=parts.notes, body=job.body, worker=parts.worker.decode(errors="replace"), started=parts.started, until=parts.until,
        value=parts.value if state == "done" else None,
    )  # fmt: skip


def read_payload(lane: str, raw: bytes) -> StoredPayload:
    """Return a payload that waits in a lane."""
    arrival, score = _payload.unpack_from(raw)
    body, headers = records.split_headers(raw[_payload.size :])
    return StoredPayload(lane=lane, score=score, arrival=arrival, body=body, headers=headers)


# -- values, as they are stored ----------------------------------------------------------------------------------


def take_commands(portion: Portion) -> Commands:
    """Return the commands that bring a portion of a queue."""
    commands: Commands = []
    if portion.queue is not None:
        commands += _queue(portion.queue)
    for job in portion.jobs:
        commands += _job(portion.section, job)
    for payload in portion.payloads:
        commands += _payload_commands(portion.section, payload)
    for one in portion.records:
        commands += _record(one)
    return commands


def _queue(queue: StoredQueue) -> Iterator[tuple[str | bytes, ...]]:
    meta = QUEUE_KEYS["META"]
    yield "HSET", meta, "now", str(queue.now), "seq", str(queue.number), "score", repr(queue.score)
    if queue.collects:
        yield "HSET", meta, "kind", "lanes"
    else:
        yield "HDEL", meta, "kind"
    if queue.paused_at is not None:
        yield "HSET", meta, "paused", str(queue.paused_at), "by", queue.paused_by
    for source, number in queue.sources.items():
        yield "HSET", QUEUE_KEYS["SOURCES"], source, str(number)


def _job(queue: str, job: StoredJob) -> Iterator[tuple[str | bytes, ...]]:
    flags = (RAN if job.ran else 0) | (LOST if job.lost else 0)
    if job.state == "dead":
        flags |= NO_END | (HALTS if job.holds or job.score is not None else 0)
    body = job.body
    if job.score is not None:
        body = records.write_payload(job.score, lane_id(queue, job.lane or ""), body)
    expires = None if job.expires is None else max(job.expires - job.place, 0)
    stored, id_ = _packed(job, flags, body, expires, job.unique or job.end_key), job.id.encode(errors="replace")
    yield "HSET", QUEUE_KEYS["JOB"], id_, records.write(stored)
    yield from _index(job, stored, id_)
    if job.holds and job.lane is not None and not job.collects:
        yield "HSET", QUEUE_KEYS["LANES"], job.lane, id_
    if job.unique is not None:
        yield "HSETNX", QUEUE_KEYS["UNIQUE"], job.unique, id_
    if job.end_key is not None:
        yield "HSET", QUEUE_KEYS["END_KEYS"], id_, job.end_key
    for key, beside in (("LOST", job.lost), ("ERRORS", _errors(job.errors)), ("NOTES", job.notes)):
        if beside:
            yield "HSET", QUEUE_KEYS[key], id_, beside


def _index(job: StoredJob, stored: Record, id_: bytes) -> Iterator[tuple[str | bytes, ...]]:
    """Yield the commands that put a job into the index of its state."""
    if job.state == "blocked":
        yield "ZADD", QUEUE_KEYS["PARKED"] + (job.lane or ""), str(job.place), records.parked_entry(stored, id_)
        yield "HINCRBY", QUEUE_KEYS["META"], "blocked", "1"
    elif job.state == "dead":
        yield "ZADD", QUEUE_KEYS["HALTED" if job.holds else "DEAD"], str(job.due), id_
    else:
        yield "ZADD", f"{QUEUE_KEYS['DUE']}{job.priority}", str(job.due), records.waiting_entry(stored, id_)
    if job.state == "retrying":
        yield "ZADD", QUEUE_KEYS["RETRY"], str(job.due), id_


def _packed(job: StoredJob | StoredRecord, flags: int, body: bytes, expires: int | None = None, key: str | None = None) -> Record:
    return Record(
        flags, job.priority + 100, job.attempt, job.number, job.enqueued, job.place, job.due, expires, job.lane, key,
        job.task, body,
    )  # fmt: skip


def _errors(errors: Sequence[ErrorInfo]) -> bytes:
    texts = [add_error(None, error, error.at, error.attempt, error.worker)[1:-1] for error in errors]
    return b"".join([len(text).to_bytes(4) + text for text in texts])


def _payload_commands(queue: str, payload: StoredPayload) -> Iterator[tuple[str | bytes, ...]]:
    digest = bytes.fromhex(payload_id(queue, payload.lane, payload.body)[2:])
    stored = _payload.pack(payload.arrival, payload.score) + records.with_headers(payload.body, payload.headers)
    yield "ZADD", QUEUE_KEYS["WAITS"] + payload.lane, repr(payload.score), payload.arrival.to_bytes(7) + digest
    yield "HSET", QUEUE_KEYS["BODIES"] + payload.lane, digest, stored


def _record(one: StoredRecord) -> Iterator[tuple[str | bytes, ...]]:
    done, id_ = one.state == "done", one.id.encode(errors="replace")
    # The attempt that succeeded is not in the job's own record; see finished.py.
    job = records.write(_packed(replace(one, attempt=one.attempt - done), RAN, one.body))
    parts = Parts(
        FINISHED.index(one.state), one.until, one.started, one.due, one.worker.encode(), job, _errors(one.errors), one.notes,
        one.value or b"",
    )  # fmt: skip
    yield "HSET", QUEUE_KEYS["FINISHED"], id_, write_finished(parts)
    yield "ZADD", QUEUE_KEYS["ENDED"], str(one.due), id_
    yield "ZADD", QUEUE_KEYS["KEPT"], str(one.until), id_


def shared_commands(shared: SharedState) -> Commands:
    """Return the commands that bring what concerns the whole store."""
    commands: Commands = []

    def add(word: str, key: str, *rest: str | bytes) -> None:
        commands.append((word, SHARED_KEYS[key], *rest))

    for one in shared.schedules:
        if one.last is not None:
            add("HSET", "SKIPPED", one.name, str(one.last))
        if one.paused_by is not None:
            add("HSET", "PAUSED", one.name, one.paused_by)
        if one.entry is not None:
            add("HSET", "KEPT", one.name, one.entry)
    for name, size in shared.totals.items():
        add("HINCRBY", "COUNTERS", name, str(size))
    for task, seen in shared.learned.items():
        add("HSET", "LEARNED", task, pack_seen(seen))
    for level, at, figures in shared.figures:
        commands.append(("HSET", f"{SHARED_KEYS['FIGURES']}{level // SECOND}", str(at // level), figures))
    for id_, count, first, last, sample in shared.faults:
        add("HSET", "FAULTS", id_, sample)
        add("HINCRBY", "FAULT_COUNTS", id_, str(count))
        add("HSET", "FAULT_FIRST", id_, str(first))
        add("ZADD", "FAULT_LAST", str(last), id_)
    return commands
