"""A collector's lane: what becomes of its payloads. The table in `laneway.store.contract` defines it.

A lane is one row. Its payloads are on two sides: those that gather, and those that run. A run that is over leaves the gathered
ones; a run that is to be repeated joins both sides. A lane without payloads is gone.

Enters: rows with a side.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from laneway.core.job import lane_id, payload_id
from laneway.core.merge import Arrived
from laneway.core.outcome import Cancelled, ErrorInfo
from laneway.store.error_history import KILLED, add_error
from laneway.store.inspection import PayloadInfo
from laneway.store.sql.gather import ALL, add_headers, add_payloads, digest
from laneway.store.sql.port import Turn
from laneway.store.sql.rows import DEAD, READY, RUNNING, Row

__all__ = ["ask", "die", "drop_oldest", "go_on", "join_sides", "kill", "replay"]

#: The most payloads of a run that join the gathered ones; a larger run stays where it is, and the gathered ones join it.
SMALL = 1000


# -- a run is over -----------------------------------------------------------------------------------------------


def go_on(turn: Turn, row: Row) -> int:
    """Remove a run's payloads; the gathered ones begin to wait. Returns the number of payloads removed."""
    if row.next_due is None:
        return _remove(turn, row, RUNNING)
    gone = turn.change("payloads_drop", lane=row.seq, side=_run_side(row))
    turn.change("lane_goes_on", state=turn.waiting(row.queue, row.next_due), id=row.id)
    turn.waits(row, RUNNING, row.next_due)
    return gone


def die(turn: Turn, row: Row, error: ErrorInfo, named: Sequence[bytes]) -> None:
    """Let the named payloads of a run die, or the one that arrived first; the rest begins anew at once, with gathered ones."""
    side = _run_side(row)
    digests = map(digest, dict.fromkeys(named))
    found = [payload for it in digests for payload in turn.rows("payload_named", lane=row.seq, side=side, digest=it)]
    rows = found or turn.rows("payloads_first", lane=row.seq, side=side)
    dying = [Arrived(score, arrival, body) for body, score, arrival, _ in rows]
    for payload in dying:
        turn.change("payload_drop", lane=row.seq, side=side, score=payload.score, arrival=payload.arrival)
    _bury(turn, row, dying, error, row.attempt + 1)
    if row.next_due is None and not _payloads(turn, row, side, 1):
        _remove(turn, row, RUNNING)
        return
    side, state = join_sides(turn, row), turn.waiting(row.queue, turn.now)
    turn.change("lane_waits_again", state=state, due=turn.now, attempt=0, ran=1, lost=None, errors=None, side=side, id=row.id)
    turn.waits(row, RUNNING, turn.now)


def kill(turn: Turn, row: Row) -> None:
    """Let a run's payloads die; the gathered ones begin to wait."""
    _bury(turn, row, _payloads(turn, row, _run_side(row)), KILLED, row.attempt)
    go_on(turn, row)


# -- by hand -----------------------------------------------------------------------------------------------------


def ask(turn: Turn, row: Row, mark: str) -> None:
    """Cancel, delete or kill payloads: waiting and gathering ones at once; running ones when their run is over."""
    gathers = row.waits or row.next_due is not None
    # Gathering payloads have neither failed nor waited as long as running ones.
    mine = row if row.waits else msgspec.structs.replace(row, attempt=0, errors=None, enqueued=row.next_since or turn.now)
    if mark == "kill":
        _bury(turn, mine, _payloads(turn, row, _side(row)), KILLED, mine.attempt)
    elif gathers and mark == "cancel":
        turn.runs.append(turn.run_of(mine, Cancelled.name))
    if row.waits:
        gone = _remove(turn, row, turn.counted(row))
    else:
        turn.change("mark", mark=mark, id=row.id)
        gone = turn.change("payloads_drop", lane=row.seq, side=row.side)
        turn.change("lane_gather", due=None, since=None, id=row.id)
    if mark == "cancel":
        turn.total("cancelled", gone)


