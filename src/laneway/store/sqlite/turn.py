"""A turn: one write transaction and its book-keeping."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any

from msgspec import Struct

from laneway.locks import this_frame
from laneway.outcome import ErrorInfo
from laneway.store.failures import KILLED, add_error
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

    # -- ways out and ways back ------------------------------------------------------------------------------

    def leave(self, row: Row, before: int, outcome: str | None, started: int = 0, finished: int = 0) -> None:
        """The one door: a job leaves the store, and its lane goes on."""
        self.queue(row.queue).move(before, None)
        self.execute(SQL["remove"], (row.seq,))
        if row.holds:
            self.let_out(row.queue, row.lane)
        if outcome is not None:
            self.books.cancelled += outcome == "cancelled"
            self.runs.append(Run(row.id, row.task, row.queue, row.lane, row.enqueued, started, finished or self.now, outcome))

    def die(self, row: Row, before: int, error: ErrorInfo, *, counts: bool = True, halt: bool = False) -> None:
        """A job gives up: it is kept, and its lane goes on, unless that is to halt. This attempt counts, unless it was none."""
        self.queue(row.queue).move(before, DEAD)
        attempt, holds = row.attempt + counts, row.holds and halt
        self.execute(SQL["die"], (self.now, attempt, add_error(row.errors, error, self.now, attempt), int(holds), row.seq))
        self.books.dead += 1
        if row.holds and not holds:
            self.let_out(row.queue, row.lane)

    def kill(self, row: Row, before: int) -> None:
        """A job dies because somebody wants it to."""
        self.die(row, before, KILLED, counts=False)

    def let_out(self, queue: str, lane: str | None) -> None:
        """A lane's holder has left: the next by place holds it at once, and is due."""
        counts = self.queue(queue)
        if lane is not None and self.execute(SQL["let_out"], (queue, lane)).rowcount:
            counts.move(BLOCKED, READY)

    def wait_again(self, row: Row, due: int, error: ErrorInfo | None = None) -> None:
        """A run ended, and the job waits for the next: later, or, with an error, after a failure."""
        attempt, failed = row.attempt + (error is not None), error is not None
        errors = row.errors if error is None else add_error(row.errors, error, self.now, attempt)
        self.execute(SQL["wait_again"], (int(failed), due, attempt, 1, None, None, errors, row.seq))
        self._waits(row, due, failed=failed)

    def hand_back(self, row: Row) -> None:
        """A claim was not used: the job is ready again, as it was."""
        if row.mark is None:
            self.execute(SQL["wait_again"], (0, row.due, row.attempt, row.ran, row.expires, row.lost, row.errors, row.seq))
            self._waits(row, row.due, failed=False)
        else:
            self._end_as_asked(row)

    def recover(self, row: Row, error: ErrorInfo, lost: str | None) -> None:
        """A run was lost with its worker: the job is ready again, uncounted.

        Why a claim was lost stays remembered until a run comes to an end, or another claim is lost for another reason.
        """
        if row.mark is None:
            errors = add_error(row.errors, error, self.now, row.attempt + 1)
            self.execute(SQL["wait_again"], (0, row.due, row.attempt, 1, None, lost or row.lost, errors, row.seq))
            self._waits(row, row.due, failed=False)
        else:
            self._end_as_asked(row)

    def _waits(self, row: Row, due: int, *, failed: bool) -> None:
        """A running job went back to wait; it keeps its place and its lane."""
        queue = self.queue(row.queue)
        queue.move(RUNNING, queue.waiting(due, failed))
        self.wait_for(row.queue, row.rank, due)

    def _end_as_asked(self, row: Row) -> None:
        """A run did not end, and the job is not to come back."""
        if row.mark == "kill":
            self.kill(row, RUNNING)
        else:
            self.leave(row, RUNNING, "cancelled" if row.mark == "cancel" else None)
