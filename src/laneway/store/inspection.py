"""The inspection side: look, find and act. Never used by workers.

`Inspect` is what a store offers; `app.inspect` and `app.stats` are its faces for users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from laneway.core.buckets import Depth
from laneway.core.codec import open_body
from laneway.core.job import State
from laneway.core.outcome import ErrorInfo
from laneway.core.plain import Plain
from laneway.errors import GarbageError
from laneway.store.error_groups import ErrorGroup
from laneway.store.runs import Run
from laneway.store.statistics import Kept, Level

__all__ = [
    "Counts",
    "Filter",
    "Inspect",
    "JobInfo",
    "LANE_ORDERS",
    "LaneInfo",
    "LanePage",
    "Page",
    "PayloadInfo",
    "PayloadPage",
    "QueueInfo",
    "RunningJob",
    "StoreInfo",
    "StoredResult",
    "WorkerStatus",
]

#: Jobs by state: scheduled, ready, retrying, blocked, running, dead.
Counts = dict[str, int]


class JobInfo(Plain, frozen=True, kw_only=True):
    """A job as it stands in the store; or a collector's lane, or one of its dead payloads."""

    id: str
    task: str
    queue: str
    lane: str | None
    priority: int
    state: State
    attempt: int  #: attempts that counted so far
    enqueued_at: datetime
    place_at: datetime  #: since when it could run for the first time: its place in its lane
    due_at: datetime  #: when it may be claimed; of a dead job: when it died
    expires_at: datetime | None = None  #: it is not to start later; None: never too late, or it has started
    unique: bool = False  #: an equal job is not taken: it has a key, and was never claimed
    holds: bool = False  #: it holds its lane
    worker: str | None  #: who holds its claim
    token: int | None
    mark: str | None  #: what was asked of a running job: cancel, delete, kill
    errors: list[ErrorInfo]  #: oldest first, the last ten
    body: bytes  #: as stored; of a collector a call: without arguments for a lane, with the payload for a dead one
    payloads: int | None = None  #: how many a collector's lane has, what runs included; None: it is no such lane
    score: float | None = None  #: of a collector's dead payload
    progress: tuple[float, float] | None = None  #: done, of total, as its run told
    log: list[str] = msgspec.field(default_factory=list[str])  #: the last lines its run wrote

    @property
    def args(self) -> list[Any] | None:
        """The positional arguments as plain JSON values; None if the body is garbage."""
        return None if (call := self._call()) is None else call[0]

    @property
    def kwargs(self) -> dict[str, Any] | None:
        """The keyword arguments as plain JSON values; None if the body is garbage."""
        return None if (call := self._call()) is None else call[1]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values, with the arguments in place of the stored bytes."""
        known = super().as_dict()
        del known["body"]
        return {**known, "args": self.args, "kwargs": self.kwargs}

    def _call(self) -> tuple[list[Any], dict[str, Any]] | None:
        try:
            envelope = open_body(self.body)
            read = msgspec.json.decode
            return [read(value) for value in envelope.args], {name: read(value) for name, value in envelope.kwargs.items()}
        except (GarbageError, msgspec.MsgspecError, RecursionError):
            return None


class LaneInfo(Plain, frozen=True, kw_only=True):
    """A lane that has something to do: a collector's, or one that jobs wait and run in."""

    queue: str
    lane: str
    task: str  #: the collector, or the task of the job at its head
    collects: bool  #: it is a collector's
    state: State  #: of the lane, or of the job at its head; `dead`: it is halted by a dead job
    size: int  #: payloads, or jobs, what runs included
    attempts: int  #: that failed so far, of the lane or of the job at its head
    due_at: datetime  #: when it may run, or could have
    lag: float  #: seconds since it could have; 0 while it is due later
    head: str  #: the id of the lane, or of the job at its head: who holds it, else who is next
    error: ErrorInfo | None = None  #: the last one, of the lane or of the job at its head


#: How lanes can be listed; with - in front the other way round.
LANE_ORDERS = {
    "lag": "the longest overdue first",
    "size": "the largest first",
    "attempts": "the most failed attempts first",
    "due": "the first to run first",
    "name": "by name",
}


class LanePage(list[LaneInfo]):
    """Some lanes, and where to go on: `lanes(after=page.next)`; None on the last page."""

    next: str | None = None


