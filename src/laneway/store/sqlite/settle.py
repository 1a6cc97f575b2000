"""Settling: what runs meant is written down.

A claim that the worker no longer holds is refused and nothing changes for it. What was asked of a running job (cancel,
delete, kill) decides if the run itself was no success. A collector's run is settled lane by lane, see `settle_lanes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from laneway.outcome import Cancelled, Dead, Done, Each, Retrying, Settled, Snoozed
from laneway.store.inspect import Run
from laneway.store.sqlite.books import RUNNING
from laneway.store.sqlite.settle_lanes import settle_lanes
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Row, Turn

__all__ = ["settle"]

#: From so many on, settling them together is worth its two extra statements.
FEW = 8


def settle(turn: Turn, worker: str, settled: Sequence[Settled]) -> list[str]:
    """Write outcomes; return the ids of jobs and lanes that `worker` does not hold."""
    runs = [item for item in settled if item.claim.lanes]
    jobs = [item for item in settled if not item.claim.lanes] if runs else settled
    refused = [*_settle_jobs(turn, worker, jobs), *(settle_lanes(turn, worker, runs) if runs else ())]
    if refused:
        turn.books.refused += len(refused)
        turn.changed = True
    return refused


def _settle_jobs(turn: Turn, worker: str, settled: Sequence[Settled]) -> list[str]:
    done = [item for item in settled if type(item.outcome) is Done]
    if len(done) < FEW or not _all_done(turn, worker, done):
        return _one_by_one(turn, worker, settled)
    if len(done) == len(settled):
        return []
    return _one_by_one(turn, worker, [item for item in settled if type(item.outcome) is not Done])


def _all_done(turn: Turn, worker: str, done: list[Settled]) -> bool:
    """Settle many successes in one statement; if any of them is not held, change nothing and say False."""
    turn.execute("savepoint done")
    claims = [(item.claim.job.id, item.claim.token, worker) for item in done]
    if turn.executemany(SQL["done"], claims).rowcount != len(claims):
        turn.execute("rollback to done")
        return False
    turn.execute("release done")
    _done(turn, done)
    return True


def _one_by_one(turn: Turn, worker: str, settled: Sequence[Settled]) -> list[str]:
    refused: list[str] = []
    for item in settled:
        claim = item.claim
        if type(item.outcome) is Done and turn.execute(SQL["done"], (claim.job.id, claim.token, worker)).rowcount:
            _done(turn, [item])
            continue
        row = turn.find("held", claim.job.id, claim.token, worker)
        if row is None:
            refused.append(claim.job.id)
        else:
            _settle(turn, item, row)
    return refused


def _done(turn: Turn, done: Sequence[Settled]) -> None:
    """The usual end, without reading rows: they are deleted, and all that is needed is in the claims."""
    turn.books.processed += len(done)
    for item in done:
        claim, outcome = item.claim, item.outcome
        job = claim.job
        turn.queues[job.queue].counts[RUNNING] -= 1
        run = Run(job.id, job.task, job.queue, job.lane, claim.enqueued, item.started, item.finished or turn.now, Done.name)
        turn.runs.append(run)
        if job.lane is not None:
            turn.let_out(job.queue, job.lane)
        if isinstance(outcome, Done) and outcome.result is not None and outcome.keep > 0:
            turn.execute(SQL["result_trim"], (turn.now,))
            turn.execute(SQL["result_add"], (job.id, turn.now + outcome.keep, outcome.result))


def _settle(turn: Turn, item: Settled, row: Row) -> None:
    """Any other end."""
    outcome = item.outcome
    match outcome:
        case Done():
            # It was to be cancelled, and was done all the same.
            turn.execute(SQL["mark"], (None, row.seq))
            turn.execute(SQL["done"], (row.id, row.token, row.worker))
            _done(turn, [item])
        case _ if row.mark == "kill":
            turn.kill(row, RUNNING)
            _remember(turn, item, row, Dead.name)
        case _ if row.mark is not None:
            turn.leave(row, RUNNING, None if row.mark == "delete" else Cancelled.name, item.started, item.finished)
        case Cancelled():
            turn.leave(row, RUNNING, outcome.name, item.started, item.finished)
        case Snoozed():
            turn.wait_again(row, turn.now + outcome.after)
        case Retrying():
            turn.wait_again(row, turn.now + outcome.after, outcome.error)
            turn.books.failed += 1
            turn.books.retried += 1
            _remember(turn, item, row, outcome.name)
        case Dead():
            turn.die(row, RUNNING, outcome.error, halt=outcome.halt)
            turn.books.failed += 1
            _remember(turn, item, row, outcome.name)
        case Each():
            raise TypeError(f"job {row.id} is not a collector's run, and has one outcome")


def _remember(turn: Turn, item: Settled, row: Row, outcome: str) -> None:
    run = Run(row.id, row.task, row.queue, row.lane, row.enqueued, item.started, item.finished or turn.now, outcome)
    turn.runs.append(run)
