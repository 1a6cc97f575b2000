"""What a database does for the rules: readings, and turns.

A turn is one write transaction and its counting. While one is open no other transaction changes what it works on, and rules
rely on that: on SQLite turns are serial, elsewhere a turn locks the units that it is about to change (`hold`, `take_claims`,
`push_lanes`). Rules never count rows: they report changes (`count`, `total`), and the database keeps the counts in its own way.
The number of jobs of a queue, by state, is in a `Queue`.

Leaves: `Queue`, `Reading`, `Turn`, `Database`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct, field

from laneway.core.buckets import Key
from laneway.store.runs import Run
from laneway.store.sql.dialect import Dialect
from laneway.store.sql.rows import BLOCKED, READY, RETRYING, SCHEDULED, Row
from laneway.store.transfer import Move

__all__ = ["LOWEST", "CopyTurn", "Database", "Queue", "Reading", "Turn", "count_newly_due", "next_rank", "ranks"]

#: Below all ranks.
LOWEST = -1000


class Queue(Struct, array_like=True):
    """A queue and how many of its jobs are in each state.

    Jobs become due by time alone. So the counts hold as of a time; the next reader counts jobs that have become due since,
    each job once in its life (`count_newly_due`).
    """

    name: str
    paused: bool = False
    counted_at: int = 0  #: jobs due up to here are counted as ready, later ones as scheduled or retrying
    counts: list[int] = field(default_factory=lambda: [0] * 6)
    paused_by: str = ""
    paused_at: int = 0  #: microseconds
    collects: bool = False  #: it belongs to a collector: lanes are counted, and dead payloads

    def move(self, before: int | None, after: int | None, number: int = 1) -> None:
        """Count jobs out of one state and into another; None is outside the store."""
        if before is not None:
            self.counts[before] -= number
        if after is not None:
            self.counts[after] += number

    def waiting(self, due: int, failed: bool = False) -> int:
        """Return the state of a job that waits until then."""
        if due <= self.counted_at:
            return READY
        return RETRYING if failed else SCHEDULED


class Reading(ABC):
    """A consistent view of the database at one moment."""

    now: int  #: the store's time, microseconds
    dialect: Dialect

    @property
    def move(self) -> Move | None:
        """Return the store's part in a copy."""
        return None

    @property
    def is_closed(self) -> bool:
        """Whether a copy has closed the store."""
        return self.move is not None and self.move.closed

    @abstractmethod
    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a statement, by its name."""

    @abstractmethod
    def text(self, statement: str, **words: str) -> str:
        """Return the text of a statement, by its name, with words put into its braces."""

    @abstractmethod
    def select(self, statement: str, words: dict[str, str], **values: Any) -> list[Any]:
        """Return the rows of a statement, by its name, with words put into its braces."""

    @abstractmethod
    def queues(self) -> Collection[Queue]:
        """Return all queues, counted as of now."""

    @abstractmethod
    def totals(self) -> dict[str, int]:
        """Return the counters since the store was created."""

    @abstractmethod
    def last_runs(self) -> bytes:
        """Return the most recent runs, as JSON with a comma behind each; older ones are in `laneway_recent`."""

    @abstractmethod
    def arrivals(self) -> list[tuple[int, str, str, int]]:
        """Return arrivals that are not in `laneway_arrived` yet: the begin of their interval, queue, task, how many."""

    def find(self, statement: str, **values: Any) -> Row | None:
        """Return the one row of a statement, if there is one."""
        found = self.rows(statement, **values)
        return Row(*found[0]) if found else None


class Turn(Reading):
    """One write transaction, and its counts.

    Before the commit it writes its counts and `runs`. These become rows of `laneway_recent`, which keeps the last `KEEP_RUNS`
    runs (queries.py): SQLite's turn does that with `recent_add` and `recent_trim`, and PostgreSQL's leaves it to the next fold.
    `last_runs` returns runs that are not there yet. After the commit a turn rings, if sleeping workers must look again.
    """

    runs: list[Run]  #: the runs that end in it: rules add to it

    @abstractmethod
    def change(self, statement: str, **values: Any) -> int:
        """Run a statement; return the number of rows changed."""

    @abstractmethod
    def change_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for many rows, with values in the order of the statement; return the number of rows changed."""

    @abstractmethod
    def change_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Change many rows, if each set of values changes one; else change nothing, and return False."""

    @abstractmethod
    def walk(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a walk: like `rows`, but as fast as possible."""

    @abstractmethod
    def queue(self, name: str) -> Queue:
        """Return a queue, counted as of now; a new one if it has never had a job."""

    @abstractmethod
    def find_queue(self, name: str) -> Queue | None:
        """Return a queue, counted as of now, if there is one."""

    @abstractmethod
    def count(self, queue: str, before: int | None, after: int | None, number: int = 1) -> None:
        """Count jobs of a queue out of one state and into another; None is outside the store."""

    @abstractmethod
    def dead(self) -> int:
        """Return the number of dead jobs and payloads."""

    @abstractmethod
    def set_collects(self, queue: str, collects: bool) -> None:
        """Set whether a queue has lanes of a collector, or jobs."""

    @abstractmethod
    def set_paused(self, queue: str, paused: bool, by: str) -> None:
        """Stop or resume claims from a queue. A paused queue stays as it is."""

    @abstractmethod
    def total(self, name: str, number: int = 1) -> None:
        """Add to a counter since the store was created."""

    @property
    @abstractmethod
    def closed(self) -> int:
        """Return the time up to which statistics are summed, microseconds."""

    @closed.setter
    @abstractmethod
    def closed(self, until: int) -> None: ...

    @abstractmethod
    def arrive(self, counts: Mapping[Key, int]) -> None:
        """Count arrivals, by queue and task.

        Those of earlier intervals of ten seconds are moved to `laneway_arrived`, and then `statistics.close` is called: here, as
        on SQLite, or by a fold, as on PostgreSQL.
        """

    @abstractmethod
    def next_seq(self, number: int = 1) -> int:
        """Return the next sequence number; with a number, the first of that many."""

    @abstractmethod
    def next_token(self) -> int:
        """Return a claim's token.

        It is greater than those of all earlier claims of the same job or lane, and than all that the same worker has received.
        """

    @abstractmethod
    def next_score(self) -> float:
        """Return the store's now in seconds, or the next number after the last one: two are never equal."""

    @abstractmethod
    def wait_for(self, queue: str, rank: int, due: int) -> None:
        """Note a job that is due later: a sleeping worker may have to be woken for it."""

    @abstractmethod
    def is_empty(self, queue: str) -> bool:
        """Return whether a queue has neither jobs nor lanes; until the turn ends no other transaction fills it."""

    @abstractmethod
    def waiting(self, queue: str, due: int, *, failed: bool = False) -> int:
        """Return the state in which a unit is counted that waits until then from now on."""

    @abstractmethod
    def counted(self, row: Row) -> int:
        """Return the state that a unit is counted in."""

    @abstractmethod
    def counted_due(self, state: int) -> int:
        """Return the state that a due unit is counted in whose row has this state."""

    # -- locks, where turns are not serial -------------------------------------------------------------------

    def hold(self, ids: Sequence[str]) -> None:
        """Lock these units and their lanes until the turn ends. Call it before they are read."""

    def take_claims(self, worker: str, keep: Collection[int] | None = None) -> list[Row]:
        """Return what a worker holds, in the order of claiming. An exchange of it that is still on its way has no effect.

        Claims that another transaction has locked are left out. With `keep`, only these tokens are: it waits for all others.
        """
        rows = [Row(*row) for row in self.rows("running", worker=worker)]
        return [row for row in rows if row.token not in keep] if keep else rows

    def push_lanes(self, lanes: Sequence[tuple[Any, ...]]) -> set[int]:
        """Insert lanes of a collector, as values of `lane_push`; return the sequence numbers of those that were not there.

        No other transaction changes any of them until the turn ends.
        """
        first = min((lane[0] for lane in lanes), default=0)
        if self.change_many("lane_push", lanes) == len(lanes):
            return {lane[0] for lane in lanes}
        return {seq for (seq,) in self.rows("pushed", before=first - 1)}

    # -- rules ----------------------------------------------------------------------------------------------

    def check_open(self, store: object) -> None:
        """Raise an error if a copy has closed the store."""
        move = self.move
        if move is not None and move.closed:
            raise move.refusal(store)

    def ended(self, queue: str, held: str | None, before: int, after: int | None = None, run: Run | None = None) -> None:
        """End a unit's life."""
        self.all_ended(queue, 1, () if held is None else (held,), before, after, () if run is None else (run,))

    def all_ended(
        self, queue: str, number: int, held: Sequence[str], before: int, after: int | None = None, runs: Sequence[Run] = ()
    ) -> None:
        """End the lives of units, the one exit: they are counted, their runs are remembered, and the lanes they held go on."""
        self.count(queue, before, after, number)
        self.runs += runs
        if held:
            self.let_out(queue, held)

    def let_out(self, queue: str, lanes: Sequence[str]) -> None:
        """Let the next job by place hold each lane whose holder has left: it is due at once."""
        if out := self.change_many("let_out", [(queue, lane) for lane in lanes]):
            self.count(queue, BLOCKED, READY, out)

    def waits(self, row: Row, before: int, due: int, *, failed: bool = False) -> None:
        """Count a unit that waits until `due` from now on."""
        self.count(row.queue, before, self.waiting(row.queue, due, failed=failed))
        self.wait_for(row.queue, row.rank, due)

    def run_of(self, row: Row, outcome: str, started: int = 0, finished: int = 0) -> Run:
        """Return the record of a run, or of a unit that never ran."""
        return Run(row.id, row.task, row.queue, row.lane, row.enqueued, started, finished or self.now, outcome)


