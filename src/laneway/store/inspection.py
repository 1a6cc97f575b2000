"""The inspection side: queries and actions. Never used by workers.

`Inspect` is what a store offers; users reach it through `app.inspect` and `app.stats`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from laneway.core.buckets import Depth
from laneway.core.job import State
from laneway.core.outcome import ErrorInfo
from laneway.store.error_groups import ErrorGroup
from laneway.store.findings import Finding
from laneway.store.infos import (
    Counts,
    JobInfo,
    LaneInfo,
    LanePage,
    Page,
    PayloadInfo,
    PayloadPage,
    QueueInfo,
    RunningJob,
    StoreInfo,
    WorkerStatus,
    read_notes,
    sum_counts,
)
from laneway.store.runs import Run
from laneway.store.statistics import Kept, Level

__all__ = [
    "Counts", "Filter", "Inspect", "JobInfo", "LaneInfo", "LanePage", "Page", "PayloadInfo", "PayloadPage",
    "QueueInfo", "RunningJob", "StoreInfo", "StoredResult", "WorkerStatus", "read_notes", "sum_counts",
]  # fmt: skip


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
