"""A job as one value of a hash.

::

    byte  0      flags
          1      rank: priority + 100
          2      rules: more flags, of which there are none yet
          3- 9   sequence number: microseconds of its arrival, or one more than the last
         10-17   enqueued, microseconds
         18-25   place, microseconds
         26-33   due; of a dead job: when it died
         34-35   attempts that counted
         36-     [how long it may wait for its start, 8 bytes] [lane] [unique key] task, body

Most jobs are due when they come, and have no attempts before their first run: these are flagged as fresh. Their record goes on at
byte 18, and place and due are the time of the enqueue. Texts have their length in front, two bytes; the body is the rest.

Waiting jobs are in a zset by their due time, and ties go by place. So a job that is due at its place's time has the entry byte
255, sequence number (7 bytes), id; a job that was postponed, and comes before those, byte 0, place (7), sequence number (7),
id. Parked jobs are sorted by their place, with the first kind of entry. All numbers are big-endian, and sort as bytes.

A job is plain if it is fresh and no rule applies to it: it has neither lane nor key nor expiry. The scripts claim a job that is
plain, or has nothing but a lane, without a further look.

A new rule needs a flag: byte 0 is full, so it is a bit of byte 2, and claims then examine the job. No rule uses that byte yet:
`new_record` in `_record.lua` writes 0. A job that is pushed (`before_body`) begins with flags and rank alone: a third byte moves
what comes after it in `push.lua` and `push_uniform.lua`, and `_uniform` in push.py must compare it. A copy takes of a job what
`laneway.store.transfer.StoredJob` has: the rule needs a field there too.

Enters: `Job`.  Leaves: bytes, and their content. The scripts read and write the same (`_record.lua`).
"""

from __future__ import annotations

import functools
from struct import Struct as Packed
from struct import error as PackedError  # noqa: N812 - it is no constant

from msgspec import Struct

from laneway.core.job import Job
from laneway.errors import GarbageError

__all__ = [
    "AT",
    "EXPIRES",
    "FRESH",
    "HALTS",
    "ID_AT",
    "LANE",
    "LOST",
    "NO_END",
    "PLAIN",
    "POSTPONED_ID_AT",
    "RAN",
    "UNIQUE",
    "UNTIL_END",
    "Record",
    "before_body",
    "id_of_entry",
    "parked_entry",
    "pushed",
    "read",
    "read_payload",
    "read_simple",
    "split_headers",
    "waiting_entry",
    "with_headers",
    "write",
    "write_payload",
]

LANE, EXPIRES, UNIQUE = 1, 2, 4  # it has one
RAN = 8  # it has started: a run was settled, or lost with its worker
UNTIL_END = RAN  # only of a job that is pushed: its key lasts until its end, see `keys`
LOST = 16  # a word for a lost claim is remembered
NO_END = 32  # it never expires
HALTS = 64  # it is dead and keeps its lane
FRESH = 128  # it was due when it came, and nothing has happened to it since
PLAIN = FRESH  # and no rule applies to it

#: Where parts of a record begin. The texts, with what may be in front of them, begin sooner in a fresh one.
AT = {"SEQ": 3, "ENQUEUED": 10, "FRESH_TEXTS": 18, "TEXTS": 36}
#: Where the id begins in an entry of an index, and in that of a postponed job.
ID_AT, POSTPONED_ID_AT = 8, 15

_SEQ = (1 << 56) - 1  # of eight bytes the last seven
_fresh = Packed(">BBQQ")  # rules and sequence number are one number here
_head = Packed(">BBQQQQH")
_short = Packed(">H")
_long = Packed(">Q")
_double = Packed(">d")
_simple = (PLAIN, PLAIN | LANE)
_first = [[bytes([flags, rank]) for rank in range(201)] for flags in range(16)]


class Record(Struct, frozen=True, gc=False):
    """The content of a record."""

    flags: int
    rank: int
    attempt: int
    seq: int
    enqueued: int
    place: int
    due: int
    expires: int | None
    lane: str | None
    unique: str | None
    task: str
    body: bytes
    rules: int = 0


def pushed(job: Job) -> bytes:
    """Return a new job's record, without the store's numbers: flags and rank, then what comes after the numbers."""
    return before_body(job) + job.body


def before_body(job: Job) -> bytes:
    """Return a new job's record up to its body: jobs that differ only in the body have it in common."""
    if job.lane is None and job.unique is None and not job.expires:
        return _first[0][job.priority + 100] + _named(job.task)
    flags = UNTIL_END if job.until_end else 0
    parts: list[bytes] = []
    if job.expires:
        flags |= EXPIRES
        parts.append(_long.pack(job.expires))
    for flag, text in ((LANE, job.lane), (UNIQUE, job.unique)):
        if text is not None:
            flags |= flag
            parts.append(_measured(text))
    return b"".join((_first[flags][job.priority + 100], *parts, _named(job.task)))