class PayloadInfo(Plain, frozen=True, kw_only=True):
    """A payload in a collector's lane."""

    body: bytes  #: canonical JSON; empty if it was left out
    score: float
    running: bool  #: it is in the lane's run, and not among those that gather

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values, with the payload itself in place of the stored bytes."""
        known = super().as_dict()
        del known["body"]
        return {**known, "value": self.value}

    @property
    def value(self) -> Any:
        """The payload as plain JSON values; None if it was left out, or is garbage."""
        try:
            return msgspec.json.decode(self.body) if self.body else None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None


class PayloadPage(list[PayloadInfo]):
    """Some payloads, and where to go on: `payloads(after=page.next)`; None on the last page."""

    next: str | None = None


class QueueInfo(Plain, frozen=True):
    """A queue and how many of its jobs are in each state."""

    name: str
    paused: bool
    counts: Counts
    paused_by: str = ""  #: who paused it, if somebody said so
    paused_at: datetime | None = None  #: since when it is paused
    collects: bool = False  #: it is a collector's: lanes are counted, and dead payloads
    lag: float = 0.0  #: seconds that its oldest due job has waited; 0: none is due


class RunningJob(Plain, frozen=True):
    """A job that a worker holds."""

    id: str
    task: str
    queue: str
    lane: str | None
    token: int
    started_at: datetime | None  #: None: it was claimed after the last beat, or still waits inside the worker


class WorkerStatus(Plain, frozen=True, kw_only=True):
    """A worker as the store knows it: by its last beat, and by what it holds now.

    One that holds claims and never beat is known by its id and its jobs alone.
    """

    id: str
    host: str
    pid: int
    fleet: str  #: shared by the workers of one fleet; empty: a worker inside a program
    version: str
    queues: tuple[str, ...]  #: empty: all
    tasks: tuple[str, ...]  #: the names of the tasks it knows
    slots: int
    phase: str  #: working, quiet (it claims nothing more), stopping
    started_at: datetime | None  #: None if it is not known, as the other three
    uptime: float | None  #: seconds
    last_beat: datetime | None
    beat_age: float | None  #: seconds
    rss: int  #: bytes, at the last beat
    pss: int  #: the same, with what it shares with others counted by its share
    jobs: list[RunningJob]  #: in the order of claiming; of a collector's run each lane
    balance: str = ""  #: what deals its slots to queues: a policy's name; empty: it did not say

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values, with how many of its slots are busy."""
        return {**super().as_dict(), "busy": self.busy}

    @property
    def held(self) -> int:
        """How many runs it holds: a collector's run is one, however many lanes it has. A few may wait there for a slot."""
        return len({job.token for job in self.jobs})

    @property
    def busy(self) -> int:
        """How many of its slots have something to do."""
        return min(self.held, self.slots) if self.slots else self.held

    @property
    def busy_by_queue(self) -> dict[str, int]:
        """How many of its busy slots each queue has, those with the most first; together they are `busy`.

        What it fetched ahead takes no slot. Runs that it told of do; the slots that are left have what it claimed first.
        """
        runs = {job.token: job for job in self.jobs}
        in_slots = sorted(runs.values(), key=lambda job: job.started_at is None)[: self.busy]
        queues = Counter([job.queue for job in in_slots])
        return dict(sorted(queues.items(), key=lambda pair: (-pair[1], pair[0])))


class Page(list[JobInfo]):
    """Some jobs, and where to go on: `jobs(after=page.next)`; None on the last page."""

    next: str | None = None


