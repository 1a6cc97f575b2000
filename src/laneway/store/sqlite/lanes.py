"""A collector's lane: what becomes of its payloads. The table in `laneway.store.contract` is this module's story.

A lane is one row. Its payloads are on two sides: what gathers, and what runs. A run that is over leaves what gathered; one that
is to be repeated joins both sides. A lane without payloads is gone.

Enters: rows with a side.  Called by: `transitions`, `settle`, `act`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from laneway.job import lane_id, payload_id
from laneway.merge import Arrived
from laneway.outcome import Cancelled, ErrorInfo
from laneway.store.failures import KILLED, add_error
from laneway.store.inspect import PayloadInfo
from laneway.store.sqlite.books import DEAD, READY, RUNNING
from laneway.store.sqlite.gather import add_payloads, digest
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Row, Turn

__all__ = ["ask", "die", "drop_oldest", "go_on", "join_sides", "kill", "replay"]

#: Up to so many payloads of a run join what gathered; a larger run stays where it is, and what gathered joins it.
SMALL = 1000


# -- a run is over -----------------------------------------------------------------------------------------------


def go_on(turn: Turn, row: Row) -> int:
    """A run's payloads are gone, and what gathered begins to wait. Returns the number of payloads that are gone."""
    if row.next_due is None:
        return _remove(turn, row, RUNNING)
    gone = turn.execute(SQL["payloads_drop"], (row.seq, _run_side(row))).rowcount
    turn.execute(SQL["lane_goes_on"], (row.seq,))
    turn.waits(row, RUNNING, row.next_due)
    return gone


def die(turn: Turn, row: Row, error: ErrorInfo, named: Sequence[bytes]) -> None:
    """Of a run the named payloads are dead, or the one that arrived first; the rest begins anew at once, with what gathered."""
    side = _run_side(row)
    found = [turn.execute(SQL["payload_named"], (row.seq, side, digest(body))).fetchone() for body in dict.fromkeys(named)]
    rows = [row_ for row_ in found if row_] or turn.execute(SQL["payloads_first"], (row.seq, side)).fetchall()
    dying = [Arrived(score, arrival, body) for body, score, arrival in rows]
    for payload in dying:
        turn.execute(SQL["payload_drop"], (row.seq, side, payload.score, payload.arrival))
    _bury(turn, row, dying, error, row.attempt + 1)
    if row.next_due is None and not _payloads(turn, row, side, 1):
        _remove(turn, row, RUNNING)
        return
    turn.execute(SQL["lane_waits_again"], (0, turn.now, 0, 1, None, None, join_sides(turn, row), row.seq))
    turn.waits(row, RUNNING, turn.now)


def kill(turn: Turn, row: Row) -> None:
    """A run's payloads are to be dead; what gathered begins to wait."""
    _bury(turn, row, _payloads(turn, row, _run_side(row)), KILLED, row.attempt)
    go_on(turn, row)


# -- by hand -----------------------------------------------------------------------------------------------------


def ask(turn: Turn, row: Row, mark: str) -> None:
    """Cancel, delete or kill: at once what waits or gathers; what runs when its run is over."""
    gathers = row.state < 3 or row.next_due is not None
    # What gathers has neither failed nor waited as long as what runs.
    mine = row if row.state < 3 else msgspec.structs.replace(row, attempt=0, errors=None, enqueued=row.next_since or turn.now)
    if gathers and mark == "kill":
        _bury(turn, mine, _payloads(turn, row, _side(row)), KILLED, mine.attempt)
    elif gathers and mark == "cancel":
        turn.runs.append(turn.run_of(mine, Cancelled.name))
    gone = 0
    if row.state < 3:
        gone = _remove(turn, row, turn.counted(row))
    else:
        turn.execute(SQL["mark"], (mark, row.seq))
        if gathers:
            gone = turn.execute(SQL["payloads_drop"], (row.seq, row.side)).rowcount
            turn.execute(SQL["lane_gather"], (None, None, row.seq))
    if mark == "cancel":
        turn.books.cancelled += gone