def _measured(text: str) -> bytes:
    raw = text.encode(errors="replace")
    return _short.pack(len(raw)) + raw


_named = functools.lru_cache(maxsize=1000)(_measured)  # tasks are few


def read_simple(raw: bytes) -> tuple[int, str | None, str, bytes] | None:
    """Return when a job was enqueued, its lane, task and body, if it is plain or has only a lane besides; else None.

    Most jobs are such: this takes half the time of `read`.
    """
    try:
        flags, rank, rules_and_seq, enqueued = _fresh.unpack_from(raw)
        if flags not in _simple or rules_and_seq > _SEQ:
            return None
        lane, at = _text(raw, 18) if flags & LANE else (None, 18)
        end = at + 2 + ((raw[at] << 8) | raw[at + 1])
        task = raw[at + 2 : end].decode(errors="replace")
    except (IndexError, PackedError) as error:
        raise GarbageError(f"this is not a job's record: {error}") from None
    if end > len(raw) or rank > 200:
        raise GarbageError("this is not a job's record: it ends too early")
    return enqueued, lane, task, raw[end:]


def read(raw: bytes) -> Record:
    """Return the content of a record, or raise GarbageError."""
    try:
        if raw[0] >= FRESH:
            flags, rank, seq, enqueued = _fresh.unpack_from(raw)
            place, due, attempt, at = enqueued, enqueued, 0, 18
        else:
            flags, rank, seq, enqueued, place, due, attempt = _head.unpack_from(raw)
            at = 36
        expires = lane = unique = None
        if flags & 7:
            if flags & EXPIRES:
                expires = _long.unpack_from(raw, at)[0]
                at += 8
            if flags & LANE:
                lane, at = _text(raw, at)
            if flags & UNIQUE:
                unique, at = _text(raw, at)
        end = at + 2 + ((raw[at] << 8) | raw[at + 1])
        task = raw[at + 2 : end].decode(errors="replace")
    except (IndexError, PackedError) as error:
        raise GarbageError(f"this is not a job's record: {error}") from None
    if end > len(raw) or rank > 200:
        raise GarbageError("this is not a job's record: it ends too early")
    return Record(flags, rank, attempt, seq & _SEQ, enqueued, place, due, expires, lane, unique, task, raw[end:], seq >> 56)


def write(record: Record) -> bytes:
    """Return the bytes of a record: what `read` reads."""
    flags = record.flags & (RAN | LOST | NO_END | HALTS)
    fresh = not flags and record.attempt == 0 and record.place == record.due == record.enqueued
    parts: list[bytes] = []
    if record.expires is not None:
        flags |= EXPIRES
        parts.append(_long.pack(record.expires))
    for flag, text in ((LANE, record.lane), (UNIQUE, record.unique)):
        if text is not None:
            flags |= flag
            parts.append(_measured(text))
    rules_and_seq = record.rules << 56 | record.seq
    if fresh:
        head = _fresh.pack(flags | FRESH, record.rank, rules_and_seq, record.enqueued)
    else:
        times = record.enqueued, record.place, record.due
        head = _head.pack(flags, record.rank, rules_and_seq, *times, record.attempt)
    return b"".join((head, *parts, _measured(record.task), record.body))


def write_payload(score: float, lane: str, body: bytes) -> bytes:
    """Return the body of a collector's dead payload, with its score and the id of its lane."""
    return _double.pack(score) + _measured(lane) + body


def read_payload(body: bytes) -> tuple[float, bytes]:
    """Return the score and the body of a collector's dead payload: its record has the id of its lane between them."""
    try:
        length = _short.unpack_from(body, 8)[0]
        return _double.unpack_from(body)[0], body[10 + length :]
    except PackedError:
        return 0.0, body


def parked_entry(record: Record, id_: bytes) -> bytes:
    """Return a parked job's entry in its lane's index."""
    return b"\xff" + record.seq.to_bytes(7) + id_


def waiting_entry(record: Record, id_: bytes) -> bytes:
    """Return a waiting job's entry in its index."""
    if record.place == record.due:
        return parked_entry(record, id_)
    return b"\0" + record.place.to_bytes(7) + record.seq.to_bytes(7) + id_


def id_of_entry(entry: bytes) -> bytes:
    """Return the id in an entry of an index."""
    return entry[ID_AT:] if entry[:1] == b"\xff" else entry[POSTPONED_ID_AT:]


def _text(raw: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + _short.unpack_from(raw, at)[0]
    return raw[at + 2 : end].decode(errors="replace"), end


def with_headers(body: bytes, headers: str) -> bytes:
    """Return a payload as its lane keeps it: JSON has no byte 0, so that ends the body if headers follow."""
    return body + b"\0" + headers.encode() if headers else body


def split_headers(stored: bytes) -> tuple[bytes, str]:
    """Return the body and the headers of a payload in its lane."""
    if b"\0" not in stored:
        return stored, ""
    body, _, headers = stored.partition(b"\0")
    return body, headers.decode(errors="replace")
