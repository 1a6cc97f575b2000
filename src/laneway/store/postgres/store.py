"""The PostgreSQL store: the contract's verbs over one schema of a database.

Pushes of jobs, and exchanges in which all runs succeeded, are one function of the database and one round trip. Everything else
is done by the rules that SQL stores share (`laneway.store.sql`), as several statements of one transaction. Lane by lane others
are kept out by locks of the transaction, see `functions/common.sql`.

Enters: the verbs of `laneway.store.contract`.  Leaves: rows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from laneway.core.buckets import Report
from laneway.core.job import Claim, Job
from laneway.core.outcome import FinishMark, Settled
from laneway.errors import StoreError
from laneway.store.contract import Capabilities, ClaimRequest, Exchange, Occurrence, Relayed
from laneway.store.postgres import schema as tables
from laneway.store.postgres.bell import PostgresBell
from laneway.store.postgres.connection import PostgresConnection, PostgresError
from laneway.store.postgres.exchange import PostgresExchanges
from laneway.store.postgres.joining import Inbox, Joining
from laneway.store.postgres.push import NOT_SO, PostgresPush, PostgresSentJobs, is_simple
from laneway.store.postgres.turn import NOTHING_BEFORE, PostgresReading, PostgresTurn
from laneway.store.postgres.wire import AGAIN, FORGOTTEN, PostgresWire
from laneway.store.sql import statistics
from laneway.store.sql.port import Turn
from laneway.store.sql.store import SQLStore
from laneway.store.transfer import Transfer

if TYPE_CHECKING:
    from laneway.transactions.connection import UserConnection
    from laneway.transactions.steps import Steps

__all__ = ["PostgresStore"]

Result = TypeVar("Result")
#: How often the ledger is added up by a store that writes, seconds.
FOLD_EVERY = 1.0
#: How often all claims are read to find their workers, seconds. In between, only those that were held at the last time and later
#: ones are read: beside an open transaction, each claim since its beginning has left a dead entry.
CLAIMS_EVERY = 60.0
#: How long a migration may take, seconds.
MIGRATION_TAKES = 24 * 3600.0
#: How long to wait before something is tried again, seconds.
PAUSE = 0.005


class PostgresStore(SQLStore):
    """Jobs in PostgreSQL."""

    capabilities = Capabilities(pipelined=True, transactions="postgresql")

    def __init__(
        self, url: str, *, schema: str = "laneway", listen: str | None = None, durable: bool = False, prepare: bool = True,
        connections: int = 5, timeout: float = 5.0, enqueue_timeout: float = 2.0, dead_days: float = 30, dead_max: int = 10_000,
        dead_after: float = 15.0,
    ) -> None:  # fmt: skip
        super().__init__(
            enqueue_timeout=min(enqueue_timeout, timeout), dead_days=dead_days, dead_max=dead_max, dead_after=dead_after
        )
        self.schema = schema
        self.listen = listen  #: the address for the connection that listens, if it is another
        self.prepare = prepare
        self.wire = PostgresWire(url, connections=connections, timeout=timeout)
        self.wire.opened = lambda line: tables.ensure(line, str(self), schema)
        self.bell = PostgresBell(self.wire, schema, listen)
        self.wire.on_fork = self.bell.after_fork
        self._push = PostgresPush(self)
        self._exchanges = PostgresExchanges(self, durable=durable)
        self._joining = Joining(self)
        self.inbox = Inbox(self)
        self._folded = 0.0
        self._claims_from = 0  # no claim that is held has an earlier token, as far as known
        self._claims_until = 0.0  # until all claims are read again, monotonic

    def __str__(self) -> str:
        """Return its name for messages."""
        return str(self.wire)

    def turn(self, timeout: float | None = None, *, inbox: bool = True) -> PostgresTurn:
        """Return one atomic step, to be used in a `with`. Rows that it puts back may be before the point where walks begin."""
        return PostgresTurn(self.wire, self.schema, self.ring, self._put_back, timeout, self.inbox if inbox else None)

    def reading(self) -> PostgresReading:
        """Return a view of the database, to be used in a `with`."""
        return PostgresReading(self.wire, self.schema, inbox=self.inbox)

    def repeat(self, verb: Callable[[], Result], timeout: float | None = None) -> Result:
        """Do a verb, and again while another session was in its way, if there is time: then nothing was written."""
        until = time.monotonic() + (self.wire.timeout if timeout is None else timeout)
        while True:
            begun = time.monotonic()
            try:
                return verb()
            except StoreError as error:
                code = _code(error)
                took = time.monotonic() - begun + PAUSE
                if code not in AGAIN | FORGOTTEN or time.monotonic() + took > until:
                    raise
                self.prepare = self.prepare and code not in FORGOTTEN
            time.sleep(PAUSE)

    # -- jobs ------------------------------------------------------------------------------------------------

    def push(self, jobs: Sequence[Job], occurrence: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        """Insert jobs, in order. See the contract."""
        timeout = self.enqueue_timeout if timeout is None else timeout
        until = time.monotonic() + timeout
        if occurrence is None and is_simple(jobs):
            try:
                return self.repeat(lambda: self._push.push(jobs, until - time.monotonic()), timeout)
            except StoreError as error:
                if _code(error) not in NOT_SO:
                    raise
        return self.repeat(lambda: super(PostgresStore, self).push(jobs, occurrence, until - time.monotonic()), timeout)

    def relay(self, source: str, rows: Sequence[tuple[int, Job]], timeout: float | None = None) -> list[Relayed]:
        """Insert jobs of an outbox, in order, each once. See the contract."""
        timeout = self.enqueue_timeout if timeout is None else timeout
        return self.repeat(lambda: super(PostgresStore, self).relay(source, rows, timeout), timeout)

    def push_jobs(self, turn: Turn, jobs: Sequence[Job]) -> list[str | None]:
        """Insert jobs in a turn."""
        assert isinstance(turn, PostgresTurn)  # noqa: S101 - this store made it
        answers, rings = self._push.insert(turn.line, jobs) if jobs else ([], False)
        turn.rings = turn.rings or rings
        return answers

    def push_with(self, connection: UserConnection, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        """Insert jobs in the transaction of a user's connection. See the contract."""
        return self._joining.push(connection, jobs)

    def finish_with(self, connection: UserConnection, claim: Claim, mark: FinishMark) -> Steps[None]:
        """Finish a claim in the transaction of a user's connection. See the contract."""
        return self._joining.finish(connection, claim, mark)

    def open(self) -> None:
        """Make the tables if there are none. See the contract."""
        if not self.wire.is_open:
            with self.wire.lend():
                pass

    def begin_push(self, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
        """Push in two steps: the server works meanwhile. See the contract."""
        hear = self._push.begin(jobs, self.enqueue_timeout) if is_simple(jobs) else None
        return lambda: (hear() if hear is not None else None) or self.push(jobs)

    def send_push(self, jobs: Sequence[Job], timeout: float) -> PostgresSentJobs | None:
        """Begin a push without waiting for a connection. See the contract."""
        return self._push.send(jobs, timeout) if is_simple(jobs) else None

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        """Write outcomes, then claim what may run. See the contract."""
        answer = self.repeat(lambda: self._exchanges.exchange(worker, settled, wants, limit))
        self._fold_now_and_then()
        return answer

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Callable[[], Exchange]:
        """Exchange in two steps, where one function does it: the server works meanwhile. See the contract."""
        hear = self._exchanges.begin(worker, settled, wants, limit)
        if hear is None:
            answer = self.exchange(worker, settled, wants, limit)
            return lambda: answer

        def heard() -> Exchange:
            try:
                answer = hear()
            except StoreError as error:
                if not isinstance(error.__cause__, PostgresError):
                    raise
                return self.exchange(worker, settled, wants, limit)  # nothing was written: `exchange` handles it
            self._fold_now_and_then()
            return answer

        return heard

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        """Return the worker's claims to the store, except those to keep. See the contract."""
        self._exchanges.forget(worker)
        return self.repeat(lambda: super(PostgresStore, self).give_back(worker, keep))

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Give a dead worker's claims back and forget the worker. See the contract."""
        self._exchanges.forget(worker)
        return self.repeat(lambda: super(PostgresStore, self).recover(worker, cause, lost))

    def _workers(self, turn: Turn) -> list[Any]:
        """Return all workers that have sent a beat or hold claims."""
        if time.monotonic() > self._claims_until:
            self._claims_from, self._claims_until = 0, time.monotonic() + CLAIMS_EVERY
        rows = turn.rows("workers_since", since=self._claims_from)
        # Tokens grow with the store's time, see `next_token`. A claim with an earlier one may be committed late.
        late = (turn.now - NOTHING_BEFORE) // 1000 << 22
        self._claims_from = min([late, *(token for *_, token in rows if token is not None)])
        known = {id_ for id_, *_, token in rows if token is None}
        return [row[:4] for row in rows if row[4] is None or row[0] not in known]

    def record(self, report: Report) -> None:
        """Keep a worker's report. See the contract."""

        def verb() -> None:
            with self.turn() as turn:
                turn.fold(wait=True)
                statistics.record(turn, report)

        self.repeat(verb)

    def _fold_now_and_then(self) -> None:
        """Add the ledger up, every second."""
        if time.monotonic() - self._folded > FOLD_EVERY:
            self._folded = time.monotonic()
            with contextlib.suppress(StoreError):  # an error must not lose the claims of this exchange
                with self.turn() as turn:
                    folded = turn.fold()
                if not folded:
                    with self.wire.lend() as line:
                        tables.recount(line, self.schema)

    # -- the rest --------------------------------------------------------------------------------------------

    def _put_back(self, was_due: bool) -> None:
        """Let walks begin at the front; those of all processes, if a job that was due for long was put back there.

        Called after a commit: if it fails, the others do so a while later.
        """
        self._exchanges.put_back()
        if not was_due:
            return
        with contextlib.suppress(StoreError), self.wire.lend() as line:
            line.ask(f"select nextval('{self.schema}.back')", prepare=self.prepare)

    def ring(self) -> None:
        """Wake all sleeping workers. Called after a commit: if it fails, workers find the jobs by polling a moment later."""
        with contextlib.suppress(StoreError), self.wire.lend() as line:
            line.ask(*self._push.ringing(), prepare=self.prepare)

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have become claimable. See the contract."""
        rung = self.bell.wait(timeout)
        if rung:
            self._exchanges.rung()
        return rung

    def wake(self) -> None:
        """End a wait of this store."""
        self.bell.wake()

    def transfer(self) -> Transfer:
        """Return the side that takes part in copies."""
        from laneway.store.sql.transfer import SQLTransfer  # noqa: PLC0415 - few processes copy a store

        return SQLTransfer(self)

    def reserve(self, connections: int) -> None:
        """Set the most connections at a time; the one that listens comes on top."""
        self.wire.pool.reserve(connections)

    def migrate(self) -> None:
        """Bring the tables to this version."""

        def opened(line: PostgresConnection) -> None:
            line.until += MIGRATION_TAKES
            tables.migrate(line, str(self), self.schema)

        self.wire.close()
        self.wire.dial(opened=opened).close()

    def close(self) -> None:
        """Close the connections."""
        self.bell.close()
        self.wire.close()


def _code(error: StoreError) -> str:
    """Return the server's code for an error, if it is the server's."""
    return error.__cause__.code if isinstance(error.__cause__, PostgresError) else ""
