"""Gathering: a collector's payloads arrive.

A lane that does not exist begins to wait; a waiting lane takes the payloads in; a running lane lets them gather for its next run.
The first payload sets the due time; one with `quiet` postpones it. Most lanes are new, so all are inserted as new ones first; the
database reports which were not.

Enters: `Job`s with a `Gather`.  Leaves: rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from laneway.core.headers import join_headers
from laneway.core.job import Job
from laneway.core.merge import Arrived, merge
from laneway.store.sql.port import Turn
from laneway.store.sql.rows import RUNNING, Row

__all__ = ["ALL", "add_headers", "add_payloads", "digest", "gather"]

_encode = msgspec.json.Encoder().encode
#: No limit on the number of rows.
ALL = 1 << 62


def gather(turn: Turn, jobs: Sequence[Job]) -> None:
    """Let payloads join their lanes, in order."""
    turn.total("enqueued", len(jobs))
    lanes: dict[str, list[tuple[Job, Arrived]]] = {}
    for job in jobs:
        lanes.setdefault(job.id, []).append((job, _arrive(turn, job)))
    new = [_new(turn, [job for job, _ in pushed]) for pushed in lanes.values()]
    inside = turn.push_lanes(new)
    there = _find(turn, [row[1] for row in new if row[0] not in inside])
    joined: list[tuple[int, int, Sequence[Arrived]]] = []
    changes = _Changes([], [])
    for (id_, pushed), row in zip(lanes.items(), new, strict=True):
        seq, _, name, _, _, _, due, state, _, _ = row
        side = 0
        if seq in inside:
            turn.count(name, None, state)
            turn.wait_for(name, 0, due)
        else:
            seq, side = _join(turn, there[id_], [job for job, _ in pushed], changes)
        joined.append((seq, side, [payload for _, payload in pushed]))
    turn.change_many("lane_move_due", changes.moved)
    turn.change_many("lane_gather", changes.gathered)
    add_payloads(turn, joined)


class _Changes(NamedTuple):
    """Changes of lanes, to be written together."""

    moved: list[tuple[int, int, str]]  #: the values of `lane_move_due`
    gathered: list[tuple[int | None, int | None, str]]  #: the values of `lane_gather`


def _find(turn: Turn, ids: Sequence[str]) -> dict[str, Row]:
    """Return lanes that are in the store, by their ids."""
    if len(ids) < 2:
        rows = [turn.find("lane_find", id=id_) for id_ in ids]
    else:
        words = {"ids": turn.dialect.elements.format(":ids")}
        rows = [Row(*row) for row in turn.select("lanes_find", words, ids=_encode(ids).decode())]
    return {row.id: row for row in rows if row is not None}


def add_payloads(turn: Turn, joined: Sequence[tuple[int, int, Sequence[Arrived]]]) -> None:
    """Merge payloads into lanes: a lane, its side, payloads. Most have no equal there, so all are inserted as new ones first."""
    merged = [(lane, side, payload) for lane, side, payloads in joined for payload in merge(payloads)]
    rows = [(lane, side, score, arrival, digest(body), body) for lane, side, (score, arrival, body, _) in merged]
    headers = [payload.headers for _, _, payload in merged]
    if any(headers):
        new = turn.change_many("payload_add_headers", [(*row, text or None) for row, text in zip(rows, headers, strict=True)])
    else:
        new = turn.change_many("payload_add", rows)
    if new < len(rows):
        turn.change_many("payload_merge", rows)
        for (lane, side, _, _, digest_, _), text in zip(rows, headers, strict=True):
            if text:  # it came later than its equal: only a replayed one does not, and has no headers
                [(_, _, _, known)] = turn.rows("payload_named", lane=lane, side=side, digest=digest_)
                add_headers(turn, lane, side, digest_, (known, text))
    turn.total("merged", sum(len(payloads) for _, _, payloads in joined) - new)


def add_headers(turn: Turn, lane: int, side: int, digest_: bytes, headers: tuple[str | None, str | None]) -> None:
    """Give a payload the headers of two equal ones: of the one that arrived earlier, and of the other."""
    earlier, later = headers
    turn.change("payload_headers", headers=join_headers(earlier or "", later or ""), lane=lane, side=side, digest=digest_)


def digest(body: bytes) -> bytes:
    """Return the digest of a payload, by which equal ones are found."""
    return hashlib.blake2b(body, digest_size=16).digest()


def _arrive(turn: Turn, job: Job) -> Arrived:
    """Give a payload its place."""
    score, headers = (job.gather.score, job.gather.headers) if job.gather is not None else (None, "")
    return Arrived(turn.next_score() if score is None else score, turn.next_seq(), job.body, headers)


def _new(turn: Turn, jobs: Sequence[Job]) -> tuple[int, str, str, str, str | None, int, int, int, int, bytes]:
    """Return a lane that begins to wait, as the values of `lane_push`."""
    job, due = jobs[0], _first_due(jobs, turn.now)
    state = turn.waiting(job.queue, due)
    return turn.next_seq(), job.id, job.queue, job.task, job.lane, due, due, state, turn.now, b""


def _join(turn: Turn, row: Row, jobs: Sequence[Job], changes: _Changes) -> tuple[int, int]:
    """Put payloads into an existing lane: return its seq, and the side they gather on."""
    assert row.side is not None  # noqa: S101 - the statement selects it
    if row.state == RUNNING:
        if row.next_due is None or row.next_since is None:
            due, since = _first_due(jobs, turn.now), turn.now
        else:
            due, since = _put_off(row.next_due, row.next_since, jobs, turn.now), row.next_since
        changes.gathered.append((due, since, row.id))
    elif not row.attempt:
        due = _put_off(row.due, row.enqueued, jobs, turn.now)
        if due != row.due:
            changes.moved.append((turn.waiting(row.queue, due), due, row.id))
            turn.waits(row, turn.counted(row), due)
    return row.seq, row.side


def _first_due(jobs: Sequence[Job], now: int) -> int:
    """Return when a lane is due that begins with these: the first one sets it, and each may postpone it."""
    return _put_off(max(jobs[0].at, now + jobs[0].delay), now, jobs, now)


def _put_off(due: int, since: int, jobs: Sequence[Job], now: int) -> int:
    """Return when a lane is due that got more payloads: later with `quiet`, though at most `longest` after its first."""
    for job in jobs:
        if job.gather is not None and job.gather.quiet and not job.delay and not job.at:
            until = now + job.gather.quiet
            due = max(due, min(until, since + job.gather.longest) if job.gather.longest else until)
    return due
