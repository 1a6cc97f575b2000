"""The SQLite store: the contract's verbs over one database file, or over memory.

Each verb is one turn: take the write lock, do it, count it, commit. What becomes claimable by it rings the bell.

Enters: the verbs of `laneway.store.contract`.  Leaves: rows.  Called by: the desk, workers, supervisors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from laneway.errors import ConfigError
from laneway.figures import Report, Seen
from laneway.instant import now_micros
from laneway.job import Job
from laneway.life import Observer
from laneway.outcome import ErrorInfo, Settled
from laneway.store.contract import Capabilities, Exchange, Heard, Schedules, Slot, Want, WorkerInfo
from laneway.store.sqlite import schema, statistics, transitions
from laneway.store.sqlite.bell import Bell
from laneway.store.sqlite.books import DEAD, READY, Books, decode
from laneway.store.sqlite.claim import claim, next_due
from laneway.store.sqlite.database import Database
from laneway.store.sqlite.push import push
from laneway.store.sqlite.settle import settle
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Row, Turn
from laneway.store.workers import read_worker

__all__ = ["SQLiteStore"]

DAY = 24 * 3600 * 1_000_000
#: STRICT tables came with it: a number stays a number, whoever writes it.
OLDEST = (3, 37, 0)
#: So many dead jobs at most are forgotten in one turn, so that none is long.
TRIM_AT_ONCE = 1000


class SQLiteStore:
    """Jobs in an SQLite file; in memory without a path."""

    capabilities = Capabilities(pipelined=False, one_step=True)

    def __init__(
        self, path: Path | None = None, *, synchronous: str = "normal", timeout: float = 5.0, enqueue_timeout: float = 2.0,
        dead_days: float = 30, dead_max: int = 10_000, dead_after: float = 15.0, clock: Callable[[], int] = now_micros,
    ) -> None:  # fmt: skip
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigError(f"Laneway needs SQLite 3.37 or newer, and this Python has {sqlite3.sqlite_version}")
        self.dead_days = dead_days
        self.dead_max = dead_max
        self.enqueue_timeout = min(enqueue_timeout, timeout)
        self._clock = clock
        self._highest = 0
        self.database = Database(path, synchronous=synchronous, timeout=timeout)
        self.database.on_open = lambda connection: schema.ensure(connection, str(self.database))
        self.database.is_there = lambda connection: schema.is_there(connection, str(self.database))
        self.database.on_fork = lambda: self.bell.close(forked=True)
        self.bell = Bell(self.database.folder, self.database.changed)
        self._observer = Observer(dead_after)

    def clock(self) -> int:
        """Return the time, which never goes back: not for this process, and by what the database remembers not for others."""
        self._highest = max(self._highest, self._clock())
        return self._highest

    def turn(self, timeout: float | None = None) -> Turn:
        """Return one atomic step, to be used in a `with`; it waits at most so long for its turn."""
        return Turn(self.database, self.clock, timeout)

    # -- jobs ------------------------------------------------------------------------------------------------

    def push(self, jobs: Sequence[Job], slot: Slot | None = None, timeout: float | None = None) -> list[str | None]:
        """Take jobs, in order. See the contract."""
        with self.turn(self.enqueue_timeout if timeout is None else timeout) as turn:
            if slot is not None and not _fires(turn, slot):
                return [""] * len(jobs)
            answers = push(turn, jobs)
        if turn.ring:
            self.bell.ring()
        return answers

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[Want], limit: int) -> Exchange:
        """Write what runs meant, then claim what may run. See the contract."""
        if wants:
            self.bell.listen()
        with self.turn() as turn:
            refused = settle(turn, worker, settled) if settled else []
            claims = claim(turn, worker, wants, limit) if limit > 0 else []
            loads = {queue.name: queue.counts[READY] for queue in turn.books.queues if not queue.paused}
            more = any(loads.get(want.queue) for want in wants)
            due_in = None if more else next_due(turn, wants)
            self._trim_dead(turn)
        if turn.ring:
            self.bell.ring(others_only=True)
        return Exchange(refused, claims, more, due_in, loads)

    def begin_push(self, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
        """The same, at once. See the contract."""
        answers = self.push(jobs)
        return lambda: answers

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[Want], limit: int) -> Callable[[], Exchange]:
        """The same, when its answer is heard: nobody else would do it meanwhile. See the contract."""
        return partial(self.exchange, worker, settled, wants, limit)

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        """Return the worker's claims, except those to keep. See the contract."""
        kept = frozenset(keep)
        with self.turn() as turn:
            back = [row for row in _running(turn, worker) if row.token not in kept]
            for row in back:
                transitions.hand_back(turn, row)
        if turn.ring:
            self.bell.ring()
        return [row.id for row in back]

    def schedules(self) -> Schedules:
        """Say how the schedules stand. See the contract."""
        with self.database.reading() as connection:
            now = self.read_books(connection).now
            rows = connection.execute(SQL["schedules"]).fetchall()
        last = {name: slot for name, slot, _ in rows if slot is not None}
        return Schedules(now, last, {name: by for name, _, by in rows if by is not None})

    def read_books(self, connection: sqlite3.Connection) -> Books:
        """Return the books as of now, outside a turn."""
        books = decode(connection.execute(SQL["books_read"]).fetchone()[0])
        books.now = max(books.now, self.clock())
        return books

    # -- workers ---------------------------------------------------------------------------------------------

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, Heard]:
        """Say that these workers live, and hear what is asked of them. See the contract."""
        heard: dict[str, Heard] = {}
        with self.turn() as turn:
            for worker in workers:
                found = turn.execute(SQL["command_read"], (worker.id,)).fetchone()
                if found and found[0]:
                    turn.execute(SQL["command_write"], (None, worker.id))
                turn.execute(SQL["beat"], (worker.id, turn.now, msgspec.json.encode(worker)))
                marks = dict(turn.execute(SQL["marks"], (worker.id,)).fetchall())
                commands = tuple(found[0].split()) if found and found[0] else ()
                heard[worker.id] = Heard(known=found is not None, marks=marks, commands=commands)
            self._trim_dead(turn)
        return heard

    def dead_workers(self) -> list[str]:
        """Name the workers that are dead, as far as this observer can tell. See the contract."""
        with self.turn() as turn:  # a write lock, so that an observer that cannot write judges nobody
            rows = turn.execute(SQL["workers"]).fetchall()
        return self._observer.dead([(read_worker(id_, info), beat) for id_, beat, _, info in rows])

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Give a dead worker's claims back and forget the worker. See the contract."""
        with self.turn() as turn:
            rows = _running(turn, worker)
            error = ErrorInfo(kind="worker lost", message=cause)
            for row in rows:
                transitions.recover(turn, row, error, lost.get(row.token or 0))
            turn.books.recovered += len(rows)
            turn.execute(SQL["forget"], (worker,))
        if turn.ring:
            self.bell.ring()
        return [row.id for row in rows]

    def _trim_dead(self, turn: Turn) -> None:
        """Forget the oldest dead jobs beyond the limits."""
        dead = sum(queue.counts[DEAD] for queue in turn.books.queues)
        if not dead:
            return
        too_many = dead - self.dead_max
        rows = turn.execute(SQL["dead_oldest"], (max(1, min(too_many, TRIM_AT_ONCE)),)).fetchall()
        for number, (seq, name, died) in enumerate(rows):
            if number < too_many or died < turn.now - self.dead_days * DAY:
                turn.execute(SQL["remove"], (seq,))
                turn.queue(name).move(DEAD, None)

    # -- the rest --------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have become claimable. See the contract."""
        return self.bell.wait(timeout)

    def wake(self) -> None:
        """End a wait of this store."""
        self.bell.wake()

    def note(self, notes: Sequence[tuple[str, int, bytes]]) -> None:
        """Keep what runs tell about themselves."""
        with self.turn() as turn:
            turn.executemany(SQL["note"], [(told, token) for _, token, told in notes])

    def record(self, report: Report) -> None:
        """Keep what a worker reports. See the contract."""
        with self.turn() as turn:
            statistics.record(turn, report)

    def learned(self) -> dict[str, Seen]:
        """Return what workers have learned about tasks. See the contract."""
        with self.database.reading() as connection:
            return statistics.read_learned(connection)

    def reserve(self, connections: int) -> None:
        """There are none: a file has one writer at a time."""

    def migrate(self) -> None:
        """Bring the tables to this version."""
        if self.database.path is None:
            return  # made by this version, a moment ago
        self.database.on_open = lambda connection: schema.migrate(connection, str(self.database))
        try:
            self.database.close()
            with self.database.writing:
                pass
        finally:
            self.database.on_open = lambda connection: schema.ensure(connection, str(self.database))

    def close(self) -> None:
        """Let go of files and sockets."""
        self.bell.close()
        self.database.close()


def _running(turn: Turn, worker: str) -> list[Row]:
    return [Row(*row) for row in turn.execute(SQL["running"], (worker,)).fetchall()]


def _fires(turn: Turn, slot: Slot) -> bool:
    """Advance a schedule to a slot; say whether it is to fire, which it is not if it did before or is paused."""
    return turn.execute(SQL["slot_advance"], (slot.schedule, slot.at)).fetchall() == [(None,)]
