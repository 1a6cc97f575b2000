"""A turn: one write transaction and what it counted. And a reading, which sees the database at one moment.

A turn's counts are new rows of the ledger, written in the same transaction: no row is updated by all transactions.

Enters: statements by name.  Leaves: rows.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from laneway.core.buckets import Key
from laneway.errors import StoreReadOnly
from laneway.store.postgres.connection import PostgresConnection, bigints, smallints, texts
from laneway.store.postgres.statements import DIALECT, VERSION, call, in_schema, numbered, statements
from laneway.store.postgres.wire import Lent, PostgresWire
from laneway.store.runs import Run
from laneway.store.sql import statistics
from laneway.store.sql.port import CopyTurn, Queue, Reading
from laneway.store.sql.queries import KEEP_RUNS
from laneway.store.sql.rows import DEAD, READY, RETRYING, SCHEDULED, Row
from laneway.store.statistics import TEN, TOTALS
from laneway.store.transfer import Move, read_move, write_move

if TYPE_CHECKING:
    from laneway.store.postgres.joining import Inbox

__all__ = ["NOTHING_BEFORE", "PostgresReading", "PostgresTurn"]

_encode = msgspec.json.Encoder().encode
#: Where a walk found nothing, later walks begin this much before its time, microseconds: transactions may commit late.
NOTHING_BEFORE = 1_000_000
#: Limits that the server enforces even if the client is gone: how long a statement may wait for a lock, and how long a
#: transaction may be idle. Otherwise the open transaction of a frozen process would block others by its locks.
LIMITS = "set_config('lock_timeout', '1500ms', true), set_config('idle_in_transaction_session_timeout', '10s', true)"


class PostgresReading(Reading):
    """`with PostgresReading(wire, schema) as reading:` is a view of the database at one moment."""

    dialect = DIALECT
    begins = "begin isolation level repeatable read read only"
    clock = "view"
    _looked = False  # the inbox was emptied
    _moved: list[str | None]  # of a turn: the store's part in a copy that has closed it

    def __init__(self, wire: PostgresWire, schema: str, timeout: float | None = None, inbox: Inbox | None = None) -> None:
        self._wire = wire
        self.schema = schema
        self._timeout = timeout
        self._inbox = inbox  # it is emptied first
        self._sql = statements(schema)

    def __enter__(self) -> Self:
        self._lent: Lent = self._wire.lend(self._timeout)
        self.line: PostgresConnection = self._lent.__enter__()
        try:
            look = f"exists (select 1 from {self.schema}.inbox), it.* from {self.schema}.{self.clock}_v{VERSION}() it"
            self.line.send([(self.begins, ()), (f"select {LIMITS}, {look}", ())])
            [(_, _, waits, self.now, *self._moved)] = self.line.read()[1].rows
        except BaseException as error:
            self._leave(error)
            raise
        if waits and self._inbox is not None and not self._looked:
            self._looked = True
            self._leave(None)
            with contextlib.suppress(StoreReadOnly):  # a standby: what is in the inbox joins the jobs on the primary
                self._inbox.empty()
            return self.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        """End the transaction, and give the connection back."""
        trouble = error
        try:
            if error is None:
                self.line.ask("commit")
            elif self.line.in_transaction():
                with contextlib.suppress(Exception):
                    self.line.ask("rollback")
        except BaseException as broken:
            trouble = broken
            raise
        finally:
            self._lent.__exit__(type(trouble) if trouble else None, trouble, None)

    @property
    def move(self) -> Move | None:
        """Return the store's part in a copy."""
        [(move,)] = self.line.ask(f"select move from {self.schema}.meta")
        return None if move is None else read_move(move.encode())

    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a statement, by its name."""
        found = numbered(self._sql[statement])
        return self.line.ask(found.text, [values[name] for name in found.names])

    def text(self, statement: str, **words: str) -> str:
        """Return the text of a statement, by its name, with words put into its braces."""
        return self._sql[statement].format(**words)

    def select(self, statement: str, words: dict[str, str], **values: Any) -> list[Any]:
        """Return the rows of a statement, by its name, with words put into its braces."""
        found = numbered(in_schema(self.text(statement, **words), self.schema))
        return self.line.ask(found.text, [values[name] for name in found.names])

    def call(self, function: str, *values: Any) -> list[Any]:
        """Call a function of this version; return its rows."""
        return self.line.ask(call(self.schema, function, len(values)), values)

    def queues(self) -> Collection[Queue]:
        """Return all queues, counted as of now."""
        counts = {name: list(numbers) for name, *numbers in self.call("counts", self.now)}
        return [
            Queue(name, paused, self.now, counts.get(name, [0] * 6), by, at, collects)
            for name, paused, by, at, collects in self.rows("queues_find")
        ]

    def totals(self) -> dict[str, int]:
        """Return the counters since the store was created."""
        return {**dict.fromkeys(TOTALS, 0), **dict(self.call("totals"))}

    def last_runs(self) -> bytes:
        """Return the most recent runs."""
        return "".join([runs for (runs,) in self.rows("unfolded_runs")]).encode()

    def arrivals(self) -> list[tuple[int, str, str, int]]:
        """Return arrivals that are in no table but the ledger."""
        return self.rows("unfolded_arrivals", ten=TEN)


class PostgresTurn(PostgresReading, CopyTurn):
    """`with PostgresTurn(wire, schema, ring, put_back) as turn:` is one atomic step of the store."""

    begins = "begin isolation level read committed"
    clock = "turn"

    def __init__(
        self, wire: PostgresWire, schema: str, ring: Callable[[], None], put_back: Callable[[bool], None],
        timeout: float | None = None, inbox: Inbox | None = None,
    ) -> None:  # fmt: skip
        super().__init__(wire, schema, timeout, inbox)
        self._ring = ring
        self._put_back = put_back
        self._puts_back = False  # a due unit was put back: walks must begin at the front
        self._was_due = False  # ... so long ago that walks of other processes may begin behind it
        self.runs: list[Run] = []
        self._counts: dict[str, list[int]] = {}
        self._totals: Counter[str] = Counter()
        self._arrived: Counter[Key] = Counter()
        self._open: dict[str, Queue] = {}
        self._scores, self._seqs, self._ahead = list[float](), list[int](), 1
        self.rings = False  #: sleeping workers must be woken
        self._later: dict[str, int] = {}  # the earliest later due time, by queue

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            try:
                self.write_down()
                self.rings = self.rings or self._is_sooner()
            except BaseException as trouble:
                self._leave(trouble)
                raise
        self._leave(error)
        if error is None and self._puts_back:
            self._put_back(self._was_due)
        if error is None and self.rings:
            self._ring()

    def write_down(self) -> None:
        """Write what was counted so far."""
        self.change_many("ledger_count", [(self.now, queue, *counts) for queue, counts in self._counts.items() if any(counts)])
        self.change_many("ledger_arrive", [(self.now, *key, number) for key, number in self._arrived.items()])
        runs = (_encode(self.runs)[1:-1] + b",").decode() if self.runs else None
        if self._totals or self.runs:
            self.change_many("ledger_rest", [(self.now, _encode(self._totals).decode(), runs, len(self.runs))])
        self.rings = self.rings or any(counts[READY] > 0 for counts in self._counts.values())
        self._counts, self._arrived, self._totals, self.runs = {}, Counter(), Counter(), []

    # -- statements ------------------------------------------------------------------------------------------

    def change(self, statement: str, **values: Any) -> int:
        """Run a statement; return the number of rows changed."""
        found = numbered(self._sql[statement])
        self.line.send([(found.text, [values[name] for name in found.names])])
        return self.line.read()[0].number

    def change_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for many rows, in one round trip; return the number of rows changed."""
        if not rows:
            return 0
        found = numbered(self._sql[statement])
        self.line.send([(found.text, row) for row in rows])
        return sum(answer.number for answer in self.line.read())

    def change_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Run a statement for many rows if each of them changes a row; else change nothing."""
        self.line.ask("savepoint here")
        changed = self.change_many(statement, rows) == len(rows)
        self.line.ask("release here" if changed else "rollback to here")
        return changed

    def walk(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a walk."""
        return self.rows(statement, **values)

    # -- locks -----------------------------------------------------------------------------------------------

    def hold(self, ids: Sequence[str]) -> None:
        """Lock units that are about to be changed, with their lanes."""
        self.call("hold", texts(ids))

    def take_claims(self, worker: str, keep: Collection[int] | None = None) -> list[Row]:
        """Lock what a worker holds, and return it. An exchange of it that is still on its way has no effect."""
        self.call("take_claims", worker, None if keep is None else bigints(list(keep)))
        return super().take_claims(worker, keep)

    def push_lanes(self, lanes: Sequence[tuple[Any, ...]]) -> set[int]:
        """Insert lanes of a collector, or lock those that are there."""
        seqs, ids, queues, tasks, names, _, dues, states, *_ = zip(*lanes, strict=True)
        given = (bigints(seqs), texts(ids), texts(queues), texts(tasks), texts(names), bigints(dues), smallints(states))
        return {seq for (seq,) in self.call("push_lanes", *given, self.now)}

    def let_out(self, queue: str, lanes: Sequence[str]) -> None:
        """Let the next job by place hold each lane whose holder has left."""
        self.call("let_out", self.now, texts([queue] * len(lanes)), texts(lanes))
        self.rings = self._puts_back = self._was_due = True

    # -- queues ----------------------------------------------------------------------------------------------

    def find_queue(self, name: str) -> Queue | None:
        """Return a queue, if there is one."""
        if name not in self._open:
            rows = self.rows("queue_find", name=name)
            for name_, paused, by, at, collects in rows:
                self._open[name] = Queue(name_, paused, self.now, paused_by=by, paused_at=at, collects=collects)
        return self._open.get(name)

    def queue(self, name: str) -> Queue:
        """Return a queue; a new one if it has never had a job."""
        queue = self.find_queue(name)
        if queue is None:
            self.change("queue_add", name=name)
            queue = self.find_queue(name)
        assert queue is not None  # noqa: S101 - queues are never removed
        return queue

    def is_empty(self, queue: str) -> bool:
        """Return whether a queue has neither jobs nor lanes; the lock keeps pushes out until the turn ends."""
        if self._has_units(queue):
            return False
        # Waits for open transactions that push into it, and these alone.
        self.rows("lock_queue", queue=queue, schema=self.schema)
        return not self._has_units(queue)

    def _has_units(self, queue: str) -> bool:
        return any(any(numbers) for name, *numbers in self.call("counts", self.now) if name == queue) or bool(
            self.rows("inbox_has", queue=queue)
        )

    def set_collects(self, queue: str, collects: bool) -> None:
        """Set whether a queue has lanes of a collector, or jobs."""
        self.change("queue_collects", collects=collects, name=queue)
        self._open.pop(queue, None)

    def set_paused(self, queue: str, paused: bool, by: str) -> None:
        """Stop or resume claims from a queue."""
        self.queue(queue)
        self.change(
            "queue_pause", paused=paused, by=by if paused else "", at=self.now if paused else 0, name=queue, now_paused=paused
        )
        self._open.pop(queue, None)

    def pause_since(self, queue: str, at: int, by: str) -> None:
        """Let a queue be paused since a time."""
        self.set_paused(queue, True, by)
        self.line.ask(f"update {self.schema}.queue set paused_at = $1 where name = $2", (at, queue))

    # -- copies ----------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether a copy has closed the store."""
        return self._moved[0] is not None

    def check_open(self, store: object) -> None:
        """Raise an error if a copy has closed the store."""
        if self._moved[0] is not None:
            raise read_move(self._moved[0].encode()).refusal(store)

    def set_move(self, move: Move | None) -> None:
        """Set the store's part in a copy."""
        if move is not None and move.closed and self._inbox is not None:
            for number in (82, 83, 85):  # as set_move does: these locks keep enqueues out from now on
                self.rows("lock", schema=self.schema, number=number)
            while self._inbox.join(self):
                pass
        raw = None if move is None else write_move(move).decode()
        self.call("set_move", raw, move is not None and move.closed)

    def reached(self) -> tuple[int, float]:
        """Return the last sequence number. Default scores are times: each is greater than those of before."""
        return int(self.line.ask(f"select last_value from {self.schema}.seq")[0][0]), 0.0

    def reach(self, now: int, seq: int, score: float) -> None:  # noqa: ARG002 - scores are times
        """Let the time and sequence numbers go on from here."""
        self.call("reach", now, seq)

    # -- counting --------------------------------------------------------------------------------------------

    def count(self, queue: str, before: int | None, after: int | None, number: int = 1) -> None:
        """Count jobs of a queue out of one state and into another."""
        counts = self._counts.setdefault(queue, [0] * 6)
        if before is not None:
            counts[before] -= number
        if after is not None:
            counts[after] += number

    def waiting(self, queue: str, due: int, *, failed: bool = False) -> int:  # noqa: ARG002 - it is in the row
        """Return the state in which a unit is counted that waits until then: the stored one."""
        return RETRYING if failed else READY if due <= self.now else SCHEDULED

    def counted(self, row: Row) -> int:
        """Return the state that a unit is counted in: the stored one."""
        return row.state

    def counted_due(self, state: int) -> int:
        """Return the state that a due unit is counted in: the stored one."""
        return state

    def dead(self) -> int:
        """Return the number of dead jobs and payloads."""
        return sum(numbers[DEAD] for _, *numbers in self.call("counts", self.now))

    def total(self, name: str, number: int = 1) -> None:
        """Add to a counter since the store was created."""
        self._totals[name] += number

    def arrive(self, counts: Mapping[Key, int]) -> None:
        """Count arrivals."""
        self._arrived.update(counts)

    def fold(self, *, wait: bool = False) -> bool:
        """Add the ledger up and sum statistics; return whether it was done. `wait`: wait for another session that does it now."""
        if wait:
            self.rows("lock", schema=self.schema, number=80)
        if self.call("fold", TEN, KEEP_RUNS) != [(True,)]:
            return False
        statistics.close(self)
        return True

    @property
    def closed(self) -> int:
        """Return the time up to which statistics are summed, microseconds."""
        return int(self.rows("closed_read")[0][0])

    @closed.setter
    def closed(self, until: int) -> None:
        self.change("closed_write", until=until)

    def next_seq(self, number: int = 1) -> int:  # noqa: ARG002 - jobs are numbered by `push`
        """Return the next sequence number. Some are fetched at once."""
        if not self._seqs:
            self._ahead = min(4 * self._ahead, 1000)
            rows = self.rows("seqs", number=self._ahead)
            self._seqs = [seq for (seq,) in reversed(rows)]
        return self._seqs.pop()

    def next_token(self) -> int:
        """Return a claim's token: greater than all before of the same job or lane."""
        return int(self.rows("token")[0][0])

    def next_score(self) -> float:
        """Return the store's now in seconds, or a little more: all are different, and later ones are greater."""
        if not self._scores:
            self._ahead = min(4 * self._ahead, 1000)
            [(last,)] = self.rows("scores", number=self._ahead, now=self.now)
            self._scores = [(last - n) / 1_000_000 for n in range(self._ahead)]
        return self._scores.pop()

    def wait_for(self, queue: str, rank: int, due: int) -> None:  # noqa: ARG002 - one index has all of them
        """Note a job that is due later."""
        self._puts_back = self._puts_back or due <= self.now
        self._was_due = self._was_due or due < self.now - NOTHING_BEFORE
        if due > self.now:
            self._later[queue] = min(due, self._later.get(queue, due))

    def _is_sooner(self) -> bool:
        """Return whether a new job is due before all others of its queue: sleeping workers know only when the others are due."""
        return any(self.rows("first_later", queue=queue) == [(due,)] for queue, due in self._later.items())
