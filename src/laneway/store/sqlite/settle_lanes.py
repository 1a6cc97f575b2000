"""Settling a collector's runs, lane by lane.

Most lanes are done, and nothing gathered meanwhile: those leave together, without being read. Whatever else a run meant for a
lane is one of the lines of the table in `laneway.store.contract`; `lanes` has the ways out and back.

Called by: `settle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from laneway.job import LaneClaim
from laneway.outcome import Cancelled, Dead, Done, Each, Outcome, Retrying, Settled, Snoozed
from laneway.store.inspect import Run
from laneway.store.sqlite import lanes
from laneway.store.sqlite.books import RUNNING
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Row, Turn

__all__ = ["settle_lanes"]

#: From so many on, settling them together is worth its two extra statements.
FEW = 8


class _Ended(NamedTuple):
    """A lane of a claim, and what its run meant for it."""

    item: Settled
    lane: LaneClaim
    outcome: Outcome


def settle_lanes(turn: Turn, worker: str, settled: Sequence[Settled]) -> list[str]:
    """Write what runs meant for their lanes; return the ids of those that `worker` does not hold."""
    ended = [_Ended(item, lane, outcome) for item in settled for lane, outcome in _outcomes(item)]
    done = [end for end in ended if type(end.outcome) is Done]
    if len(done) >= FEW and _all_done(turn, worker, done):
        ended = [end for end in ended if type(end.outcome) is not Done]
    return [end.lane.id for end in ended if not _settle(turn, worker, end)]


def _outcomes(item: Settled) -> list[tuple[LaneClaim, Outcome]]:
    """Return a run's lanes, each with its outcome; one outcome alone is meant for all."""
    given = item.outcome
    outcomes = given.outcomes if isinstance(given, Each) else (given,) * len(item.claim.lanes)
    return list(zip(item.claim.lanes, outcomes, strict=True))


def _all_done(turn: Turn, worker: str, done: list[_Ended]) -> bool:
    """Settle many successes in one statement; if any of the lanes is not held, or does not just leave, change nothing."""
    turn.execute("savepoint done")
    held = [(lane.number, lane.id, item.claim.token, worker) for item, lane, _ in done]
    if turn.executemany(SQL["lane_done"], held).rowcount != len(held):
        turn.execute("rollback to done")
        return False
    turn.execute("release done")
    turn.books.processed += turn.executemany(SQL["payloads_drop_all"], [(lane.number,) for _, lane, _ in done]).rowcount
    for item, lane, _ in done:
        job = item.claim.job
        turn.queues[job.queue].counts[RUNNING] -= 1
        finished = item.finished or turn.now
        turn.runs.append(Run(lane.id, job.task, job.queue, lane.lane, lane.enqueued, item.started, finished, Done.name))
    return True


def _settle(turn: Turn, worker: str, end: _Ended) -> bool:
    """Write one outcome; False if the lane is not held."""
    item, lane, _ = end
    if type(end.outcome) is Done and _all_done(turn, worker, [end]):
        return True
    row = turn.find("held", lane.id, item.claim.token, worker)
    if row is None or row.side is None:
        return False
    _write(turn, row, end)
    return True


def _write(turn: Turn, row: Row, end: _Ended) -> None:
    started, finished, outcome = end.item.started, end.item.finished, end.outcome
    match outcome:
        case Done():  # something gathered, or it was to be cancelled and was done all the same
            turn.books.processed += lanes.go_on(turn, row)
            lanes.remember(turn, row, outcome.name, started, finished)
        case _ if row.mark is not None:
            lanes.end_as_asked(turn, row, started, finished)
            if row.mark == "kill":
                lanes.remember(turn, row, Dead.name, started, finished)
        case Cancelled():
            lanes.cancel(turn, row, started, finished)
        case Snoozed():
            lanes.wait_again(turn, row, turn.now + outcome.after)
        case Retrying():
            lanes.wait_again(turn, row, turn.now + outcome.after, outcome.error)
            turn.books.failed += 1
            turn.books.retried += 1
            lanes.remember(turn, row, outcome.name, started, finished)
        case Dead():
            lanes.die(turn, row, outcome.error, outcome.payloads)
            turn.books.failed += 1
            lanes.remember(turn, row, outcome.name, started, finished)
