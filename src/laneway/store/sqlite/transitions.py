"""Transitions: what becomes of a unit when its run is over, when it goes back, or when somebody does something to it.

A unit is a row: a job, or a collector's lane (its payloads are moved by `lanes`). Whatever ends a unit's life goes out through
`Turn.ended`. What comes back keeps its place and its lane.

Enters: rows, as they are now.  Called by: `settle`, `act`, the store (what goes back).
"""

from __future__ import annotations

from laneway.outcome import Cancelled, Dead, ErrorInfo
from laneway.store.failures import KILLED, add_error
from laneway.store.sqlite import lanes
from laneway.store.sqlite.books import DEAD, RUNNING
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Row, Turn

__all__ = ["KILL", "die", "end_as_asked", "hand_back", "leave", "recover", "wait_again"]

#: Somebody wants a job to die.
KILL = Dead(KILLED)


def leave(turn: Turn, row: Row, before: int, outcome: str, started: int = 0, finished: int = 0) -> None:
    """A unit is over: done, cancelled or, if there is no word for it, deleted. Of a lane the run is: what gathered goes on."""
    run = turn.run_of(row, outcome, started, finished) if outcome else None
    gone = 1
    if row.side is None:
        turn.execute(SQL["remove"], (row.seq,))
        turn.ended(row.queue, row.lane if row.holds else None, before, run=run)
    else:
        gone = lanes.go_on(turn, row)
        turn.runs += [run] if run is not None else []
    turn.books.cancelled += gone if outcome == Cancelled.name else 0


def die(turn: Turn, row: Row, before: int, dead: Dead, *, counts: bool = True) -> None:
    """A unit gives up and is kept; its lane goes on, unless that is to halt. Of a collector's lane some payloads do.

    This attempt counts, unless it was none.
    """
    if row.side is not None:
        lanes.die(turn, row, dead.error, dead.payloads)
        return
    attempt, halts = row.attempt + counts, bool(row.holds and dead.halt)
    errors = add_error(row.errors, dead.error, turn.now, attempt)
    turn.execute(SQL["die"], (turn.now, attempt, errors, int(halts), row.seq))
    turn.books.dead += 1
    turn.ended(row.queue, row.lane if row.holds and not halts else None, before, DEAD)


def wait_again(turn: Turn, row: Row, due: int, error: ErrorInfo | None = None) -> None:
    """A run is over, and the unit waits for the next: later, or, with an error, after a failure."""
    attempt, failed = row.attempt + (error is not None), error is not None
    errors = row.errors if error is None else add_error(row.errors, error, turn.now, attempt)
    _wait(turn, row, due, int(failed), attempt, ran=1, expires=None, lost=None, errors=errors)


def hand_back(turn: Turn, row: Row) -> None:
    """A claim was not used: the unit is ready again, as it was."""
    if row.mark is not None:
        end_as_asked(turn, row)
    else:
        _wait(turn, row, row.due, 0, row.attempt, ran=row.ran, expires=row.expires, lost=row.lost, errors=row.errors)


def recover(turn: Turn, row: Row, error: ErrorInfo, lost: str | None) -> None:
    """A run was lost with its worker: the unit is ready again, uncounted.

    Why a claim was lost stays remembered until a run comes to an end, or another claim is lost for another reason.
    """
    if row.mark is not None:
        end_as_asked(turn, row)
    else:
        errors = add_error(row.errors, error, turn.now, row.attempt + 1)
        _wait(turn, row, row.due, 0, row.attempt, ran=1, expires=None, lost=lost or row.lost, errors=errors)


def end_as_asked(turn: Turn, row: Row, started: int = 0, finished: int = 0) -> None:
    """A run is over that was to be ended: what it ran does not come back."""
    if row.mark != "kill":
        leave(turn, row, RUNNING, Cancelled.name if row.mark == "cancel" else "", started, finished)
        return
    if row.side is None:
        die(turn, row, RUNNING, KILL, counts=False)
    else:
        lanes.kill(turn, row)


def _wait(
    turn: Turn, row: Row, due: int, state: int, attempt: int, *, ran: int, expires: int | None, lost: str | None,
    errors: bytes | None,
) -> None:  # fmt: skip
    """A running unit goes back to wait; of a lane with what gathered."""
    if row.side is None:
        turn.execute(SQL["wait_again"], (state, due, attempt, ran, expires, lost, errors, row.seq))
    else:
        side = lanes.join_sides(turn, row)
        turn.execute(SQL["lane_waits_again"], (state, due, attempt, ran, lost, errors, side, row.seq))
    turn.waits(row, RUNNING, due, failed=bool(state))
