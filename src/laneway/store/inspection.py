"""The inspection side: queries and actions. Never used by workers.

`Inspect` is what a store offers; users reach it through `app.inspect` and `app.stats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from laneway.core.buckets import Depth
from laneway.core.codec import open_body
from laneway.core.job import STATES, State
from laneway.core.outcome import ErrorInfo, Notes
from laneway.core.plain import Plain
from laneway.errors import GarbageError
from laneway.store.error_groups import ErrorGroup
from laneway.store.findings import Finding
from laneway.store.runs import Run
from laneway.store.statistics import Kept, Level

__all__ = [
    "TOTALS", "Counts", "Filter", "Inspect", "JobInfo", "LaneInfo", "LanePage", "Page", "PayloadInfo", "PayloadPage",
    "QueueInfo", "RunningJob", "StoreInfo", "StoredResult", "WorkerStatus", "read_notes", "sum_counts",
]  # fmt: skip

#: The counters since a store was created.
TOTALS = ("enqueued", "merged", "processed", "failed", "retried", "dead", "cancelled", "recovered", "refused")

Counts = dict[str, int]  #: jobs by state: scheduled, ready, retrying, blocked, running, dead


def sum_counts(counted: Iterable[Counts]) -> Counts:
    """Add counts up."""
    sums: Counts = dict.fromkeys(STATES, 0)
    for counts in counted:
        for state, number in counts.items():
            sums[state] += number
    return sums


_notes = msgspec.json.Decoder(Notes)


def read_notes(stored: bytes | None) -> Notes:
    """Return what is kept of a run's progress and log."""
    try:
        return _notes.decode(stored) if stored else Notes()
    except (ValueError, RecursionError):
        return Notes(log=["(the notes of this run cannot be read)"])


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
    place_at: datetime  #: the first time it could run: its place in its lane
    due_at: datetime  #: when it may be claimed; of a dead or finished job: when it ended
    expires_at: datetime | None = None  #: it does not start after this; None: no limit, or it has started
    unique: bool = False  #: its unique key prevents equal jobs at present
    holds: bool = False  #: it holds its lane
    worker: str | None  #: the worker that holds its claim, or ran it
    token: int | None
    mark: str | None  #: what was asked of a running job: cancel, delete, kill
    errors: list[ErrorInfo]  #: oldest first, the last ten
    body: bytes  #: as stored; of a collector a call: without arguments for a lane, with the payload for a dead one
    payloads: int | None = None  #: payloads of a collector's lane, running ones included; None: not a collector's lane
    score: float | None = None  #: of a collector's dead payload
    progress: tuple[float, float] | None = None  #: (done, total), as reported by its run
    log: list[str] = msgspec.field(default_factory=list[str])  #: the last lines its run wrote
    started_at: datetime | None = None  #: of a finished job: when its last run began
    finished_at: datetime | None = None  #: and when it ended

    @property
    def args(self) -> list[Any] | None:
        """Return the positional arguments as plain JSON values; None if the body is garbage."""
        return None if (call := self._call()) is None else call[0]

    @property
    def kwargs(self) -> dict[str, Any] | None:
        """Return the keyword arguments as plain JSON values; None if the body is garbage."""
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
    """A lane with work: a collector's, or one that jobs wait and run in."""

    queue: str
    lane: str
    task: str  #: the collector, or the task of the job at its head
    collects: bool  #: it belongs to a collector
    state: State  #: of the lane, or of the job at its head; `dead`: it is halted by a dead job
    size: int  #: payloads, or jobs, running ones included
    attempts: int  #: failed attempts so far, of the lane or of the job at its head
    due_at: datetime  #: when it may run, or could have
    lag: float  #: seconds since it could have; 0 while it is due later
    head: str  #: the id of the lane, or of the job at its head: its holder, else the next job
    error: ErrorInfo | None = None  #: the last one, of the lane or of the job at its head


class LanePage(list[LaneInfo]):
    """Some lanes, and where to continue: `lanes(after=page.next)`; None on the last page."""

    next: str | None = None


