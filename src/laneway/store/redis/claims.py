"""Claims: the answer of the exchange script, as values.

Enters: ids, records and payloads, as the script answers.  Leaves: `Claim`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from laneway.core.codec import open_body
from laneway.core.job import Claim, Payload, Unit
from laneway.errors import GarbageError
from laneway.store.redis.record import LOST, read, read_simple, split_headers
from laneway.store.redis.tokens import tokens_from

__all__ = ["claims_of_jobs", "claims_of_lanes"]

#: A stored payload begins with its arrival and its score, eight bytes each.
_score = struct.Struct(">d").unpack_from


def claims_of_jobs(
    queue: str, ids: Sequence[bytes], records: Sequence[bytes], token: int, words: Mapping[bytes, bytes] = MappingProxyType({})
) -> list[Claim]:
    """Return the claims of jobs; the first has this token. `words`: why the previous claims were lost, by id."""
    return [
        _of_job(queue, id_, record, token, words) for id_, record, token in zip(ids, records, tokens_from(token), strict=False)
    ]


def claims_of_lanes(queue: str, runs: Sequence[list[Any]], token: int) -> list[Claim]:
    """Return the claims of a collector's runs, each with its word and the rows of its lanes. The first has this token."""
    return [_of_lanes(queue, token, word, rows) for token, (word, *rows) in zip(tokens_from(token), runs, strict=False)]


def _of_job(queue: str, id_: bytes, raw: bytes, token: int, words: Mapping[bytes, bytes]) -> Claim:
    """Return a claim; one without a valid job has the reason in `garbage`."""
    name, lost, flaw = id_.decode(errors="replace"), "", ""
    try:
        simple = read_simple(raw)
        if simple is not None:
            enqueued, lane, task, body = simple
            unit = Unit(name, lane, 1, enqueued, enqueued, enqueued, body)
        else:
            record = read(raw)
            task, body, attempt = record.task, record.body, record.attempt + 1
            unit = Unit(name, record.lane, attempt, record.enqueued, record.due, record.place, body)
            lost = words.get(id_, b"").decode(errors="replace") if record.flags & LOST else ""
    except GarbageError as error:
        return _garbage(queue, id_, raw, token, str(error))
    try:
        open_body(body)
    except GarbageError as error:
        flaw = str(error)
    return Claim(token, queue, task, (unit,), lost, flaw)


def _garbage(queue: str, id_: bytes, raw: bytes, token: int, why: str) -> Claim:
    """Return the claim of a record that cannot be read."""
    return Claim(token, queue, "", (Unit(id_.decode(errors="replace"), None, 1, 0, 0, body=raw),), garbage=why)


def _of_lanes(queue: str, token: int, word: bytes, rows: list[Any]) -> Claim:
    """Return the claim of a collector's run: for each lane its id, record, payloads and the number of the first of them.

    Without payloads the record is not a lane's.
    """
    if rows[2] is None:
        return _garbage(queue, rows[0], rows[1], token, "this is not a lane's record")
    records = [read(raw) for raw in rows[1::4]]
    units: list[Unit] = []
    for id_, record, given, arrived in zip(rows[::4], records, rows[2::4], rows[3::4], strict=True):
        payloads = [
            Payload(body, _score(stored, 8)[0]) if b"\0" not in (body := stored[16:]) else _with_headers(stored)
            for stored in given
        ]
        name, attempt, times = record.lane or "", record.attempt + 1, (record.enqueued, record.due, record.place)
        units.append(Unit(id_.decode(), name, attempt, *times, payloads=payloads, first=arrived, number=record.seq))
    return Claim(token, queue, records[0].task, tuple(units), word.decode(errors="replace"))


def _with_headers(stored: bytes) -> Payload:
    body, headers = split_headers(stored[16:])
    return Payload(body, _score(stored, 8)[0], headers)
