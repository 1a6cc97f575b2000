"""A turn: one write transaction and its book-keeping. And a reading, which needs no lock.

Enters: statements by name.  Leaves: rows.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from laneway.core.buckets import Key
from laneway.locks import this_frame
from laneway.store.runs import Run
from laneway.store.sql import statistics
from laneway.store.sql.port import CopyTurn, Queue, Reading, count_newly_due
from laneway.store.sql.queries import KEEP_RUNS
from laneway.store.sql.rows import BLOCKED, DEAD, READY, RETRYING, RUNNING, SCHEDULED, Row
from laneway.store.sqlite.books import IN_BOOKS, Books, decode, decode_queue, encode
from laneway.store.sqlite.database import SQLiteDatabase
from laneway.store.sqlite.statements import DIALECT, IN_ORDER, SQL
from laneway.store.statistics import TEN, TOTALS, begin_of
from laneway.store.transfer import Move

__all__ = ["SQLiteReading", "SQLiteTurn"]

#: The last runs are stored beside the books, which are written anyway; a page has room for this much.
TAIL_BYTES = 2000
#: The most queues and tasks whose arrivals are counted in the books.
MOST_ARRIVED = 16

#: The statements of each turn, as texts.
_BOOKS_READ, _BOOKS_WRITE = SQL["books_read"], IN_ORDER[SQL["books_write"]].text


class SQLiteReading(Reading):
    """`with SQLiteReading(database, clock) as reading:` is a view of the database at one moment.

    The lock belongs to the frame of that `with`. So no generator may be in between: its frame can be cleared while it waits.
    """

    dialect = DIALECT
    connection: sqlite3.Connection
    execute: Callable[..., sqlite3.Cursor]  #: of one cursor for all statements: each answer is read before the next one
    books: Books

    def __init__(self, database: SQLiteDatabase, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def __enter__(self) -> Self:
        self._held = self._database.reading(this_frame(1))
        self.connection = self._held.__enter__()
        try:
            self.execute = self.connection.cursor().execute
            [(books, self._tail)] = self.rows("books_read")
            self.books = decode(books)
            self.now = self.books.now = max(self.books.now, self._clock())
        except BaseException as error:
            self._held.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._held.__exit__(kind, error, trace)

    @property
    def move(self) -> Move | None:
        """Return the store's part in a copy."""
        return self.books.move

    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a statement, by its name."""
        found = IN_ORDER[SQL[statement]]
        return self.execute(found.text, found.pick(values)).fetchall()

    def text(self, statement: str, **words: str) -> str:
        """Return the text of a statement, by its name, with words put into its braces."""
        return SQL[statement].format(**words)

    def select(self, statement: str, words: dict[str, str], **values: Any) -> list[Any]:
        """Return the rows of a statement, by its name, with words put into its braces."""
        return self.execute(self.text(statement, **words), values).fetchall()

    def queues(self) -> Collection[Queue]:
        """Return all queues, counted as of now."""
        queues = [*self.books.queues, *(decode_queue(counted) for (counted,) in self.rows("queues_read"))]
        for queue in queues:
            count_newly_due(self, queue)
        return queues

    def totals(self) -> dict[str, int]:
        """Return the counters since the store was created."""
        return {name: getattr(self.books, name) for name in TOTALS}

    def last_runs(self) -> bytes:
        """Return the most recent runs."""
        return bytes(self._tail)

    def arrivals(self) -> list[tuple[int, str, str, int]]:
        """Return arrivals that are in no table yet."""
        books = self.books
        return [(books.arrived_at, queue, task, n) for queue, tasks in books.arrived.items() for task, n in tasks.items()]


class SQLiteTurn(SQLiteReading, CopyTurn):
    """`with SQLiteTurn(database, clock) as turn:` is one atomic step of the store."""

    def __init__(
        self, database: SQLiteDatabase, clock: Callable[[], int], ring: Callable[[], object], timeout: float | None = None,
        *, in_books: int = IN_BOOKS,
    ) -> None:  # fmt: skip
        self._database, self._clock = database, clock
        self._ring = ring
        self._timeout = timeout
        self._in_books = in_books

    def __enter__(self) -> Self:
        self.connection = self._database.enter(this_frame(1), self._timeout)
        try:
            self.begin()
        except BaseException as error:
            self._database.leave(error)
            raise
        return self

    def begin(self) -> None:
        """Read the books: the transaction has begun."""
        cursor = self.connection.cursor()
        self.execute, self._executemany = cursor.execute, cursor.executemany
        self.as_read, self._tail = self.execute(_BOOKS_READ).fetchone()
        last, self._database.last_books = self._database.last_books, None  # owned by this turn now, or dropped if it fails
        self.books = last[1] if last is not None and last[0] == self.as_read else decode(self.as_read)
        self.now = self.books.now = max(self.books.now, self._clock())
        self._changes = self.connection.total_changes
        self._changed = False  # the books changed, though no row did
        self._open: dict[str, Queue] = {}
        self._in_rows: set[str] = set()  # queues that are not in the books
        self._written: set[str] = set()  # queues that are to be written
        self._busy: set[str] = set()
        self.runs: list[Run] = []
        for queue in self.books.queues:
            self._look_at(queue)
        self._later: dict[tuple[str, int], int] = {}  # the earliest later due time, by queue and rank

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        rings = False
        if error is None:
            try:
                self.write_back()
                rings = self._should_ring()
            except BaseException as trouble:
                self._database.leave(trouble)
                raise
        self._database.leave(error)
        if error is None:
            self._database.last_books = (self.as_read, self.books)
        if rings:
            self._ring()

    def write_back(self) -> None:
        """Write the books, if they have changed."""
        if self.runs:
            self.books.runs += len(self.runs)
            self._tail += encode(self.runs)[1:-1] + b","
            if len(self._tail) > TAIL_BYTES:
                self.change("recent_add", last=self.books.runs, runs=self._tail)
                self.change("recent_trim", last=self.books.runs - KEEP_RUNS)
                self._tail = b""
        if self._in_rows:
            self.change_many("queue_write", [(name, encode(self._open[name])) for name in self._in_rows & self._written])
        # A turn that changed nothing writes nothing: an idle worker causes no disk writes and no rings.
        if self._changed or self.connection.total_changes != self._changes:
            self.as_read = encode(self.books)
            self.execute(_BOOKS_WRITE, (self.as_read, self._tail))

    def _should_ring(self) -> bool:
        """Return whether waiting workers must look again.

        A waiting worker has found its queues empty, or knows when the next job is due. So it needs a ring only if a queue became
        non-empty, or a job is due before all others. While a queue is not empty, its workers look by themselves.
        """
        for name in self._written:
            if name not in self._busy and self._open[name].counts[READY]:
                return True
        return bool(self._later) and any(
            self.rows("first_due", queue=queue, rank=rank)[0][0] == due for (queue, rank), due in self._later.items()
        )

    # -- statements ------------------------------------------------------------------------------------------

    def change(self, statement: str, **values: Any) -> int:
        """Run a statement; return the number of rows changed."""
        found = IN_ORDER[SQL[statement]]
        return self.execute(found.text, found.pick(values)).rowcount

    def change_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for many rows; return the number of rows changed."""
        found = IN_ORDER[SQL[statement]]
        if len(rows) == 1:
            return self.execute(found.text, rows[0]).rowcount
        return self._executemany(found.text, rows).rowcount

    def change_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Run a statement for many rows if each of them changes a row; else change nothing."""
        self.execute("savepoint here")
        if self.change_many(statement, rows) != len(rows):
            self.execute("rollback to here")
            return False
        self.execute("release here")
        return True

    def walk(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a walk. SQLite decodes their text, which is faster, unless a program wrote bytes that are none."""
        connection = self.connection
        careful, connection.text_factory = connection.text_factory, str
        try:
            return self.rows(statement, **values)
        except sqlite3.OperationalError:
            connection.text_factory = careful
            return self.rows(statement, **values)
        finally:
            connection.text_factory = careful

    # -- queues ----------------------------------------------------------------------------------------------

    def _look_at(self, queue: Queue) -> Queue:
        """Bring a queue's counts up to now."""
        self._open[queue.name] = queue
        if queue.counts[READY]:
            self._busy.add(queue.name)
        # Most queues have no jobs that could have become due.
        if not queue.counts[SCHEDULED] and not queue.counts[RETRYING]:
            queue.counted_at = self.now
        elif count_newly_due(self, queue):
            self._change(queue.name)
        return queue

    def _change(self, queue: str) -> None:
        self._changed = True
        self._written.add(queue)

    @property
    def has_rows(self) -> bool:
        """Return whether there may be queues with a row of their own."""
        return len(self.books.queues) >= self._in_books

    def known(self) -> Collection[Queue]:
        """Return the queues read so far, counted as of now: at least those in the books."""
        return self._open.values()

    def find_queue(self, name: str) -> Queue | None:
        """Return a queue, counted as of now, if there is one."""
        queue = self._open.get(name)
        if queue is None and self.has_rows:
            for (counted,) in self.rows("queue_read", name=name):
                self._in_rows.add(name)
                return self._look_at(decode_queue(counted))
        return queue

    def queue(self, name: str) -> Queue:
        """Return a queue, counted as of now; a new one if it has never had a job."""
        queue = self._open.get(name) or self.find_queue(name)
        if queue is None:
            queue = self._open[name] = Queue(name, counted_at=self.now)
            self._change(name)
            if self.has_rows:
                self._in_rows.add(name)
            else:
                self.books.queues.append(queue)
        return queue

    def queues(self) -> Collection[Queue]:
        """Return all queues, counted as of now."""
        if self.has_rows:
            for (counted,) in self.rows("queues_read"):
                queue = decode_queue(counted)
                if queue.name not in self._open:
                    self._in_rows.add(queue.name)
                    self._look_at(queue)
        return self._open.values()

    # -- counting --------------------------------------------------------------------------------------------

    def count(self, queue: str, before: int | None, after: int | None, number: int = 1) -> None:
        """Count jobs of a queue out of one state and into another."""
        counts = (self._open.get(queue) or self.queue(queue)).counts
        self._written.add(queue)
        if before is not None:
            counts[before] -= number
        if after is not None:
            counts[after] += number
        if DEAD in (before, after):
            self.books.kept_dead += number if after == DEAD else -number

    def dead(self) -> int:
        """Return the number of dead jobs and payloads."""
        return self.books.kept_dead

    def set_collects(self, queue: str, collects: bool) -> None:
        """Set whether a queue has lanes of a collector, or jobs."""
        self.queue(queue).collects = collects
        self._change(queue)

    def set_paused(self, queue: str, paused: bool, by: str) -> None:
        """Stop or resume claims from a queue."""
        found = self.queue(queue)
        if found.paused != paused:
            found.paused, found.paused_by, found.paused_at = paused, by if paused else "", self.now if paused else 0
        self._change(queue)

    def pause_since(self, queue: str, at: int, by: str) -> None:
        """Let a queue be paused since a time."""
        found = self.queue(queue)
        found.paused, found.paused_by, found.paused_at = True, by, at
        self._change(queue)

    def set_move(self, move: Move | None) -> None:
        """Set the store's part in a copy."""
        self.books.move, self._changed = move, True

    def reached(self) -> tuple[int, float]:
        """Return the last sequence number, and the last default score."""
        return self.books.seq, self.books.score

    def reach(self, now: int, seq: int, score: float) -> None:
        """Let the time, sequence numbers and default scores go on from here."""
        books, self._changed = self.books, True
        books.now, books.seq, books.score = max(books.now, now), max(books.seq, seq), max(books.score, score)

    def total(self, name: str, number: int = 1) -> None:
        """Add to a counter since the store was created."""
        books, self._changed = self.books, True
        setattr(books, name, getattr(books, name) + number)

    def arrive(self, counts: Mapping[Key, int]) -> None:
        """Count arrivals in the books, which are written anyway. A new interval, or many arrivals, move them to a table."""
        books, at = self.books, begin_of(self.now, TEN)
        if books.arrived_at != at:
            self._put_down()
            books.arrived_at = at
            statistics.close(self)
        for (queue, task), number in counts.items():
            tasks = books.arrived.setdefault(queue, {})
            tasks[task] = tasks.get(task, 0) + number
        if sum(map(len, books.arrived.values())) > MOST_ARRIVED:
            self._put_down()

    def _put_down(self) -> None:
        books, self._changed = self.books, True
        self.change_many("arrived_add", self.arrivals())
        books.arrived = {}

    @property
    def closed(self) -> int:
        """Return the time up to which statistics are summed, microseconds."""
        return self.books.closed

    @closed.setter
    def closed(self, until: int) -> None:
        self.books.closed, self._changed = until, True

    def next_seq(self, number: int = 1) -> int:
        """Return the next sequence number; with a number, the first of that many."""
        first = self.books.seq + 1
        self.books.seq += number
        return first

    def next_token(self) -> int:
        """Return a claim's token: greater than all before."""
        self.books.token += 1
        return self.books.token

    def next_score(self) -> float:
        """Return the store's now in seconds, or the next number after the last one: two are never equal."""
        self.books.score = max(self.now / 1_000_000, math.nextafter(self.books.score, math.inf))
        return self.books.score

    def is_empty(self, queue: str) -> bool:
        """Return whether a queue has neither jobs nor lanes."""
        return not any(self.queue(queue).counts)

    def waiting(self, queue: str, due: int, *, failed: bool = False) -> int:
        """Return the state in which a unit is counted that waits until then."""
        return self.queue(queue).waiting(due, failed)

    def counted(self, row: Row) -> int:
        """Return the state that a unit is counted in."""
        return row.state if row.state in (BLOCKED, RUNNING, DEAD) else self.waiting(row.queue, row.due, failed=row.failed)

    def counted_due(self, state: int) -> int:  # noqa: ARG002 - the counts are as of now
        """Return the state that a due unit is counted in."""
        return READY

    def wait_for(self, queue: str, rank: int, due: int) -> None:
        """Note a job that is due later."""
        if due > self.now:
            self._later[queue, rank] = min(due, self._later.get((queue, rank), due))