def replay(turn: Turn, dead: Row) -> None:
    """Put a dead payload back into its lane, which is due now and begins anew. It counts as arrived when it died."""
    [(body,)] = turn.rows("body", id=dead.id)
    turn.change("remove", id=dead.id)
    turn.ended(dead.queue, None, DEAD)
    id_ = lane_id(dead.queue, dead.lane or "")
    seq, side = turn.next_seq(), 0
    if turn.push_lanes([(seq, id_, dead.queue, dead.task, dead.lane, turn.now, turn.now, READY, turn.now, b"")]):
        turn.count(dead.queue, None, READY)
    elif (row := turn.find("lane_find", id=id_)) is not None:
        seq, side = row.seq, _side(row)
        if row.state == RUNNING:
            turn.change("lane_gather", due=turn.now, since=turn.now if row.next_since is None else row.next_since, id=id_)
        else:
            turn.change("lane_move_due", state=READY, due=turn.now, id=id_)
            turn.count(dead.queue, turn.counted(row), READY)
    add_payloads(turn, [(seq, side, [Arrived(dead.score or 0.0, dead.seq, body)])])


def drop_oldest(turn: Turn, row: Row) -> PayloadInfo | None:
    """Remove the oldest payload that does not run."""
    found = _payloads(turn, row, _side(row), 2)
    if not found:
        return None
    oldest = found[0]
    turn.change("payload_drop", lane=row.seq, side=row.side, score=oldest.score, arrival=oldest.arrival)
    if len(found) == 1 and row.waits:
        _remove(turn, row, turn.counted(row))
    elif len(found) == 1:
        turn.change("lane_gather", due=None, since=None, id=row.id)
    return PayloadInfo(body=oldest.body, score=oldest.score, running=False)


# -- payloads ----------------------------------------------------------------------------------------------------


def _side(row: Row) -> int:
    """Return the side on which a lane's payloads wait or gather."""
    return row.side or 0


def _run_side(row: Row) -> int:
    """Return the side on which a run's payloads are."""
    return 1 - _side(row)


def _payloads(turn: Turn, row: Row, side: int, most: int = ALL) -> list[Arrived]:
    found = turn.rows("payloads_read", lane=row.seq, side=side, most=most)
    return [Arrived(score, arrival, body) for body, score, arrival, _ in found]


def join_sides(turn: Turn, row: Row) -> int:
    """Join a run's payloads with the gathered ones; return the side they are on."""
    if row.next_due is None:
        return _run_side(row)
    small = turn.rows("payloads_number", lane=row.seq, side=_run_side(row), most=SMALL + 1)[0][0] <= SMALL
    leave, join = (_run_side(row), _side(row)) if small else (_side(row), _run_side(row))
    equal = turn.rows("payloads_equal", lane=row.seq, side=leave)
    turn.change_many("payload_merge", [one[:6] for one in equal])
    for lane, side, _, arrival, digest_, _, headers, since, known in equal:
        if headers:
            add_headers(turn, lane, side, digest_, (known, headers) if since < arrival else (headers, known))
    turn.change("payloads_join", lane=row.seq, side=leave)
    turn.change("payloads_drop", lane=row.seq, side=leave)
    turn.total("merged", len(equal))
    return join


def _bury(turn: Turn, row: Row, payloads: Sequence[Arrived], error: ErrorInfo, attempt: int) -> None:
    """Keep payloads as dead ones, without their headers. The caller takes them out of the lane."""
    errors = add_error(row.errors, error, turn.now, attempt, row.worker)
    for score, _, body, _ in payloads:
        seq = turn.next_seq()
        kept = turn.rows(
            "payload_dies", seq=seq, id=payload_id(row.queue, row.lane or "", body), queue=row.queue, task=row.task,
            lane=row.lane, now=turn.now, attempt=attempt, enqueued=row.enqueued, errors=errors, score=score, body=body,
        )  # fmt: skip
        if kept == [(seq,)]:
            turn.count(row.queue, None, DEAD)
        else:
            turn.total("merged")
    turn.total("dead", len(payloads))


def _remove(turn: Turn, row: Row, before: int) -> int:
    """Remove a lane and all its payloads from the store. Returns the number of payloads."""
    gone = turn.change("payloads_drop_all", lane=row.seq)
    turn.change("remove", id=row.id)
    turn.ended(row.queue, None, before)
    return gone