def replay(turn: Turn, dead: Row) -> None:
    """A dead payload goes back into its lane, which is due now and begins anew. It counts as arrived when it died."""
    [(body,)] = turn.execute("select body from laneway_job where seq = ?", (dead.seq,))
    turn.execute(SQL["remove"], (dead.seq,))
    queue = turn.queue(dead.queue)
    queue.move(DEAD, None)
    id_ = lane_id(dead.queue, dead.lane or "")
    row = turn.find("lane_find", id_)
    if row is None:
        turn.books.seq += 1
        new = (turn.books.seq, id_, dead.queue, dead.task, dead.lane, turn.now, turn.now, turn.now)
        turn.execute(SQL["lane_push"], new)
        queue.move(None, READY)
    elif row.state == 3:
        turn.execute(SQL["lane_gather"], (turn.now, turn.now if row.next_since is None else row.next_since, row.seq))
    else:
        turn.execute(SQL["lane_move_due"], (0, turn.now, 0, row.seq))
        queue.move(turn.counted(row), READY)
    seq, side = (turn.books.seq, 0) if row is None else (row.seq, _side(row))
    add_payloads(turn, seq, side, [Arrived(dead.score or 0.0, dead.seq, body)])


def drop_oldest(turn: Turn, row: Row) -> PayloadInfo | None:
    """Remove the oldest payload that does not run."""
    found = _payloads(turn, row, _side(row), 2)
    if not found:
        return None
    oldest = found[0]
    turn.execute(SQL["payload_drop"], (row.seq, row.side, oldest.score, oldest.arrival))
    if len(found) == 1 and row.state < 3:
        _remove(turn, row, turn.counted(row))
    elif len(found) == 1:
        turn.execute(SQL["lane_gather"], (None, None, row.seq))
    return PayloadInfo(body=oldest.body, score=oldest.score, running=False)


# -- payloads ----------------------------------------------------------------------------------------------------


def _side(row: Row) -> int:
    """Return the side on which a lane's payloads wait or gather."""
    return row.side or 0


def _run_side(row: Row) -> int:
    """Return the side on which a run's payloads are."""
    return 1 - _side(row)


def _payloads(turn: Turn, row: Row, side: int, most: int = -1) -> list[Arrived]:
    found = turn.execute(SQL["payloads_read"], (row.seq, side, most))
    return [Arrived(score, arrival, body) for body, score, arrival in found]


def join_sides(turn: Turn, row: Row) -> int:
    """Put a run's payloads together with what gathered; return the side they are on."""
    if row.next_due is None:
        return _run_side(row)
    small = turn.execute(SQL["payloads_number"], (row.seq, _run_side(row), SMALL + 1)).fetchone()[0] <= SMALL
    leave, join = (_run_side(row), _side(row)) if small else (_side(row), _run_side(row))
    equal = turn.execute(SQL["payloads_equal"], (join, row.seq, leave)).fetchall()
    turn.executemany(SQL["payload_merge"], equal)
    turn.execute(SQL["payloads_join"], (join, row.seq, leave))
    turn.execute(SQL["payloads_drop"], (row.seq, leave))
    turn.books.merged += len(equal)
    return join


def _bury(turn: Turn, row: Row, payloads: Sequence[Arrived], error: ErrorInfo, attempt: int) -> None:
    """Keep payloads as dead ones. Who calls takes them out of the lane."""
    errors, queue, books = add_error(row.errors, error, turn.now, attempt), turn.queue(row.queue), turn.books
    for score, _, body in payloads:
        books.seq += 1
        id_ = payload_id(row.queue, row.lane or "", body)
        dead = (books.seq, id_, row.queue, row.task, row.lane, turn.now, turn.now, attempt, row.enqueued, errors, score, body)
        if turn.execute(SQL["payload_dies"], dead).fetchall() == [(books.seq,)]:
            queue.move(None, DEAD)
        else:
            books.merged += 1
    books.dead += len(payloads)


def _remove(turn: Turn, row: Row, before: int) -> int:
    """A lane leaves the store, and all its payloads. Returns the number of these."""
    gone = turn.execute(SQL["payloads_drop_all"], (row.seq,)).rowcount
    turn.execute(SQL["remove"], (row.seq,))
    turn.ended(row.queue, None, before)
    return gone
