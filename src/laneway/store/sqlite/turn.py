"""A turn: one write transaction and its book-keeping.

What a transaction counts (sequence numbers, tokens, totals, jobs by state) is read once when it begins, kept in memory, and
written back once before it commits: the write lock makes that safe, and a thousand jobs cost no more than one.

Jobs become due by time alone, with nobody writing anything. So a queue's counts hold as of its `ripe` time; who touches the
queue first counts what has become due since, which is each job once in its life.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from laneway.outcome import ErrorInfo
from laneway.store.inspect import Run
from laneway.store.sqlite.database import Database
from laneway.store.sqlite.sql import SQL

__all__ = [
    "BEFORE_ALL",
    "BLOCKED",
    "DEAD",
    "READY",
    "RETRYING",
    "RUNNING",
    "SCHEDULED",
    "Queue",
    "Row",
    "Turn",
    "read_errors",
    "ripen",
]

#: Where a queue counts its jobs.
SCHEDULED, READY, RETRYING, BLOCKED, RUNNING, DEAD = range(6)

#: How many finished runs stay readable.
KEEP_RUNS = 1000
#: How many errors a job remembers.
KEEP_ERRORS = 10

#: A rank before every priority.
BEFORE_ALL = -1000

Execute = Callable[[str, tuple[Any, ...]], sqlite3.Cursor]

_errors = msgspec.json.Decoder(list[ErrorInfo])


class Queue:
    """A queue and its counts as this turn sees them."""

    __slots__ = ("changed", "counts", "name", "paused", "ripe")

    def __init__(self, name: str, paused: int = 0, ripe: int = 0, *counts: int) -> None:
        self.name = name
        self.paused = paused
        self.ripe = ripe
        self.counts = list(counts) or [0] * 6
        self.changed = False

    def move(self, before: int | None, after: int | None, number: int = 1) -> None:
        """Count jobs out of one state and into another; None is outside the store."""
        if before is not None:
            self.counts[before] -= number
        if after is not None:
            self.counts[after] += number
        self.changed = True

    def waiting(self, due: int, failed: bool) -> int:
        """Say as what a waiting job counts."""
        if due <= self.ripe:
            return READY
        return RETRYING if failed else SCHEDULED


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
    errors: bytes | None

    def errors_with(self, error: ErrorInfo, at: int) -> bytes:
        """Return the remembered errors and one more, as JSON."""
        now = msgspec.structs.replace(error, at=at, attempt=self.attempt + 1)
        return msgspec.json.encode([*read_errors(self.errors), now][-KEEP_ERRORS:])


def read_errors(errors: bytes | None) -> list[ErrorInfo]:
    """Return the errors of a row. Unreadable ones are no reason to fail."""
    try:
        return _errors.decode(errors) if errors else []
    except msgspec.MsgspecError as trouble:
        return [ErrorInfo(kind="garbage", message=f"the stored errors cannot be read: {trouble}")]


def ripen(execute: Execute, queue: Queue, now: int) -> None:
    """Bring a queue's counts up to a time."""
    if queue.ripe >= now:
        return
    if queue.counts[SCHEDULED] or queue.counts[RETRYING]:
        rank = next_rank(execute, queue, BEFORE_ALL)
        while rank is not None:
            due, failed = execute(SQL["ripen"], (queue.name, rank, queue.ripe, now)).fetchone()
            if due:
                queue.move(RETRYING, READY, failed)
                queue.move(SCHEDULED, READY, due - failed)
            rank = next_rank(execute, queue, rank)
    queue.ripe = now


def next_rank(execute: Execute, queue: Queue, rank: int) -> int | None:
    """Return the next priority in use among a queue's waiting jobs."""
    found: int | None = execute(SQL["next_rank"], (queue.name, rank)).fetchone()[0]
    return found