class PayloadInfo(Plain, frozen=True, kw_only=True):
    """A payload in a collector's lane."""

    body: bytes  #: canonical JSON; empty if it was left out
    score: float
    running: bool  #: it is in the lane's run, not among the gathering ones

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values, with the payload itself in place of the stored bytes."""
        known = super().as_dict()
        del known["body"]
        return {**known, "value": self.value}

    @property
    def value(self) -> Any:
        """Return the payload as plain JSON values; None if it was left out, or is garbage."""
        try:
            return msgspec.json.decode(self.body) if self.body else None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None


class PayloadPage(list[PayloadInfo]):
    """Some payloads, and where to continue: `payloads(after=page.next)`; None on the last page."""

    next: str | None = None


class QueueInfo(Plain, frozen=True):
    """A queue and how many of its jobs are in each state."""

    name: str
    paused: bool
    counts: Counts
    paused_by: str = ""  #: the name given with the pause; empty: none given
    paused_at: datetime | None = None  #: since when it is paused
    collects: bool = False  #: it belongs to a collector: lanes are counted, and dead payloads
    lag: float = 0.0  #: seconds that its oldest due job has waited; 0: no job is due


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

    A worker that holds claims and never beat is known by its id and its jobs alone.
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
    started_at: datetime | None  #: None if not known, as the other three
    uptime: float | None  #: seconds
    last_beat: datetime | None
    beat_age: float | None  #: seconds
    rss: int  #: bytes, at the last beat
    pss: int  #: proportional set size, bytes: memory shared with other processes counts by its share
    jobs: list[RunningJob]  #: in the order of claiming; for a collector's run one entry per lane
    balance: str = ""  #: the name of the policy that deals its slots to queues; empty: not reported

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values, with how many of its slots are busy."""
        return {**super().as_dict(), "busy": self.busy}

    @property
    def held(self) -> int:
        """The number of runs it holds: a collector's run is one, however many lanes it has. A few may wait there for a slot."""
        return len({job.token for job in self.jobs})

    @property
    def busy(self) -> int:
        """The number of its slots in use."""
        return min(self.held, self.slots) if self.slots else self.held

    @property
    def busy_by_queue(self) -> dict[str, int]:
        """The number of busy slots per queue, highest first; together they are `busy`.

        A prefetched job takes no slot. Reported runs take one each; the remaining slots go to the jobs claimed first.
        """
        runs = {job.token: job for job in self.jobs}
        in_slots = sorted(runs.values(), key=lambda job: job.started_at is None)[: self.busy]
        queues = Counter([job.queue for job in in_slots])
        return dict(sorted(queues.items(), key=lambda pair: (-pair[1], pair[0])))


class Page(list[JobInfo]):
    """Some jobs, and where to continue: `jobs(after=page.next)`; None on the last page."""

    next: str | None = None


class StoreInfo(Plain, frozen=True, kw_only=True):
    """What a store reports about itself: its program, its size, its connections."""

    kind: str  #: SQLite, Redis, Valkey, PostgreSQL
    version: str  #: the program's
    layout: int  #: the version of Laneway's tables or keys
    memory: int | None = None  #: bytes: a server's memory, or a file's size
    most: int | None = None  #: bytes it may have; None: not limited
    in_file: bool = False  #: `memory` is a file's size
    clients: int | None = None  #: connections
    uptime: float | None = None  #: seconds
    warning: str = ""  #: a setting of the server that may lose jobs


