"""The SQLite store: the contract's verbs over one database file, or over memory.

Each verb is one turn: take the write lock, do it, count it, commit. If something becomes claimable by it, the bell rings.

Enters: the verbs of `laneway.store.contract`.  Leaves: rows.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.clock import now_micros
from laneway.core.job import Claim, Job
from laneway.core.outcome import FinishMark, Settled
from laneway.errors import ConfigError
from laneway.store.contract import Capabilities, ClaimRequest, Exchange
from laneway.store.sql.claim import claim, next_due
from laneway.store.sql.rows import READY
from laneway.store.sql.settle import settle
from laneway.store.sql.store import SQLStore
from laneway.store.sqlite import schema
from laneway.store.sqlite.bell import SQLiteBell
from laneway.store.sqlite.books import IN_BOOKS
from laneway.store.sqlite.database import SQLiteDatabase
from laneway.store.sqlite.turn import SQLiteReading, SQLiteTurn
from laneway.store.transfer import Transfer

if TYPE_CHECKING:
    from laneway.transactions.connection import UserConnection
    from laneway.transactions.steps import Steps

__all__ = ["SQLiteStore"]

#: The first version with STRICT tables: a number stays a number, whatever program writes it.
OLDEST = (3, 37, 0)
#: While a worker keeps receiving claims, or wants none, depths of queues with rows of their own up to this old are good enough,
#: seconds.
LATELY = 0.25


class SQLiteStore(SQLStore):
    """Jobs in an SQLite file; in memory without a path."""

    capabilities = Capabilities(pipelined=False, transactions="sqlite")
    in_books = IN_BOOKS  #: the most queues in the books

    def __init__(
        self, path: Path | None = None, *, synchronous: str = "normal", timeout: float = 5.0, enqueue_timeout: float = 2.0,
        dead_days: float = 30, dead_max: int = 10_000, dead_after: float = 15.0, clock: Callable[[], int] = now_micros,
    ) -> None:  # fmt: skip
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigError(f"Laneway needs SQLite 3.37 or newer, and this Python has {sqlite3.sqlite_version}")
        super().__init__(
            enqueue_timeout=min(enqueue_timeout, timeout), dead_days=dead_days, dead_max=dead_max, dead_after=dead_after
        )
        self._clock = clock
        self._highest = 0
        self._loads: dict[str, int] = {}  # the last known depths of all queues
        self._loads_until = 0.0  # and until when they are good enough
        self.database = SQLiteDatabase(path, synchronous=synchronous, timeout=timeout)
        self.database.on_open = lambda connection: schema.ensure(connection, str(self.database.file))
        self.database.is_there = lambda connection: schema.is_there(connection, str(self.database.file))
        self.database.on_fork = lambda: self.bell.close(forked=True)
        self.bell = SQLiteBell(self.database.file.folder, self.database.changed)

    def __str__(self) -> str:
        """Return its name for messages."""
        return str(self.database.file)

    def clock(self) -> int:
        """Return the time, which never goes back: neither in this process nor, by the database's record, in others."""
        self._highest = max(self._highest, self._clock())
        return self._highest

    def turn(self, timeout: float | None = None) -> SQLiteTurn:
        """Return one atomic step, to be used in a `with`; it waits at most `timeout` seconds for the lock."""
        return SQLiteTurn(self.database, self.clock, self.bell.ring, timeout, in_books=self.in_books)

    def reading(self) -> SQLiteReading:
        """Return a view through the reading connection, to be used in a `with`."""
        return SQLiteReading(self.database, self.clock)

    # -- jobs ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the tables if there are none. See the contract."""
        if not self.database.is_open:
            from laneway.store.sqlite.joining import open_for  # noqa: PLC0415 - few programs need it

            open_for(self)

    def push_with(self, connection: UserConnection, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        """Insert jobs in the transaction of a user's connection. See the contract."""
        from laneway.store.sqlite.joining import push_with  # noqa: PLC0415 - few programs need it

        return push_with(self, connection, jobs)

    def finish_with(self, connection: UserConnection, claim: Claim, mark: FinishMark) -> Steps[None]:
        """Finish a claim in the transaction of a user's connection. See the contract."""
        from laneway.store.sqlite.joining import finish_with  # noqa: PLC0415 - few programs need it

        return finish_with(self, connection, claim, mark)

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        """Write outcomes, then claim what may run. See the contract."""
        if wants:
            self.bell.listen()
        with SQLiteTurn(self.database, self.clock, self._ring_others, in_books=self.in_books) as turn:
            if limit > 0 and not settled:
                turn.check_open(self)
            refused = settle(turn, worker, settled) if settled else []
            if turn.is_closed:  # by a copy
                claims, loads, more = list[Claim](), dict[str, int](), limit > 0
            else:
                claims = claim(turn, worker, wants, limit) if limit > 0 else []
                loads, more = self._look(turn, wants, lately=bool(claims) or not limit)
            due_in = None if more else next_due(turn, wants)
            self.trim_dead(turn)
        return Exchange(refused, claims, more, due_in, loads)

    def _look(self, turn: SQLiteTurn, wants: Sequence[ClaimRequest], *, lately: bool) -> tuple[dict[str, int], bool]:
        """Return the depths of all queues, and whether a wanted queue has ready jobs.

        For queues with rows of their own the depths may be a moment old, if `lately` is True. The second value is exact.
        """
        has_rows = turn.has_rows
        if has_rows and not (lately and time.monotonic() < self._loads_until):
            self._loads_until, self._loads = time.monotonic() + LATELY, {}
            turn.queues()
        loads = dict(self._loads)
        for queue in turn.known():
            if queue.paused:
                loads.pop(queue.name, None)
            else:
                loads[queue.name] = queue.counts[READY]
        if has_rows:
            self._loads = loads
        for want in wants:
            if loads.get(want.queue):
                wanted = turn.find_queue(want.queue)
                if wanted is not None and wanted.counts[READY] and not wanted.paused:
                    return loads, True
        if has_rows and lately and wants:
            return self._look(turn, wants, lately=False)
        return loads, False

    # -- the rest --------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """Wake all sleeping workers."""
        self.bell.ring()

    def _ring_others(self) -> None:
        self.bell.ring(others_only=True)

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have become claimable. See the contract."""
        return self.bell.wait(timeout)

    def wake(self) -> None:
        """End a wait of this store."""
        self.bell.wake()

    def transfer(self) -> Transfer:
        """Return the side that takes part in copies."""
        from laneway.store.sql.transfer import SQLTransfer  # noqa: PLC0415 - few processes copy a store

        return SQLTransfer(self)

    def reserve(self, connections: int) -> None:
        """Do nothing: a file has one writer at a time."""

    def migrate(self) -> None:
        """Bring the tables to this version."""
        if self.database.path is None:
            return  # made by this version, a moment ago
        self.database.on_open = lambda connection: schema.migrate(connection, str(self.database.file))
        try:
            self.database.close()
            with self.database.writing:
                pass
        finally:
            self.database.on_open = lambda connection: schema.ensure(connection, str(self.database.file))

    def close(self) -> None:
        """Close files and sockets."""
        self.bell.close()
        self.database.close()
