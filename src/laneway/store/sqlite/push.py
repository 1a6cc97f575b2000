"""Pushing: jobs arrive.

Each gets its place, and is counted. One whose id is in the store, or that equals a job that was never claimed, is not taken;
the database itself says so, by its two unique indexes. Who asks hears which job is there in its stead.
"""

from __future__ import annotations

from collections.abc import Sequence

from laneway.job import Job
from laneway.store.sqlite.books import READY, SCHEDULED
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Turn

__all__ = ["push"]

#: seq, id, queue, task, lane, rank, place, due, enqueued, body
Pushed = tuple[int, str, str, str, str | None, int, int, int, int, bytes]


def push(turn: Turn, jobs: Sequence[Job]) -> list[str | None]:
    """Take jobs, in order; say for each None, or the id of the one that is there in its stead."""
    before, now = turn.books.seq, turn.now
    rows: list[Pushed] = [
        (before + n, job.id, job.queue, job.task, job.lane, -job.priority, due, due, now, job.body)
        for n, job in enumerate(jobs, 1)
        for due in (max(job.at, now + job.delay),)
    ]
    turn.books.seq += len(rows)
    if _insert(turn, jobs, rows) == len(rows):
        _count(turn, rows)
        return [None] * len(rows)
    inside = {seq for (seq,) in turn.execute(SQL["pushed"], (before,))}
    _count(turn, [row for row in rows if row[0] in inside])
    return [None if row[0] in inside else _in_stead(turn, job, row[0]) for job, row in zip(jobs, rows, strict=True)]


def _insert(turn: Turn, jobs: Sequence[Job], rows: list[Pushed]) -> int:
    """Write rows; return how many are new. Most jobs have neither key nor end, and do not pay for them."""
    if not [job for job in jobs if job.unique is not None or job.expires]:
        return turn.executemany(SQL["push"], rows).rowcount
    ends = [row[6] + job.expires if job.expires else None for job, row in zip(jobs, rows, strict=True)]
    keyed = [(*row, job.unique, end) for job, row, end in zip(jobs, rows, ends, strict=True)]
    return turn.executemany(SQL["push_keyed"], keyed).rowcount


def _in_stead(turn: Turn, job: Job, seq: int) -> str:
    """Return the id of the job that one met when it came: of those that are there now, one with a smaller number."""
    if job.unique is None:
        return job.id
    met: tuple[str] = turn.execute(SQL["in_stead"], (job.id, seq, job.unique, seq)).fetchone()
    return met[0]


def _count(turn: Turn, rows: list[Pushed]) -> None:
    """Count new jobs."""
    turn.books.enqueued += len(rows)
    for _, _, name, _, _, rank, _, due, _, _ in rows:
        queue = turn.queue(name)
        if due <= queue.ripe:
            queue.move(None, READY)
        else:
            queue.move(None, SCHEDULED)
            turn.wait_for(name, rank, due)