class Filter(Struct, frozen=True):
    """Selects the jobs that match all given fields."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    error: str | None = None  #: a part of the last error's kind or message
    ids: tuple[str, ...] | None = None
    failing: bool = False  #: only jobs with counted attempts that are not dead
    look: int | None = None  #: the most jobs, roughly, that a list examines: its page may be short, and yet have a next one

    @property
    def is_indexed(self) -> bool:
        """Whether a store finds these jobs without looking at others."""
        return (self.task, self.lane, self.error, self.ids, self.failing) == (None, None, None, None, False)


class StoredResult(Struct, frozen=True):
    """The state of a job, for a caller that waits for its result."""

    state: State
    value: bytes | None = None
    error: ErrorInfo | None = None
    task: str = ""  #: of a finished job, if known


class Inspect(Protocol):
    """The queries and actions of a store."""

    def about(self) -> StoreInfo:
        """Describe the store. A field that it does not report stays empty."""
        ...

    def examine(self, deep: bool = False) -> list[Finding]:
        """Judge the store's settings and surroundings. With `deep` also what takes long: it may read everything."""
        ...

    def counts(self) -> Counts:
        """Count the jobs in each state."""
        ...

    def queues(self) -> list[QueueInfo]:
        """List the queues by name."""
        ...

    def jobs(self, which: Filter, limit: int, after: str | None, newest: bool = False) -> Page:
        """List jobs, the oldest or the newest first, after a job's id or a page's `next`.

        A page by state and queue alone costs the same however many jobs there are. Jobs come by arrival; without an index for
        that in groups: running by claim, waiting by due time, parked by place, dead and finished ones by their end.
        """
        ...

    def count(self, which: Filter) -> int:
        """Count jobs. Exact, and may look at every job."""
        ...

    def job(self, id: str) -> JobInfo | None:  # noqa: A002 - the glossary's word
        """Return a job that is in the store, or the record of a finished one, while it is kept."""
        ...

    def lane_holder(self, queue: str, lane: str) -> JobInfo | None:
        """Return the job that holds a lane."""
        ...

    def parked_before(self, id: str) -> int:  # noqa: A002
        """Count the jobs that wait before a parked job in its lane, without the lane's holder; 0 for a job that is not parked."""
        ...

    def result(self, id: str) -> StoredResult:  # noqa: A002
        """Return the state of a job, finished ones included, as far as results and recent runs reach."""
        ...

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job (with a new place, its attempts forgotten), or make a waiting retry due now.

        A job whose death halts its lane keeps its place. A collector's dead payload goes back into its lane, which is due now. A
        waiting lane of a collector is due now, whatever it waited for.
        """
        ...

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a waiting job at once, mark a running one. Returns False if there is nothing to cancel."""
        ...

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a waiting, dead or finished job at once, mark a running one. Nothing else can be done to a finished one."""
        ...

    def kill(self, id: str) -> bool:  # noqa: A002
        """Let a job die: a waiting one at once, a running one when its run ended without success. Returns False if it is dead."""
        ...

    # Of a collector's lane, cancel, delete and kill change all payloads, running ones when their run ended without success. Later
    # ones stay. Each killed payload is dead by itself. `reschedule` sets the lane's due time.

    def lanes(self, queue: str | None, order: str, limit: int, after: str | None, name: str | None = None) -> LanePage:
        """List the lanes of a queue, or of all, in one of `LANE_ORDERS`, ties by queue and name; with a name only that lane."""
        ...

    def payloads(self, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
        """List the payloads of a collector's lane: first running ones, then waiting or gathering ones, each by score."""
        ...

    def drop_oldest(self, queue: str, lane: str) -> PayloadInfo | None:
        """Remove and return the payload with the lowest score of a collector's lane, except running ones; None without one."""
        ...

    def reschedule(self, id: str, delay: int, at: int) -> bool:  # noqa: A002
        """Make a waiting job due at another time (given as for a `Job`). Returns False if it runs or is dead.

        A job that has never started takes a new place and leaves its lane's line. A job that has started only moves its due time:
        it keeps its place and its lane.
        """
        ...

    def act_all(self, action: str, which: Filter, delay: int = 0, at: int = 0) -> int:
        """Retry, cancel, delete, kill or reschedule all jobs that match now. Returns the number of jobs changed.

        In steps of at most 500 jobs, each a short transaction: a job is changed if it matches at the beginning and in its step.
        """
        ...

    def clear(self, queue: str) -> int:
        """Remove all waiting jobs of a queue, in steps; running and dead ones stay. Returns the number of jobs removed."""
        ...

    def pause(self, queue: str, paused: bool, declared: Collection[str] = (), by: str = "") -> None:
        """Stop or resume claims from a queue. It may be paused before its first job.

        Resuming a queue that was neither paused nor ever had a job raises `UnknownQueue`, unless it is in `declared`.
        """
        ...

    def pause_schedule(self, name: str, paused: bool, by: str = "") -> None:
        """Stop or resume a schedule, also one that has never fired. Occurrences that pass while it is paused are skipped."""
        ...

    def set_schedule(self, name: str, entry: bytes) -> None:
        """Keep a schedule in the store, from now on. One that is kept under this name is replaced, and stays paused if it was.

        No occurrence before now will fire, and none that has fired.
        """
        ...

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule that is kept in the store, and all that is known of it. Returns False if there is none."""
        ...

    def workers(self) -> list[WorkerStatus]:
        """List the workers that beat or hold claims, by host, pid and id."""
        ...

    def tell(self, worker: str, command: str) -> bool:
        """Leave a command for a worker's next beat. Returns False if the worker is not known."""
        ...

    def totals(self) -> dict[str, int]:
        """Return the counters since the store was created."""
        ...

    def recent(self, limit: int) -> list[Run]:
        """Return the last runs, newest first."""
        ...

    def figures(self, level: Level, number: int, depth: Depth = "times") -> Kept:
        """Return the last `number` buckets of a level, read only to `depth`."""
        ...

    def errors(self, limit: int) -> list[ErrorGroup]:
        """Return failures by kind, the most recent first."""
        ...

    def forget_error(self, id: str) -> bool:  # noqa: A002
        """Forget a kind of failure, until it is seen again. Returns False if it is not known."""
        ...
