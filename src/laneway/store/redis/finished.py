"""Finished jobs: the records of those whose tasks keep results.

A record is one value of a hash: its state, until when it is kept, when its last run began and ended (8 bytes each); then, each
with its length in front (4 bytes), the worker, the job's own record, its errors and its notes; then the result. Two sorted sets
know when jobs ended, and until when they are kept. All three expire with the last of them; single ones are forgotten when others
come.

Enters: bytes.  Leaves: `JobInfo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packed
from struct import error as PackedError  # noqa: N812 - it is no constant

import msgspec
from msgspec import Struct

from laneway.core.instant import as_datetime
from laneway.core.job import FINISHED
from laneway.store.inspection import JobInfo
from laneway.store.redis.keys import queue_key
from laneway.store.redis.reading import NO_LANE, job_info
from laneway.store.redis.wire import Wire

__all__ = ["FinishedJob", "Parts", "find_finished", "parts_of", "read_finished", "write_finished"]

_head = Packed(">BQQQ")


class FinishedJob(Struct, frozen=True):
    """A finished job and its result."""

    info: JobInfo
    finished: int  #: when it ended, microseconds
    value: bytes | None  #: None: it was cancelled


def find_finished(wire: Wire, wanted: Sequence[tuple[str, bytes]], now: int) -> dict[tuple[str, bytes], FinishedJob]:
    """Return the records of finished jobs, by queue and id, as far as they are kept."""
    by_queue: dict[str, list[bytes]] = {}
    for queue, id_ in wanted:
        by_queue.setdefault(queue, []).append(id_)
    answers = wire.ask_all([("HMGET", queue_key(queue, "FINISHED"), *ids) for queue, ids in by_queue.items()])
    found: dict[tuple[str, bytes], FinishedJob] = {}
    for (queue, ids), answer in zip(by_queue.items(), answers, strict=True):
        for id_, raw in zip(ids, answer, strict=True):
            if raw is not None and (job := read_finished(queue, id_, raw, now)) is not None:
                found[queue, id_] = job
    return found


class Parts(Struct, frozen=True):
    """What a record consists of."""

    state: int  #: its place in FINISHED
    until: int
    started: int
    finished: int
    worker: bytes
    record: bytes  #: the job's own
    errors: bytes
    notes: bytes
    value: bytes


def parts_of(raw: bytes, now: int) -> Parts | None:
    """Return the parts of a record; None if it is not kept any more, or cannot be read."""
    try:
        number, until, started, finished = map(int, _head.unpack_from(raw))
        parts, at = list[bytes](), _head.size
        for _ in range(4):
            size = int.from_bytes(raw[at : at + 4])
            parts.append(raw[at + 4 : at + 4 + size])
            at += 4 + size
    except PackedError:
        return None
    if until <= now or number >= len(FINISHED) or at > len(raw):
        return None
    worker, record, errors, notes = parts
    return Parts(number, until, started, finished, worker, record, errors, notes, raw[at:])


def write_finished(parts: Parts) -> bytes:
    """Return the bytes of a record: what `parts_of` reads."""
    head = _head.pack(parts.state, parts.until, parts.started, parts.finished)
    texts = (parts.worker, parts.record, parts.errors, parts.notes)
    return head + b"".join([len(text).to_bytes(4) + text for text in texts]) + parts.value


def read_finished(queue: str, id_: bytes, raw: bytes, now: int) -> FinishedJob | None:
    """Read a record; None if it is not kept any more, or cannot be read."""
    parts = parts_of(raw, now)
    if parts is None:
        return None
    state = FINISHED[parts.state]
    done = state == "done"
    info = job_info(
        queue, (id_, parts.record, state.encode(), parts.worker, b"", b"", parts.errors, parts.notes, 0, 0, NO_LANE, b"")
    )
    finished_at, started_at = as_datetime(parts.finished), as_datetime(parts.started) if parts.started else None
    info = msgspec.structs.replace(
        info, attempt=info.attempt + done, due_at=finished_at, started_at=started_at, finished_at=finished_at
    )
    return FinishedJob(info, parts.finished, parts.value if done else None)
