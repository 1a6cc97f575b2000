"""The verbs that SQL stores share: each is one turn, or a reading.

`exchange` is each store's own, around `settle` and `claim`: how it counts loads depends on the database.

Enters: verbs of `laneway.store.contract`.  Leaves: rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import msgspec

from laneway.core.buckets import Report, Seen
from laneway.core.job import Claim, Job
from laneway.store.contract import BeatReply, Occurrence, Relayed, Schedules, WorkerInfo
from laneway.store.error_history import worker_lost
from laneway.store.liveness import Observer
from laneway.store.sql import statistics, transitions
from laneway.store.sql.port import Reading, Turn
from laneway.store.sql.push import push, push_jobs
from laneway.store.sql.relay import relay
from laneway.store.sql.rows import DEAD
from laneway.store.workers import read_worker

__all__ = ["SQLStore"]

DAY = 24 * 3600 * 1_000_000
#: The most dead jobs that one transaction removes, so that none is long.
TRIM_AT_ONCE = 1000


class SQLStore(ABC):
    """The verbs over rows, for any SQL database."""

    def __init__(self, *, enqueue_timeout: float, dead_days: float, dead_max: int, dead_after: float) -> None:
        self.enqueue_timeout = enqueue_timeout
        self.dead_days = dead_days
        self.dead_max = dead_max
        self._observer = Observer(dead_after)

    @abstractmethod
    def turn(self, timeout: float | None = None) -> AbstractContextManager[Turn]:
        """Return one atomic step, to be used in a `with`; it waits at most `timeout` seconds for the lock.

        It wakes the workers that can claim something new.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Reading]:
        """Return a view of the database; it needs no lock, and blocks no other client."""

    # -- jobs ------------------------------------------------------------------------------------------------

    def push(self, jobs: Sequence[Job], occurrence: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        """Insert jobs, in order. See the contract."""
        with self.turn(self.enqueue_timeout if timeout is None else timeout) as turn:
            turn.check_open(self)
            if occurrence is not None and not _fires(turn, occurrence):
                return [""] * len(jobs)
            return push(turn, jobs, self.push_jobs)

    def relay(self, source: str, rows: Sequence[tuple[int, Job]], timeout: float | None = None) -> list[Relayed]:
        """Insert jobs of an outbox, in order, each once. See the contract."""
        with self.turn(self.enqueue_timeout if timeout is None else timeout) as turn:
            turn.check_open(self)
            return relay(turn, source, rows, self.push_jobs)

    def taken(self, source: str) -> int:
        """Return the highest number that any queue has taken of an outbox. See the contract."""
        with self.reading() as reading:
            [(number,)] = reading.rows("source_taken", source=source)
        return number or 0

    def push_jobs(self, turn: Turn, jobs: Sequence[Job]) -> list[str | None]:
        """Insert jobs in a turn, in order; return for each None, or the id of the existing job that prevented it."""
        return push_jobs(turn, jobs)

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        """Return the worker's claims to the store, except those to keep. See the contract."""
        kept = frozenset(keep)
        with self.turn() as turn:
            back = turn.take_claims(worker, kept)
            for row in back:
                transitions.hand_back(turn, row)
        return [row.id for row in back if row.finish is None]

    def schedules(self) -> Schedules:
        """Return the state of the schedules. See the contract."""
        with self.reading() as reading:
            rows = reading.rows("schedules")
        last = {name: at for name, at, _, _ in rows if at is not None}
        paused = {name: by for name, _, by, _ in rows if by is not None}
        return Schedules(reading.now, last, paused, {name: entry for name, _, _, entry in rows if entry is not None})

    # -- workers ---------------------------------------------------------------------------------------------

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, BeatReply]:
        """Report that these workers live; return what is asked of them. See the contract."""
        heard: dict[str, BeatReply] = {}
        with self.turn() as turn:
            for worker in workers:
                found = turn.rows("command_read", id=worker.id)
                commands = tuple(found[0][0].split()) if found and found[0][0] else ()
                if commands:
                    turn.change("command_write", command=None, id=worker.id)
                turn.change("beat", id=worker.id, now=turn.now, info=msgspec.json.encode(worker))
                marks = dict(turn.rows("marks", worker=worker.id))
                heard[worker.id] = BeatReply(known=bool(found), marks=marks, commands=commands)
            self.trim_dead(turn)
        return heard

    def dead_workers(self) -> list[str]:
        """Return the ids of the workers that are dead, as far as this observer can tell. See the contract."""
        with self.turn() as turn:  # takes the write lock, so that an observer that cannot write declares no worker dead
            rows = self._workers(turn)
        return self._observer.dead([(read_worker(id_, info), (beat, at)) for id_, beat, at, info in rows])

    def _workers(self, turn: Turn) -> list[Any]:
        """Return all workers that have sent a beat or hold claims, with what the statement `workers` returns."""
        return turn.rows("workers")

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Give a dead worker's claims back and forget the worker. See the contract."""
        with self.turn() as turn:
            rows = turn.take_claims(worker)
            error = worker_lost(cause)
            for row in rows:
                transitions.recover(turn, row, error, lost.get(row.token or 0))
            back = [row.id for row in rows if row.finish is None]
            turn.total("recovered", len(back))
            turn.change("forget", id=worker)
        self._observer.forget(worker)
        return back

    def is_finished(self, claim: Claim) -> bool:
        """Return whether a transaction of a user's has finished this claim. See the contract."""
        with self.reading() as reading:
            return any(finished for _, finished in reading.rows("finish_asked", id=claim.unit.id, token=claim.token))

    def trim_dead(self, turn: Turn) -> None:
        """Remove the oldest dead jobs beyond the limits."""
        dead = turn.dead()
        if not dead or turn.is_closed:
            return
        too_many = dead - self.dead_max
        rows = turn.rows("dead_oldest", most=max(1, min(too_many, TRIM_AT_ONCE)))
        for number, (id_, queue, died) in enumerate(rows):
            if number < too_many or died < turn.now - self.dead_days * DAY:
                turn.change("remove", id=id_)
                turn.ended(queue, None, DEAD)

    # -- notes and reports -----------------------------------------------------------------------------------

    def note(self, notes: Sequence[tuple[str, int, bytes]]) -> None:
        """Keep the notes of runs. See the contract."""
        with self.turn() as turn:
            turn.change_many("note", [(told, token) for _, token, told in notes])

    def record(self, report: Report) -> None:
        """Keep a worker's report. See the contract."""
        with self.turn() as turn:
            statistics.record(turn, report)

    def learned(self) -> dict[str, Seen]:
        """Return what workers have learned about tasks. See the contract."""
        with self.reading() as reading:
            return statistics.read_learned(reading)


def _fires(turn: Turn, occurrence: Occurrence) -> bool:
    """Advance a schedule to an occurrence; return whether it fires: not if it did before, is paused, or has another entry."""
    name, at = occurrence.schedule, occurrence.at
    if occurrence.entry is None:
        return turn.rows("occurrence_fires", name=name, at=at) == [(None,)]
    return turn.rows("kept_fires", name=name, at=at, entry=occurrence.entry) == [(None,)]
