"""Pushing: jobs arrive, and payloads (see `gather`), each kind in queues of its own.

A job gets its place, and is counted. A job whose id is in the store, or whose unique key another job has, is not
inserted; two unique indexes of the database see to that. The caller gets the id of the existing job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from laneway.core.job import Job, UniformJobs
from laneway.errors import WrongQueue
from laneway.ids import is_made
from laneway.store.sql.gather import gather
from laneway.store.sql.port import Turn
from laneway.store.sql.rows import READY, SCHEDULED

__all__ = ["push", "push_jobs", "settle_kind"]

#: The values of `push`: seq, id, queue, task, lane, rank, place, due, state, enqueued, body.
Pushed = tuple[int, str, str, str, str | None, int, int, int, int, int, bytes]
_queue_and_task = itemgetter(2, 3)
_queue_and_state = itemgetter(2, 8)


def push(turn: Turn, jobs: Sequence[Job], insert: Callable[[Turn, Sequence[Job]], list[str | None]]) -> list[str | None]:
    """Insert jobs and payloads, in order; return for each None, or the id of the existing job that prevented it."""
    kinds = _kinds(jobs)
    if not [job for job in kinds if job.gather is not None]:
        settle_kind(turn, dict.fromkeys([job.queue for job in kinds]), collects=False)
        return insert(turn, jobs)
    payloads, plain = [job for job in jobs if job.gather is not None], [job for job in jobs if job.gather is None]
    of_jobs, of_collectors = dict.fromkeys(job.queue for job in plain), dict.fromkeys(job.queue for job in payloads)
    for queue in of_jobs.keys() & of_collectors:
        raise WrongQueue.of(queue, collects=True)
    settle_kind(turn, of_jobs, collects=False)
    settle_kind(turn, of_collectors, collects=True)
    gather(turn, payloads)
    turn.arrive(Counter((job.queue, job.task) for job in payloads))
    answers = iter(insert(turn, plain))
    return [next(answers) if job.gather is None else None for job in jobs]


def _kinds(jobs: Sequence[Job]) -> Sequence[Job]:
    """Return jobs that have all that these have, but for ids and bodies: of those that are alike, one."""
    # Not isinstance: for a class derived from Sequence that takes longer than all else here.
    return (jobs.first,) if type(jobs) is UniformJobs else jobs


def settle_kind(turn: Turn, names: Iterable[str], *, collects: bool) -> None:
    """Set the kind of queues: each has jobs or lanes of a collector, never both; an empty one may become the other kind."""
    for name in names:
        queue = turn.queue(name)
        if queue.collects is not collects:
            if not turn.is_empty(name):
                raise WrongQueue.of(name, collects=collects)
            turn.set_collects(name, collects)


def push_jobs(turn: Turn, jobs: Sequence[Job]) -> list[str | None]:
    """Insert jobs, in order, as `push` does."""
    first, now = turn.next_seq(len(jobs)), turn.now
    if type(jobs) is UniformJobs:
        _, _, queue, task, lane, rank, place, due, state, _, _ = _row(0, jobs.first, now)
        new = enumerate(zip(jobs.ids, jobs.bodies, strict=True), first)
        rows = [(seq, id_, queue, task, lane, rank, place, due, state, now, body) for seq, (id_, body) in new]
    else:
        rows = [_row(seq, job, now) for seq, job in enumerate(jobs, first)]
    if _insert(turn, jobs, rows) == len(rows):
        _count(turn, jobs, rows)
        _replace(turn, jobs, rows)
        return [None] * len(rows)
    inside = {seq for (seq,) in turn.rows("pushed", before=first - 1)}
    _count(turn, jobs, [row for row in rows if row[0] in inside])
    _replace(turn, jobs, [row for row in rows if row[0] in inside])
    return [None if row[0] in inside else _prevented_by(turn, job, row[0]) for job, row in zip(jobs, rows, strict=True)]


def _row(seq: int, job: Job, now: int) -> Pushed:
    """Return the values of `push`."""
    due = max(job.at, now + job.delay)
    state = READY if due <= now else SCHEDULED
    return (seq, job.id, job.queue, job.task, job.lane, -job.priority, due, due, state, now, job.body)


def _insert(turn: Turn, jobs: Sequence[Job], rows: list[Pushed]) -> int:
    """Write rows; return the number inserted. Most jobs have neither key nor expiry, and do not pay for them."""
    if not [job for job in _kinds(jobs) if job.unique is not None or job.expires]:
        return turn.change_many("push", rows)
    ends = [row[6] + job.expires if job.expires else None for job, row in zip(jobs, rows, strict=True)]
    keyed = [
        (*row, job.unique, job.unique if job.until_end else None, end) for job, row, end in zip(jobs, rows, ends, strict=True)
    ]
    return turn.change_many("push_keyed", keyed)


def _replace(turn: Turn, jobs: Sequence[Job], rows: list[Pushed]) -> None:
    """Forget finished jobs whose ids new ones have."""
    if type(jobs) is not UniformJobs and (chosen := [(row[1],) for row in rows if not is_made(row[1])]):
        turn.change_many("finished_drop", chosen)


def _prevented_by(turn: Turn, job: Job, seq: int) -> str:
    """Return the id of the job that prevented one: of the existing jobs, one with a smaller number."""
    if job.unique is None:
        return job.id
    [(met,)] = turn.rows("prevented_by", id=job.id, seq=seq, unique_key=job.unique)
    return str(met)


def _count(turn: Turn, jobs: Sequence[Job], rows: list[Pushed]) -> None:
    """Count new jobs."""
    turn.total("enqueued", len(rows))
    if rows and (len(rows) == 1 or type(jobs) is UniformJobs):
        row = rows[0]
        turn.arrive({_queue_and_task(row): len(rows)})
        turn.count(row[2], None, row[8], len(rows))
        rows = [row]
    else:
        turn.arrive(Counter(map(_queue_and_task, rows)))
        for (name, state), number in Counter(map(_queue_and_state, rows)).items():
            turn.count(name, None, state, number)
    for _, _, name, _, _, rank, _, due, state, _, _ in rows:
        if state == SCHEDULED:
            turn.wait_for(name, rank, due)
