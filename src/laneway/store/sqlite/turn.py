"""A turn: one write transaction and its book-keeping."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any

from msgspec import Struct

from laneway.locks import this_frame
from laneway.store.inspect import Run
from laneway.store.sqlite.books import BLOCKED, DEAD, READY, RETRYING, RUNNING, SCHEDULED, Queue, decode, encode, ripen
from laneway.store.sqlite.database import Database
from laneway.store.sqlite.sql import SQL

__all__ = ["KEEP_RUNS", "Row", "Turn"]

#: How many finished runs stay readable.
KEEP_RUNS = 1000
#: The last of them stand beside the books, which are written anyway; a page has room for so much.
TAIL_BYTES = 2000


class Row(Struct, frozen=True):
    """A job's columns, but for the body."""

    seq: int
    id: str
    queue: str
    task: str
    lane: str | None
    rank: int
    place: int
    due: int
    state: int
    holds: int
    attempt: int
    enqueued: int
    worker: str | None
    token: int | None
    mark: str | None
    lost: str | None
    errors: bytes | None
    unique_key: str | None
    expires: int | None
    ran: int
    side: int | None  #: not None: it is a collector's lane
    next_due: int | None
    next_since: int | None
    score: float | None  #: not None: it is a collector's dead payload


class Turn:
    """`with Turn(database, clock) as turn:` is one atomic step of the store."""

    def __init__(self, database: Database, clock: Callable[[], int], timeout: float | None = None) -> None:
        self._database = database
        self._clock = clock
        self._timeout = timeout

    def __enter__(self) -> Turn:
        self.connection: sqlite3.Connection = self._database.enter(this_frame(1), self._timeout)
        try:
            self._begin()
        except BaseException as error:
            self._database.leave(error)
            raise
        return self

    def _begin(self) -> None:
        self.execute = self.connection.execute
        self.executemany = self.connection.executemany
        books, self._tail = self.execute(SQL["books_read"], ()).fetchone()
        self.books = decode(books)
        self.now = self.books.now = max(self.books.now, self._clock())
        self.queues: dict[str, Queue] = {}
        self._changes = self.connection.total_changes
        self.changed = False  # the books changed, though no row did
        self._busy: set[str] = set()
        for queue in self.books.queues:
            self.queues[queue.name] = queue
            if queue.counts[READY]:
                self._busy.add(queue.name)
            # Most queues have nothing that could have become due.
            if not queue.counts[SCHEDULED] and not queue.counts[RETRYING]:
                queue.ripe = self.now
            elif ripen(self.execute, queue, self.now):
                self.changed = True
        self.runs: list[Run] = []
        self._later: dict[tuple[str, int], int] = {}  # the earliest that is due later, by queue and rank
        self.ring = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            try:
                self._write_back()
            except BaseException as trouble:
                self._database.leave(trouble)
                raise
        self._database.leave(error)

    def _write_back(self) -> None:
        if self.runs:
            self.books.runs += len(self.runs)
            self._tail += encode(self.runs)[1:-1] + b","
            if len(self._tail) > TAIL_BYTES:
                self.execute(SQL["recent_add"], (self.books.runs, self._tail))
                self.execute(SQL["recent_trim"], (self.books.runs - KEEP_RUNS,))
                self._tail = b""
        # A turn that changed nothing writes nothing: an idle worker costs no disk and rings no bell.
        if self.changed or self.connection.total_changes != self._changes:
            self.execute(SQL["books_write"], (encode(self.books), self._tail))
        self.ring = self._should_ring()

    def _should_ring(self) -> bool:
        """Say whether somebody who waits must look again.

        Who waits has found its queues empty, or knows when the next job is due. So it must hear of a queue that is not empty any
        more, and of a job that is due before all others; while a queue is not empty, its workers look by themselves.
        """
        for queue in self.books.queues:
            if queue.counts[READY] and queue.name not in self._busy:
                return True
        return bool(self._later) and any(
            self.execute(SQL["first_due"], key).fetchone()[0] == due for key, due in self._later.items()
        )

    def wait_for(self, queue: str, rank: int, due: int) -> None:
        """Note a job that is due later."""
        if due > self.now:
            self._later[queue, rank] = min(due, self._later.get((queue, rank), due))

    def queue(self, name: str) -> Queue:
        """Return a queue with counts as of now, a new one if it has never had a job."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, ripe=self.now)
            self.books.queues.append(queue)
        return queue

    def find(self, statement: str, *values: Any) -> Row | None:
        """Return the one row of a statement, if there is one."""
        row = self.execute(SQL[statement], values).fetchone()
        return Row(*row) if row else None

    # -- the exit --------------------------------------------------------------------------------------------

    def ended(self, queue: str, held: str | None, before: int, after: int | None = None, run: Run | None = None) -> None:
        """The one exit: a unit's life has ended. It is counted, its run is remembered, and the lane that it held goes on."""
        self.queue(queue).move(before, after)
        if run is not None:
            self.runs.append(run)
        if held is not None:
            self.let_out(queue, held)

    def let_out(self, queue: str, lane: str) -> None:
        """A lane's holder has left: the next by place holds it at once, and is due."""
        if self.execute(SQL["let_out"], (queue, lane)).rowcount:
            self.queue(queue).move(BLOCKED, READY)

    def waits(self, row: Row, before: int, due: int, *, failed: bool = False) -> None:
        """Count a unit that waits until then from now on."""
        queue = self.queue(row.queue)
        queue.move(before, queue.waiting(due, failed))
        self.wait_for(row.queue, row.rank, due)

    def counted(self, row: Row) -> int:
        """Say as what a unit is counted."""
        return {2: BLOCKED, 3: RUNNING, 4: DEAD}.get(row.state) or self.queue(row.queue).waiting(row.due, failed=bool(row.state))

    def run_of(self, row: Row, outcome: str, started: int = 0, finished: int = 0) -> Run:
        """Return what is remembered of a run, or of what never ran."""
        return Run(row.id, row.task, row.queue, row.lane, row.enqueued, started, finished or self.now, outcome)
