"""Transitions: what becomes of a unit when its run is over, when it goes back, or when a user acts on it.

A unit is a row: a job, or a collector's lane (its payloads are moved by `lanes`). Every end of a unit's life goes through
`Turn.all_ended`. A unit that comes back keeps its place and its lane.

Enters: current rows.
"""

from __future__ import annotations

import msgspec

from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, FinishMark
from laneway.store.error_history import KILLED, add_error
from laneway.store.sql import lanes
from laneway.store.sql.port import Turn
from laneway.store.sql.rows import DEAD, DONE, RETRYING, RUNNING, Row

__all__ = ["KILL", "die", "end_as_asked", "end_finished", "hand_back", "leave", "recover", "wait_again"]

#: The outcome of a job that a user killed.
KILL = Dead(KILLED)
_read_finish = msgspec.json.Decoder(FinishMark).decode


def leave(turn: Turn, row: Row, before: int, outcome: str, started: int = 0, finished: int = 0) -> None:
    """End a unit: done, cancelled or, with an empty outcome, deleted. Of a lane only the run ends: gathered payloads go on."""
    run = turn.run_of(row, outcome, started, finished) if outcome else None
    gone = 1
    if row.side is None:
        turn.change("remove", id=row.id)
        turn.ended(row.queue, row.lane if row.holds else None, before, run=run)
    else:
        gone = lanes.go_on(turn, row)
        turn.runs += [run] if run is not None else []
    if outcome == Cancelled.name:
        turn.total("cancelled", gone)


def die(turn: Turn, row: Row, before: int, dead: Dead, *, counts: bool = True) -> None:
    """Let a unit die and keep it; its lane goes on, unless it is to halt. Of a collector's lane some payloads die.

    The attempt counts, unless `counts` is False.
    """
    if row.side is not None:
        lanes.die(turn, row, dead.error, dead.payloads)
        return
    attempt, halts = row.attempt + counts, bool(row.holds and dead.halt)
    errors = add_error(row.errors, dead.error, turn.now, attempt, row.worker)
    turn.change("die", now=turn.now, attempt=attempt, errors=errors, holds=int(halts), id=row.id)
    turn.total("dead")
    turn.ended(row.queue, row.lane if row.holds and not halts else None, before, DEAD)


def wait_again(turn: Turn, row: Row, due: int, error: ErrorInfo | None = None) -> None:
    """Let a unit wait after its run: until later, or, with an error, after a failure."""
    attempt, errors, state = row.attempt, row.errors, turn.waiting(row.queue, due)
    if error is not None:
        attempt, state = attempt + 1, RETRYING
        errors = add_error(errors, error, turn.now, attempt, row.worker)
    _wait(turn, row, due, state, attempt, ran=1, expires=None, lost=None, errors=errors)


def hand_back(turn: Turn, row: Row) -> None:
    """Let a unit wait again, as it did: its claim was not used."""
    if row.finish is not None:
        end_finished(turn, row, row.finish)
    elif row.mark is not None:
        end_as_asked(turn, row)
    else:
        state = turn.waiting(row.queue, row.due)  # it may have become due, and been claimed, while this turn waited for a lock
        _wait(turn, row, row.due, state, row.attempt, ran=row.ran, expires=row.expires, lost=row.lost, errors=row.errors)


def recover(turn: Turn, row: Row, error: ErrorInfo, lost: str | None) -> None:
    """Let a unit wait again whose run was lost with its worker: it runs at least once. No attempt counts.

    The word for a lost claim is remembered until a run comes to an end, or another claim is lost with another word.
    """
    if row.finish is not None:
        end_finished(turn, row, row.finish)
    elif row.mark is not None:
        end_as_asked(turn, row)
    else:
        errors = add_error(row.errors, error, turn.now, row.attempt + 1, row.worker)
        state = turn.waiting(row.queue, row.due)
        _wait(turn, row, row.due, state, row.attempt, ran=1, expires=None, lost=lost or row.lost, errors=errors)


def end_finished(turn: Turn, row: Row, finish: bytes) -> None:
    """End a job whose run a transaction of the user's has finished: it is done, whatever became of the run and of its worker."""
    try:
        mark = _read_finish(finish)
    except ValueError:  # another program wrote it; finished it is
        mark = FinishMark(0, turn.now)
    if mark.keep:
        turn.change("finished_trim", now=turn.now)
        turn.change(
            "finish", finished=mark.finished, state=DONE, counts=1, started=mark.started, until=turn.now + mark.keep,
            value=mark.result, id=row.id, token=row.token, worker=row.worker,
        )  # fmt: skip
    leave(turn, row, RUNNING, Done.name, mark.started, mark.finished)
    turn.total("processed")


def end_as_asked(turn: Turn, row: Row, started: int = 0, finished: int = 0) -> None:
    """End a unit whose run is over and was marked: it does not come back."""
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
    """Put a running unit back to wait; of a lane together with the gathered payloads."""
    if row.side is None:
        turn.change(
            "wait_again", state=state, due=due, attempt=attempt, ran=ran, expires=expires, lost=lost, errors=errors, id=row.id
        )
    else:
        side = lanes.join_sides(turn, row)
        turn.change(
            "lane_waits_again", state=state, due=due, attempt=attempt, ran=ran, lost=lost, errors=errors, side=side, id=row.id
        )
    turn.waits(row, RUNNING, due, failed=state == RETRYING)