class CopyTurn(Turn):
    """A turn of a store that can take part in a copy."""

    @abstractmethod
    def reached(self) -> tuple[int, float]:
        """Return the last sequence number, and the last default score."""

    @abstractmethod
    def reach(self, now: int, seq: int, score: float) -> None:
        """Let the time, sequence numbers and default scores go on from here, if they are not there yet."""

    @abstractmethod
    def set_move(self, move: Move | None) -> None:
        """Set the store's part in a copy."""

    @abstractmethod
    def pause_since(self, queue: str, at: int, by: str) -> None:
        """Let a queue be paused since a time."""


class Database(Protocol):
    """What the inspection side needs of a store."""

    def __str__(self) -> str:
        """Return its name for messages."""
        ...

    def turn(self) -> AbstractContextManager[Turn]:
        """Return one atomic step, to be used in a `with`. It wakes the workers that can claim something new."""
        ...

    def reading(self) -> AbstractContextManager[Reading]:
        """Return a view of the database; it needs no lock, and blocks no other client."""
        ...

    def ring(self) -> None:
        """Wake all sleeping workers."""
        ...


def count_newly_due(reading: Reading, queue: Queue) -> bool:
    """Bring a queue's counts up to now; return whether they changed."""
    changed = False
    if queue.counted_at < reading.now and (queue.counts[SCHEDULED] or queue.counts[RETRYING]):
        for rank in ranks(reading, queue.name):
            [(due, failed)] = reading.rows("newly_due", queue=queue.name, rank=rank, since=queue.counted_at, now=reading.now)
            queue.move(RETRYING, READY, failed)
            queue.move(SCHEDULED, READY, due - failed)
            changed = changed or due > 0
    queue.counted_at = max(queue.counted_at, reading.now)
    return changed


def ranks(reading: Reading, queue: str) -> Iterator[int]:
    """Walk the priorities in use among a queue's waiting jobs, as ranks: the highest priority first."""
    rank = next_rank(reading, queue, LOWEST)
    while rank is not None:
        yield rank
        rank = next_rank(reading, queue, rank)


def next_rank(reading: Reading, queue: str, above: int) -> int | None:
    """Return the next rank in use among a queue's waiting jobs."""
    found: int | None = reading.rows("next_rank", queue=queue, rank=above)[0][0]
    return found