class Filter(Struct, frozen=True):
    """Which jobs: those that fit everything that is given."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    error: str | None = None  #: a part of the last error's kind or message
    ids: tuple[str, ...] | None = None
    failing: bool = False  #: only what has failed, and is not dead: it has attempts that counted
    look: int | None = None  #: a list looks at no more than about so many: its page may be short, and yet go on

    @property
    def is_indexed(self) -> bool:
        """Whether a store finds these without looking at others."""
        return (self.task, self.lane, self.error, self.ids, self.failing) == (None, None, None, None, False)


class StoredResult(Struct, frozen=True):
    """How a job stands, for who waits for its result."""

    state: State
    value: bytes | None = None
    error: ErrorInfo | None = None


class StoreInfo(Plain, frozen=True, kw_only=True):
    """What a store says of itself: its program, its size, its connections."""

    kind: str  #: SQLite, Redis, Valkey
    version: str  #: the program's
    layout: int  #: the version of our tables or keys
    memory: int | None = None  #: bytes: of a server its memory, of a file its size
    most: int | None = None  #: bytes it may have; None: not limited
    in_file: bool = False  #: `memory` is a file's size
    clients: int | None = None  #: connections
    uptime: float | None = None  #: seconds
    warning: str = ""  #: what may cost jobs


class Inspect(Protocol):
    """What a store shows and does on request."""

    def about(self) -> StoreInfo:
        """Say what the store is. One that does not tell has nothing to show."""
        ...

    def counts(self) -> Counts:
        """Count the jobs in each state."""
        ...

    def queues(self) -> list[QueueInfo]:
        """List the queues by name."""
        ...

    def jobs(self, which: Filter, limit: int, after: str | None, newest: bool = False) -> Page:
        """List jobs, the oldest or the newest first, after a job's id or a page's `next`.

        A page costs as much however many jobs there are, if it is by state and queue alone. Where there is an index by arrival
        they come by that. Where there is none, in groups: what runs by claim, what waits by due time, what is parked by place,
        what is dead by when it died.
        """
        ...

    def count(self, which: Filter) -> int:
        """Count jobs. Exact, and may look at every job."""
        ...

    def job(self, id: str) -> JobInfo | None:  # noqa: A002 - the glossary's word
        """Return a job that is in the store."""
        ...

    def lane_holder(self, queue: str, lane: str) -> JobInfo | None:
        """Return the job that holds a lane."""
        ...

    def parked_before(self, id: str) -> int:  # noqa: A002
        """Count the jobs that wait in a parked job's lane before it, without the lane's holder; 0 for one that is not parked."""
        ...

    def result(self, id: str) -> StoredResult:  # noqa: A002
        """Say how a job stands, finished ones included, as far as results and recent runs reach."""
        ...

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job (with a new place, its attempts forgotten), or make a waiting retry due now.

        One whose death halts its lane keeps its place. A collector's dead payload goes back into its lane, which is due now. A
        waiting lane of a collector is due now, whatever it waited for.
        """
        ...

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a waiting job at once, mark a running one. False if there is nothing to cancel."""
        ...

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a waiting or dead job at once, mark a running one. False if there is none."""
        ...

    def kill(self, id: str) -> bool:  # noqa: A002
        """Let a job die: a waiting one at once, a running one when its run has ended without success. False if it is dead."""
        ...

    # Of a collector's lane cancel, delete and kill mean all its payloads: those that wait or gather at once (killed, each is dead
    # by itself); those that run when their run has ended without success. What comes later stays. `reschedule` sets its due time.

    def lanes(self, queue: str | None, order: str, limit: int, after: str | None, name: str | None = None) -> LanePage:
        """List the lanes of a queue, or of all, in one of `LANE_ORDERS`, ties by queue and name; with a name only that one."""
        ...

    def payloads(self, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
        """List the payloads of a collector's lane: first what runs, then what waits or gathers, each by score."""
        ...

    def drop_oldest(self, queue: str, lane: str) -> PayloadInfo | None:
        """Remove the payload with the lowest score among those of a collector's lane that do not run. None if there is none."""
        ...

    def reschedule(self, id: str, delay: int, at: int) -> bool:  # noqa: A002
        """Make a waiting job due at another time (given as a `Job`'s). False if it runs or is dead.

        One that has never started takes a new place and leaves its lane's line. One that has only moves its due time: it keeps
        its place and its lane.
        """
        ...

    def act_all(self, action: str, which: Filter, delay: int = 0, at: int = 0) -> int:
        """Retry, cancel, delete, kill or reschedule all jobs that match now. Returns how many were changed.

        In turns of at most 500 jobs, so that none is long. Jobs that come to match meanwhile are not touched, nor those that do
        not match any more when their turn comes.
        """
        ...

    def clear(self, queue: str) -> int:
        """Remove all waiting jobs of a queue, in turns. What runs goes on, what is dead stays. Returns how many there were."""
        ...

    def pause(self, queue: str, paused: bool, declared: Collection[str] = (), by: str = "") -> None:
        """Stop or resume claims from a queue. It may be stopped before its first job.

        To resume one that was neither stopped nor ever had a job raises `UnknownQueue`, unless it is among the declared ones.
        """
        ...

    def pause_schedule(self, name: str, paused: bool, by: str = "") -> None:
        """Stop or resume a schedule; one that has never fired too. The slots that pass while it is paused are skipped."""
        ...

    def workers(self) -> list[WorkerStatus]:
        """List the workers that beat or hold claims, by host, pid and id."""
        ...

    def tell(self, worker: str, command: str) -> bool:
        """Leave a command for a worker's next beat. False if it is not known."""
        ...

    def totals(self) -> dict[str, int]:
        """Return the counters since the store began."""
        ...

    def recent(self, limit: int) -> list[Run]:
        """Return the last runs, newest first."""
        ...

    def figures(self, level: Level, number: int, depth: Depth = "times") -> Kept:
        """Return the last so many buckets of a level, and no more of them than is wanted."""
        ...

    def errors(self, limit: int) -> list[ErrorGroup]:
        """Return failures by kind, the last seen first."""
        ...

    def forget_error(self, id: str) -> bool:  # noqa: A002
        """Forget a kind of failure, until it is seen again. False if it is not known."""
        ...
