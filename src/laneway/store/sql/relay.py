"""Relaying: jobs of an outbox arrive, each once.

A row of `laneway_source` has the highest number that a queue has taken of an outbox. It is held before anything is looked at, and
written in the same turn as the jobs: a relay that comes a second time, or late, finds its numbers taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laneway.core.job import Job
from laneway.errors import WrongQueue
from laneway.store.contract import Relayed
from laneway.store.sql.port import Turn
from laneway.store.sql.push import push

__all__ = ["relay"]


def relay(
    turn: Turn, source: str, rows: Sequence[tuple[int, Job]], insert: Callable[[Turn, Sequence[Job]], list[str | None]]
) -> list[Relayed]:
    """Insert jobs of an outbox, in order, except those whose numbers were taken. See the contract."""
    taken = {queue: _hold(turn, queue, source) for queue in sorted({job.queue for _, job in rows})}
    answers: list[Relayed] = [""] * len(rows)
    left = [at for at, (number, job) in enumerate(rows) if number > taken[job.queue]]
    while left:
        try:
            found = push(turn, [rows[at][1] for at in left], insert)
        except WrongQueue as error:  # found before anything was written
            wrong = _wrong([at for at in left if rows[at][1].queue == error.queue], rows)
            left = [at for at in left if at not in wrong]
            for at in wrong:
                answers[at] = error
        else:
            for at, answer in zip(left, found, strict=True):
                answers[at] = answer
            break
    highest = {rows[at][1].queue: rows[at][0] for at in left}
    turn.change_many("source_take", [(number, queue, source) for queue, number in highest.items()])
    return answers


def _wrong(found: list[int], rows: Sequence[tuple[int, Job]]) -> set[int]:
    """Return which of a queue's rows it cannot take: those of another kind than the first, or all if they are of one kind."""
    collects = rows[found[0]][1].gather is not None
    return {at for at in found if (rows[at][1].gather is not None) is not collects} or set(found)


def _hold(turn: Turn, queue: str, source: str) -> int:
    [(number,)] = turn.rows("source_hold", queue=queue, source=source)
    return int(number)
