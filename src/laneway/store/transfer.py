"""Transfer: what a store holds as values that no store owns, so that it can be moved into another.

A store exports its content in portions, and another one takes them. A portion belongs to one section: a queue, or what
concerns the whole store. It is taken in one atomic step, together with its cursor: a copier that continues asks the target for
its cursors, and exports what comes behind them. So nothing is taken twice and nothing is left out, wherever a copy is killed.

A store that takes part in a copy is closed, and says so by its `Move`: a source refuses pushes, claims and actions for good, a
target until it has everything. Outcomes of runs are still taken, so that a source comes to rest.

Sequence numbers are kept, since they order the jobs of a lane and tell which payload arrived first. `laneway.store.moving` has
the steps of a copy.

Enters and leaves: `Portion`s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from laneway.core.buckets import Seen
from laneway.core.job import State
from laneway.core.outcome import ErrorInfo
from laneway.errors import ConfigError, StoreError, StoreMoved, StoreUnavailable
from laneway.store.contract import Store

__all__ = [
    "JOBS", "PAYLOADS", "PORTION", "QUEUE", "RECORDS", "SHARED", "Cursor", "Move", "Portion", "SharedState", "StoredCounts",
    "StoredJob", "StoredPayload", "StoredQueue", "StoredRecord", "StoredSchedule", "Transfer", "chunks", "out_of_step",
    "read_cursor", "read_move", "transfer_of", "write_cursor", "write_move",
]  # fmt: skip

#: The most jobs, payloads or records in a portion.
PORTION = 250
#: A portion ends with the job that makes it longer than this, bytes of bodies.
LARGEST = 1_000_000
#: The section of what concerns the whole store; all others have the names of their queues.
SHARED = ""

#: The parts of a section, in the order in which they are copied.
QUEUE, JOBS, PAYLOADS, RECORDS = range(4)
#: Where a section's export goes on: its part (the queue, jobs, payloads, records), and a position in it.
Cursor = tuple[int | float | str, ...]
_cursors: msgspec.json.Decoder[Cursor] = msgspec.json.Decoder(Cursor)


def write_cursor(cursor: Cursor) -> str:
    """Return a cursor as text."""
    return msgspec.json.encode(cursor).decode()


def read_cursor(text: str) -> Cursor:
    """Return the cursor in a text; that of an empty one comes before all others."""
    return _cursors.decode(text) if text else ()


class Move(Struct, frozen=True):
    """The part of a store in a copy."""

    copy: str  #: the copy's id: both stores have the same
    address: str  #: of the other store, without its password
    fills: bool = False  #: it is the target
    finished: bool = False  #: the target has everything
    copied: dict[str, str] = {}  #: of a target: section → cursor; a store may keep them elsewhere

    @property
    def closed(self) -> bool:
        """Whether the store takes no jobs and gives no claims."""
        return not (self.fills and self.finished)

    def refusal(self, store: object) -> StoreError:
        """Return the error of a push, claim or action on this store."""
        if not self.fills:
            return StoreMoved.of(store, self.address)
        what = f"{store} is being filled by a copy of {self.address}: it takes no jobs and gives no claims before that has ended"
        return StoreUnavailable(f"{what}. Nothing was written. If the copy was stopped, start it again.", written=False)


_moves = msgspec.json.Decoder(Move)


def write_move(move: Move) -> bytes:
    """Return a store's part in a copy as JSON."""
    return msgspec.json.encode(move)


def read_move(raw: bytes) -> Move:
    """Return a store's part in a copy."""
    try:
        return _moves.decode(raw)
    except msgspec.DecodeError:
        return Move("", "another store")


class StoredQueue(Struct, frozen=True, kw_only=True):
    """A queue, and from where its numbers go on."""

    paused_at: int | None  #: since when it is paused, microseconds; None: it is not
    paused_by: str
    collects: bool
    now: int  #: the time it has seen, microseconds: jobs that come later must not have an earlier place
    number: int  #: its last sequence number
    score: float  #: the last score that a payload was given
    sources: dict[str, int] = {}  #: outbox → its highest number that this queue has taken


class _StoredFields(Struct, frozen=True, kw_only=True):
    """What a job and the record of a finished one have in common."""

    id: str
    task: str
    lane: str | None
    priority: int
    number: int  #: its sequence number: among jobs of one place the lower comes first
    place: int  #: microseconds, as the next two
    due: int  #: of a dead one: when it died; of a record: when it ended
    enqueued: int
    state: State  #: `ready` (or scheduled, by its due time), `retrying`, `blocked`, `dead`; of a record `done` or `cancelled`
    attempt: int = 0
    errors: list[ErrorInfo]
    notes: bytes = b""
    body: bytes


