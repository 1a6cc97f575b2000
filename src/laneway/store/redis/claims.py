"""Claims: what the exchange script claimed, as values.

Enters: ids, records and payloads, as the script answers.  Leaves: `Claim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from laneway.codec import open_body
from laneway.errors import GarbageError
from laneway.job import Claim, Job, LaneClaim, Payload
from laneway.store.redis.record import LOST, is_simple, read, read_simple
from laneway.store.redis.tokens import tokens_from

__all__ = ["claims_of_jobs", "claims_of_lanes"]


def claims_of_jobs(
    queue: str, ids: Sequence[bytes], records: Sequence[bytes], token: int, words: Mapping[bytes, bytes] = MappingProxyType({})
) -> list[Claim]:
    """Return the claims of jobs; the first has this token. `words`: why the claims before these were lost, by id."""
    return [
        _of_job(queue, id_, record, token, words) for id_, record, token in zip(ids, records, tokens_from(token), strict=False)
    ]


def claims_of_lanes(queue: str, runs: Sequence[list[Any]], token: int) -> list[Claim]:
    """Return the claims of a collector's runs: of each its word, and what there is to its lanes. The first has this token."""
    return [_of_lanes(queue, token, word, rows) for token, (word, *rows) in zip(tokens_from(token), runs, strict=False)]


def _of_job(queue: str, id_: bytes, raw: bytes, token: int, words: Mapping[bytes, bytes]) -> Claim:
    """Return a claim; if there is no job in it, it says why."""
    try:
        if is_simple(raw):
            rank, enqueued, lane, task, body = read_simple(raw)
            job = Job(id_.decode(errors="replace"), task, queue, body, lane, rank - 100)
            return Claim(job, token, 1, enqueued, enqueued, enqueued, garbage=_flaw(body))
        record = read(raw)
    except GarbageError as error:
        return _garbage(queue, id_, raw, token, str(error))
    job = Job(id_.decode(errors="replace"), record.task, queue, record.body, record.lane, record.rank - 100)
    lost = words.get(id_, b"").decode(errors="replace") if record.flags & LOST else ""
    return Claim(
        job, token, record.attempt + 1, record.enqueued, record.due, record.place, lost, garbage=_flaw(record.body)
    )  # fmt: skip


def _flaw(body: bytes) -> str:
    """Say why a body is no job's; empty: it is one."""
    try:
        open_body(body)
    except GarbageError as error:
        return str(error)
    return ""


def _garbage(queue: str, id_: bytes, raw: bytes, token: int, why: str) -> Claim:
    """Return the claim of a record that cannot be read."""
    return Claim(Job(id_.decode(errors="replace"), "", queue, raw), token, 1, 0, 0, garbage=why)


def _of_lanes(queue: str, token: int, word: bytes, rows: list[Any]) -> Claim:
    """Return the claim of a collector's run: id, record, payloads and the first of them of each of its lanes.

    Without payloads it is no lane's record.
    """
    if rows[2] is None:
        return _garbage(queue, rows[0], rows[1], token, "this is no lane's record")
    records = [read(raw) for raw in rows[1::4]]
    lanes: list[LaneClaim] = []
    for id_, record, flat, arrived in zip(rows[::4], records, rows[2::4], rows[3::4], strict=True):
        payloads = [Payload(body, float(score)) for body, score in zip(flat[::2], flat[1::2], strict=True)]
        name, attempt = record.lane or "", record.attempt + 1
        lanes.append(LaneClaim(id_.decode(), name, payloads, attempt, record.enqueued, record.due, record.seq, arrived))
    first, record = lanes[0], records[0]
    job = Job(first.id, record.task, queue, b"", first.lane)
    attempt = max(lane.attempt for lane in lanes)
    return Claim(job, token, attempt, first.enqueued, first.due, record.place, word.decode(errors="replace"), tuple(lanes))
