"""Settling: the outcomes of runs are written, unit by unit.

A unit that the worker no longer holds is refused and nothing changes for it. A run that a user's transaction has finished is
done, whatever its outcome is. The mark of a running unit (cancel, delete, kill) decides if the run itself was no success. Most
units are done and just leave: those go together, without being read.

Enters: `Settled`s.  Leaves: rows, by way of `transitions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from laneway.core.job import Unit
from laneway.core.outcome import Cancelled, Dead, Done, Outcome, Retrying, Settled, Snoozed
from laneway.store.runs import Run
from laneway.store.sql import lanes, transitions
from laneway.store.sql.port import Turn
from laneway.store.sql.rows import CANCELLED, DONE, RUNNING, Row

__all__ = ["settle"]

#: From this many successes on, settling them together is worth its two extra statements.
FEW = 8


class _Ended(NamedTuple):
    """A unit of a claim, and its outcome."""

    item: Settled
    unit: Unit
    outcome: Outcome

    @property
    def just_leaves(self) -> bool:
        """Whether it is done, and no mark of a transaction that finished it need be read: that has the result to be kept."""
        return type(self.outcome) is Done and not (self.item.finishes and self.item.keep)


def settle(turn: Turn, worker: str, settled: Sequence[Settled]) -> list[str]:
    """Write outcomes; return the ids of units that `worker` does not hold."""
    ended = [_Ended(item, *pair) for item in settled for pair in zip(item.claim.units, item.outcomes, strict=True)]
    done = [end for end in ended if end.just_leaves]
    if kept := [end for end in ended if end.item.keep and type(end.outcome) is Done]:
        _keep(turn, worker, kept, DONE)
    if len(done) >= FEW and _all_done(turn, worker, done):
        ended = [end for end in ended if not end.just_leaves]
    refused = [end.unit.id for end in ended if not _settle(turn, worker, end)]
    turn.total("refused", len(refused))
    return refused


def _all_done(turn: Turn, worker: str, done: list[_Ended]) -> bool:
    """Settle many successes in one statement; if one of them is not held, or does not just leave, change nothing."""
    if not turn.change_all("done", [(end.unit.id, end.item.claim.token, worker) for end in done]):
        return False
    by_queue: dict[str, list[_Ended]] = {}
    for end in done:
        by_queue.setdefault(end.item.claim.queue, []).append(end)
    for queue, ended in by_queue.items():
        _leave(turn, queue, ended)
    return True


def _settle(turn: Turn, worker: str, end: _Ended) -> bool:
    """Write one outcome; return False if the unit is not held."""
    id_, token = end.unit.id, end.item.claim.token
    if end.just_leaves and turn.change("done", id=id_, token=token, worker=worker):
        _leave(turn, end.item.claim.queue, [end])
        return True
    row = turn.find("held", id=id_, token=token, worker=worker)
    if row is not None and row.finish is not None:
        transitions.end_finished(turn, row, row.finish)
    elif row is not None and type(end.outcome) is Done and row.side is None:  # its transaction was rolled back
        turn.change("remove", id=id_)
        _leave(turn, row.queue, [end])
    elif row is not None:
        if end.item.keep and (row.mark or type(end.outcome).name) in ("cancel", Cancelled.name):
            _keep(turn, worker, [end], CANCELLED)
        _write(turn, row, end)
    return row is not None


def _keep(turn: Turn, worker: str, ended: Sequence[_Ended], state: int) -> None:
    """Keep records of jobs that end. Those that the worker does not hold are left out."""
    turn.change("finished_trim", now=turn.now)
    turn.change_many("finish", [_record(turn, worker, end, state) for end in ended])


def _record(turn: Turn, worker: str, end: _Ended, state: int) -> tuple[object, ...]:
    """Return the values of `finish`."""
    item, value = end.item, end.outcome.result if isinstance(end.outcome, Done) else None
    finished, until = item.finished or turn.now, turn.now + item.keep
    return (finished, state, int(state == DONE), item.started, until, value, end.unit.id, item.claim.token, worker)


def _leave(turn: Turn, queue: str, ended: list[_Ended]) -> None:
    """End the lives of successes whose rows are deleted: their claims have all that is needed."""
    held = [end.unit.lane for end in ended if end.unit.lane is not None and not end.unit.payloads]
    turn.all_ended(queue, len(ended), held, RUNNING, runs=[_run(turn, end) for end in ended])
    runs = [(end.unit.number,) for end in ended if end.unit.payloads]  # of a collector: it is the payloads that were processed
    turn.total("processed", len(ended) - len(runs) + (turn.change_many("payloads_drop_all", runs) if runs else 0))


def _write(turn: Turn, row: Row, end: _Ended) -> None:
    """Write any other outcome."""
    item, outcome = end.item, end.outcome
    match outcome:
        case Done():  # of a lane in which payloads gathered meanwhile
            turn.total("processed", lanes.go_on(turn, row))
            turn.runs.append(_run(turn, end))
        case _ if row.mark is not None:
            transitions.end_as_asked(turn, row, item.started, item.finished)
            if row.mark == "kill":
                turn.runs.append(turn.run_of(row, Dead.name, item.started, item.finished))
        case Cancelled():
            transitions.leave(turn, row, RUNNING, Cancelled.name, item.started, item.finished)
        case Snoozed():
            transitions.wait_again(turn, row, turn.now + outcome.after)
        case Retrying():
            transitions.wait_again(turn, row, turn.now + outcome.after, outcome.error)
            turn.total("retried")
            turn.total("failed")
            turn.runs.append(_run(turn, end))
        case Dead():
            transitions.die(turn, row, RUNNING, outcome)
            turn.total("failed")
            turn.runs.append(_run(turn, end))


def _run(turn: Turn, end: _Ended) -> Run:
    """Return the record of a run."""
    item, unit, claim = end.item, end.unit, end.item.claim
    finished = item.finished or turn.now
    return Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, finished, end.outcome.name)
