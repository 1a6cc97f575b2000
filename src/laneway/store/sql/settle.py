"""Settling: the outcomes of runs are written, unit by unit.

A unit that the worker no longer holds is refused and nothing changes for it. A run that a user's transaction has finished is
done, whatever its outcome is. The mark of a running unit (cancel, delete, kill) decides if the run itself did not succeed. Most
units are done and just leave: those go together, without being read.

Enters: `Settled`s.  Leaves: rows, by way of `transitions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from laneway.core.job import Unit
from laneway.core.outcome import Cancelled, Dead, Done, Outcome, Retrying, Settled, Snoozed
from laneway.store.runs import Run
from laneway.store.sql import lanes, transitions
from laneway.store.sql.port import Turn
from laneway.store.sql.rows import CANCELLED, DONE, RUNNING, Row

__all__ = ["settle"]

#: From this many successes on, settling them together is worth its two extra statements.
FEW = 8


#: A run, a unit of its claim, and the outcome of that.
Ended = tuple[Settled, Unit, Outcome]


def settle(turn: Turn, worker: str, settled: Sequence[Settled]) -> list[str]:
    """Write outcomes; return the ids of units that `worker` does not hold."""
    leaving: list[Ended] = []  # done, and no mark of a transaction that finished it need be read
    kept: list[Ended] = []  # done, and a record is kept
    others: list[Ended] = []
    for item in settled:
        claim, outcomes = item.claim, item.outcomes
        if len(outcomes) == len(claim.units) == 1 and type(outcomes[0]) is Done and not item.keep:  # most are such
            leaving.append((item, claim.units[0], outcomes[0]))
            continue
        for unit, outcome in zip(claim.units, outcomes, strict=True):
            end = (item, unit, outcome)
            if type(outcome) is Done and item.keep:
                kept.append(end)
            # A job that a transaction of the user's may have finished is read: that has the result to be kept.
            just_leaves = type(outcome) is Done and not (item.keep and item.finishes)
            (leaving if just_leaves else others).append(end)
    if kept:
        _keep(turn, worker, kept, DONE)
    if len(leaving) < FEW or not _all_leave(turn, worker, leaving):
        others = [end for end in leaving if not _leaves(turn, worker, end)] + others
    refused = [end[1].id for end in others if not _settle(turn, worker, end)]
    if refused:
        turn.total("refused", len(refused))
    return refused


def _all_leave(turn: Turn, worker: str, done: list[Ended]) -> bool:
    """Settle many successes in one statement; if one of them is not held, or does not just leave, change nothing."""
    if not turn.change_all("done", [(unit.id, item.claim.token, worker) for item, unit, _ in done]):
        return False
    queues = {item.claim.queue for item, _, _ in done}
    for queue in queues:
        _leave(turn, queue, done if len(queues) == 1 else [end for end in done if end[0].claim.queue == queue])
    return True


def _leaves(turn: Turn, worker: str, end: Ended) -> bool:
    """Settle one success; if it is not held, or does not just leave, change nothing."""
    item, unit, _ = end
    if not turn.change_many("done", ((unit.id, item.claim.token, worker),)):
        return False
    _leave(turn, item.claim.queue, (end,))
    return True


def _settle(turn: Turn, worker: str, end: Ended) -> bool:
    """Write any other outcome; return False if the unit is not held."""
    item, unit, outcome = end
    row = turn.find("held", id=unit.id, token=item.claim.token, worker=worker)
    if row is not None and row.finish is not None:
        transitions.end_finished(turn, row, row.finish)
    elif row is not None and type(outcome) is Done and row.side is None:  # its transaction was rolled back
        turn.change("remove", id=row.id)
        _leave(turn, row.queue, (end,))
    elif row is not None:
        if item.keep and (row.mark or type(outcome).name) in ("cancel", Cancelled.name):
            _keep(turn, worker, [end], CANCELLED)
        _write(turn, row, end)
    return row is not None


def _keep(turn: Turn, worker: str, ended: Sequence[Ended], state: int) -> None:
    """Keep records of jobs that end. Those that the worker does not hold are left out."""
    turn.change("finished_trim", now=turn.now)
    turn.change_many("finish", [_record(turn, worker, end, state) for end in ended])


def _record(turn: Turn, worker: str, end: Ended, state: int) -> tuple[object, ...]:
    """Return the values of `finish`."""
    item, unit, outcome = end
    value = outcome.result if isinstance(outcome, Done) else None
    finished, until = item.finished or turn.now, turn.now + item.keep
    return (finished, state, int(state == DONE), item.started, until, value, unit.id, item.claim.token, worker)


def _leave(turn: Turn, queue: str, ended: Sequence[Ended]) -> None:
    """End the lives of successes whose rows are deleted: their claims have all that is needed."""
    held: list[str] = []
    runs: list[Run] = []
    lanes_done: list[tuple[int]] = []  # of a collector
    for end in ended:
        unit = end[1]
        runs.append(_run(turn, end))
        if unit.payloads:
            lanes_done.append((unit.number,))
        elif unit.lane is not None:
            held.append(unit.lane)
    turn.all_ended(queue, len(ended), held, RUNNING, runs=runs)
    if lanes_done:  # it is the payloads that were processed
        turn.total("processed", turn.change_many("payloads_drop_all", lanes_done))
    turn.total("processed", len(ended) - len(lanes_done))


def _write(turn: Turn, row: Row, end: Ended) -> None:
    """Write an outcome of a run that a user marked, that did not succeed, or whose lane goes on."""
    item, _, outcome = end
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


def _run(turn: Turn, end: Ended) -> Run:
    """Return the record of a run."""
    item, unit, outcome = end
    claim = item.claim
    return Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, item.finished or turn.now, outcome.name)
