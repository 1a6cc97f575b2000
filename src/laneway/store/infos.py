"""What the inspection side shows: jobs, lanes, payloads, queues, workers and the store itself, as values.

Enters: what a store has read.  Leaves: values that are plain dicts by `as_dict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from laneway.core.codec import open_body
from laneway.core.job import STATES, State
from laneway.core.outcome import ErrorInfo, Notes
from laneway.core.plain import Plain
from laneway.errors import GarbageError

__all__ = [
    "Counts", "JobInfo", "LaneInfo", "LanePage", "Page", "PayloadInfo", "PayloadPage", "QueueInfo", "RunningJob", "StoreInfo",
    "WorkerStatus", "read_notes", "sum_counts",
]  # fmt: skip

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