class StoredJob(_StoredFields, frozen=True, kw_only=True):
    """A job that does not run; or a collector's lane, or a dead payload, which are jobs of their queue."""

    holds: bool = False  #: it holds its lane; a dead one halts it
    ran: bool = False  #: it has started
    unique: str | None = None  #: its unique key, as long as that prevents equal jobs
    end_key: str | None = None  #: the key if it lasts until the job's end; a dead one takes it again when it is replayed
    expires: int | None = None  #: it does not start later, microseconds; None: no limit, or it has started
    lost: str = ""  #: why its last claim was lost
    collects: bool = False  #: it is a collector's lane
    score: float | None = None  #: it is a collector's dead payload


class StoredRecord(_StoredFields, frozen=True, kw_only=True):
    """The record of a finished job."""

    worker: str
    started: int
    until: int  #: it is kept until then, microseconds
    value: bytes | None  #: its result; None: it was cancelled


class StoredPayload(Struct, frozen=True, kw_only=True):
    """A payload that waits in a collector's lane."""

    lane: str
    score: float
    arrival: int
    body: bytes
    headers: str


class StoredSchedule(Struct, frozen=True):
    """The state of a schedule."""

    name: str
    last: int | None  #: up to which time its occurrences have fired, microseconds
    paused_by: str | None
    entry: bytes | None


class SharedState(Struct, frozen=True, kw_only=True):
    """What concerns the whole store."""

    schedules: list[StoredSchedule]
    totals: dict[str, int]
    learned: dict[str, Seen]
    figures: list[tuple[int, int, bytes]]  #: level, begin, encoded bucket
    faults: list[tuple[str, int, int, int, bytes]]  #: id, how often, when seen first and last, the last one


class Portion(Struct, frozen=True, kw_only=True):
    """A part of a section's content, of one kind. With its cursor the next one begins behind it."""

    section: str
    cursor: str
    before: str = ""  #: the section's cursor before it
    shared: SharedState | None = None
    queue: StoredQueue | None = None
    jobs: list[StoredJob] = []
    payloads: list[StoredPayload] = []
    records: list[StoredRecord] = []

    @property
    def size(self) -> int:
        """The number of jobs, payloads and records in it."""
        return len(self.jobs) + len(self.payloads) + len(self.records)


class StoredCounts(Struct, frozen=True, kw_only=True):
    """How much a store holds, counted where it is."""

    waiting: int
    blocked: int
    running: int
    dead: int
    payloads: int  #: that wait in lanes of collectors
    schedules: int
    records: int

    @property
    def jobs(self) -> int:
        """The number of jobs, and of lanes and dead payloads of collectors."""
        return self.waiting + self.blocked + self.running + self.dead

    def as_dict(self) -> dict[str, int]:
        """Return it as a dict."""
        return cast("dict[str, int]", msgspec.structs.asdict(self))


class Transfer(Protocol):
    """The side of a store that takes part in copies."""

    def move(self) -> Move | None:
        """Return its part in a copy, if there is or was one."""
        ...

    def close(self, move: Move) -> Move:
        """Close a source, and wake all waiting workers. If the store has a part in a copy already, that one stays; return it."""
        ...

    def begin(self, move: Move, queues: Collection[str]) -> Move:
        """Close a target, which will have these queues. If it has a part in a copy already, that one stays; return it."""
        ...

    def finish(self) -> None:
        """Note that all was copied. A target is open from now on, and wakes all waiting workers."""
        ...

    def reopen(self) -> None:
        """Forget the copy, and wake all waiting workers."""
        ...

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        ...

    def export(self, done: Mapping[str, str]) -> Iterator[Portion]:
        """Walk the content of a closed source without running jobs, in portions, without those up to the cursors in `done`."""
        ...

    def copied(self) -> dict[str, str]:
        """Return the cursors of a target, by section."""
        ...

    def take(self, portion: Portion) -> None:
        """Take a portion and its cursor, in one step. Raise StoreError if the section's cursor is not at `Portion.before`."""
        ...

    def stored_counts(self) -> StoredCounts:
        """Count what the store holds, whatever its books say."""
        ...


Kind = TypeVar("Kind", "StoredJob", "StoredPayload", "StoredRecord")


def chunks(items: Sequence[Kind]) -> Iterator[list[Kind]]:
    """Walk what is to be one portion, in parts that are not too large to be sent at once."""
    part: list[Kind] = []
    size = 0
    for item in items:
        part.append(item)
        size += len(item.body)
        if size > LARGEST:
            yield part
            part, size = [], 0
    if part:
        yield part


def transfer_of(store: Store) -> Transfer:
    """Return the side of a store that takes part in copies."""
    make = getattr(store, "transfer", None)
    if make is None:
        raise ConfigError(f"{store} cannot be copied: this kind of store has no way to export its jobs, or to take others")
    return cast("Transfer", make())


def out_of_step(section: str) -> StoreError:
    """Return the error of a target that is not where the copier believes it to be."""
    what = f'queue "{section}"' if section else "the schedules"
    return StoreError(f"{what}: another process copies into this store, or did. Stop it, and start the copy again")