class Turn:
    """`with Turn(database, clock) as turn:` is one atomic step of the store."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def __enter__(self) -> Turn:
        self.connection: sqlite3.Connection = self._database.enter()
        try:
            self._begin()
        except BaseException as error:
            self._database.leave(error)
            raise
        return self

    def _begin(self) -> None:
        self.execute = self.connection.execute
        self.executemany = self.connection.executemany
        meta = self.execute(SQL["meta_read"]).fetchone()
        (now, self.seq, self.token, self.enqueued, self.processed, self.failed,
         self.retried, self.dead, self.cancelled, self.recovered, self.refused, self._runs) = meta  # fmt: skip
        self._meta = meta
        self.now = max(now, self._clock())
        self.queues: dict[str, Queue] = {}
        self.runs: list[Run] = []
        self._changes_before = self.connection.total_changes
        self.ring = False  # something may be claimable that was not before

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
            self._runs += len(self.runs)
            self.execute(SQL["recent_add"], (self._runs, msgspec.json.encode(self.runs)))
            self.execute(SQL["recent_trim"], (self._runs - KEEP_RUNS,))
        for queue in self.queues.values():
            if queue.changed:
                self.execute(SQL["queue_write"], (queue.name, queue.paused, queue.ripe, *queue.counts))
        counted = (self.seq, self.token, self.enqueued, self.processed, self.failed,
                   self.retried, self.dead, self.cancelled, self.recovered, self.refused, self._runs)  # fmt: skip
        # A turn that changed nothing writes nothing: an idle worker costs no disk and rings no bell.
        if self.connection.total_changes != self._changes_before or counted != self._meta[1:]:
            self.execute(SQL["meta_write"], (self.now, *counted))

    def queue(self, name: str) -> Queue:
        """Return a queue with counts as of now. Ask before changing its jobs: it counts what has become due by then."""
        queue = self.queues.get(name)
        if queue is None:
            row = self.execute(SQL["queue_find"], (name,)).fetchone()
            queue = self.queues[name] = Queue(*row) if row else Queue(name)
            ripen(self.execute, queue, self.now)
        return queue

    def all_queues(self) -> dict[str, Queue]:
        """Return every queue with counts as of now."""
        for row in self.execute(SQL["queue_read"]).fetchall():
            if row[0] not in self.queues:
                queue = self.queues[row[0]] = Queue(*row)
                ripen(self.execute, queue, self.now)
        return self.queues

    def next_rank(self, queue: Queue, rank: int) -> int | None:
        """Return the next priority in use among a queue's waiting jobs."""
        return next_rank(self.execute, queue, rank)

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
            self.cancelled += outcome == "cancelled"
            self.runs.append(Run(row.id, row.task, row.queue, row.lane, row.enqueued, started, finished or self.now, outcome))

    def die(self, row: Row, before: int, error: ErrorInfo) -> None:
        """A job gives up: it is kept, and its lane goes on."""
        self.queue(row.queue).move(before, DEAD)
        self.execute(SQL["die"], (self.now, row.attempt + 1, row.errors_with(error, self.now), row.seq))
        self.dead += 1
        if row.holds:
            self.let_out(row.queue, row.lane)

    def let_out(self, queue: str, lane: str | None) -> None:
        """A lane's holder has left: the next by place holds it at once, and is due."""
        counts = self.queue(queue)
        if lane is not None and self.execute(SQL["let_out"], (queue, lane)).rowcount:
            counts.move(BLOCKED, READY)
            self.ring = True

    def wait_again(self, row: Row, due: int, *, failed: bool, attempt: int, errors: bytes | None) -> None:
        """A running job goes back to wait; it keeps its place and its lane."""
        queue = self.queue(row.queue)
        self.execute(SQL["wait_again"], (int(failed), due, attempt, errors, row.seq))
        queue.move(RUNNING, queue.waiting(due, failed))
        self.ring = True

    def hand_back(self, row: Row, error: ErrorInfo | None = None) -> None:
        """A run did not end: the job is ready again, uncounted; if it was to be cancelled or deleted, it leaves now."""
        if row.mark is not None:
            self.leave(row, RUNNING, "cancelled" if row.mark == "cancel" else None)
            return
        errors = row.errors if error is None else row.errors_with(error, self.now)
        self.wait_again(row, row.due, failed=False, attempt=row.attempt, errors=errors)
