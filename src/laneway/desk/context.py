"""What a task's code can know and report about its own job while it runs.

`current_job()` is the job that runs here: in a thread, in a coroutine, and in what they call. The exceptions end a run in another
way than by its result.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from laneway.core.headers import read_headers
from laneway.core.instant import FAR
from laneway.core.job import Claim, check_lane
from laneway.core.outcome import Cancelled, Dead, Done, FinishMark, Notes, Outcome, Retrying, Snoozed
from laneway.desk.task_base import TaskBase
from laneway.errors import NoCurrentJob

if TYPE_CHECKING:
    from laneway.transactions.receipts import Once

__all__ = [
    "Cancel",
    "JobContext",
    "LaneFailures",
    "NO_RESOURCES",
    "RetryIn",
    "Snooze",
    "check_seconds",
    "current_job",
    "gravest",
    "running_job",
]

#: How many log lines a job keeps, and how long each may be.
LOG_LINES = 100
LINE_LENGTH = 1000
_GRAVITY = (Done, Cancelled, Snoozed, Retrying, Dead)
#: Where no lifespan yields any.
NO_RESOURCES: Mapping[str, Any] = MappingProxyType({})


class Snooze(Exception):
    """Not yet: run again after some seconds. The job keeps its place, and no attempt counts."""

    __module__ = "laneway"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds:g} s")
        self.seconds = check_seconds("Snooze", seconds)


class RetryIn(Exception):
    """This attempt failed: try again after exactly `seconds` seconds."""

    __module__ = "laneway"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"to be retried in {seconds:g} s")
        self.seconds = check_seconds("RetryIn", seconds)


class Cancel(Exception):
    """The job is no longer wanted."""

    __module__ = "laneway"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled")
        self.reason = str(reason)


class LaneFailures(Exception):
    """A collector's run failed for some of its lanes; the others are done.

    Each lane's error is judged by itself: the lane is retried; or, for a Snooze, Cancel or RetryIn, as that says.
    """

    __module__ = "laneway"

    def __init__(self, failures: Mapping[Any, BaseException | str]) -> None:
        self.failures: dict[str, BaseException] = {}
        for lane, error in failures.items():
            made = error if isinstance(error, BaseException) else LaneFailed(str(error))
            self.failures[check_lane(lane)] = made
        super().__init__(f"{len(self.failures)} lanes failed: {', '.join(list(self.failures)[:5])}")


class LaneFailed(Exception):
    """A lane failed, and LaneFailures gives the reason as text."""


def check_seconds(name: str, seconds: float) -> float:
    """Return a time to wait, or raise ValueError."""
    if not 0 <= seconds <= FAR:
        raise ValueError(f"{name}({seconds!r}): use seconds from 0 to ten years")
    return seconds


def gravest(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the outcome that says most about a run with several lanes; None if there is none."""
    if len(outcomes) == 1:
        return outcomes[0]
    return max(outcomes, key=lambda outcome: _GRAVITY.index(type(outcome)), default=None)


class JobContext(Struct, eq=False):
    """The job that runs here."""

    claim: Claim
    args: list[Any]
    kwargs: dict[str, Any]
    headers: Mapping[str, str]
    started: int = 0  #: by this worker's clock, microseconds
    resources: Mapping[str, Any] = NO_RESOURCES  #: what the lifespans of this process have yielded, by name
    row: int = 0  #: its row on the worker's board
    #: True once a user or a worker asked to cancel the job: a long task checks it now and then, and raises Cancel.
    cancelled: bool = False
    outcomes: tuple[Outcome, ...] = ()  #: what its run meant, for each of `ids`; empty while it runs
    declared: TaskBase | None = None  #: the task that runs
    finishes: bool = False  #: `finish` was called, or may have been: a transaction of the user's may have made it done
    marked: FinishMark | None = None  #: what the last `finish` here has written
    claim_may_be_lost: bool = False  #: its claim may have been given to another worker: this run counts only if it succeeds
    notes: Notes | None = None  #: the notes so far
    notes_changed: bool = False

    @property
    def id(self) -> str:
        """The job's id."""
        return self.claim.unit.id

    @property
    def task(self) -> str:
        """The task's name."""
        return self.claim.task

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.claim.queue

    @property
    def lane(self) -> str | None:
        """The job's lane, if it has one; None for a collector's run with more than one lane."""
        return self.claim.unit.lane if len(self.claim.units) == 1 else None

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that it runs in: those of a collector's run, or the job's own."""
        return tuple([unit.lane for unit in self.claim.units if unit.lane is not None])

    @property
    def payloads(self) -> dict[str, list[Any]]:
        """What a collector was called with: its lanes and their payloads. Empty for a task's job."""
        return self.args[0] if self.claim.collects else {}

    @property
    def payload_headers(self) -> tuple[Mapping[str, str], ...]:
        """The headers of a collector's payloads, in their order, equal ones once. Empty for a task's job.

        Equal payloads that were merged have the headers of all.
        """
        return read_headers(payload.headers for unit in self.claim.units for payload in unit.payloads)

    @property
    def batch(self) -> dict[str, list[Any]]:
        """The payloads, by their name before 0.2."""
        warnings.warn("current_job().batch is called .payloads now, and goes with 0.3", DeprecationWarning, stacklevel=2)
        return self.payloads

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that the store knows this run by: a collector's run has one for each lane."""
        return tuple(self.claim.ids)

    @property
    def outcome(self) -> Outcome | None:
        """What the run meant: Done, Retrying, Snoozed, Dead or Cancelled; None while it runs.

        Middlewares see it behind their `yield`. Of a collector's run with several lanes it is the gravest of `outcomes`.
        """
        return gravest(self.outcomes)

    @property
    def attempt(self) -> int:
        """1 in the first run; for a collector's lanes the highest."""
        return max([unit.attempt for unit in self.claim.units])

    @property
    def token(self) -> int:
        """A fencing token that grows with every claim of the job or lane: for systems outside (`update … where token < ?`)."""
        return self.claim.token

    def progress(self, done: float, total: float) -> None:
        """Report the progress; shown with the job within about a second."""
        if not (math.isfinite(done) and math.isfinite(total)):
            raise ValueError(f"progress({done!r}, {total!r}): use numbers")
        self._go_on()
        self._note().progress = (float(done), float(total))

    def log(self, text: object) -> None:
        """Add a line to the job's own log; the last hundred are kept."""
        self._go_on()
        notes = self._note()
        notes.log = [*notes.log, str(text)[:LINE_LENGTH].encode(errors="replace").decode()][-LOG_LINES:]

    def take_notes(self, notes: Notes) -> None:
        """Take over the notes of an isolated run."""
        self.notes = notes
        self.notes_changed = True

    def once(self, connection: Any, name: str = "") -> Once:
        """Write a receipt in your transaction: `with current_job().once(connection) as first:`, or `async with`.

        `first` is False if a run of this job has committed one before. `name` distinguishes several receipts of one job.
        """
        from laneway.transactions.receipts import Once  # noqa: PLC0415 - most jobs need none

        return Once(self.claim, connection, name)

    def finish(self, connection: Any, result: object = None) -> None:
        """Let your transaction finish this job: once it commits the job is done, whatever becomes of this run.

        The store must be in the same database. Commit soon after it, and roll back if it raises ClaimLost.
        """
        from laneway.desk.finish import finish  # noqa: PLC0415 - most jobs need none

        finish(self, connection, result)

    async def afinish(self, connection: Any, result: object = None) -> None:
        """Let your transaction finish this job, with an async connection."""
        from laneway.desk.finish import afinish  # noqa: PLC0415 - most jobs need none

        await afinish(self, connection, result)

    def _go_on(self) -> None:
        """End a run that was cancelled. A thread cannot be stopped from outside, so a run ends at its next call here."""
        if self.cancelled:
            raise Cancel("cancelled while it ran")

    def _note(self) -> Notes:
        if self.notes is None:
            self.notes = Notes()
        self.notes_changed = True
        return self.notes

    def __repr__(self) -> str:
        what = f"{len(self.lanes)} lanes" if self.claim.collects else self.id
        return f"<job {self.task} {what}, attempt {self.attempt}>"


running_job: ContextVar[JobContext | None] = ContextVar("laneway_job", default=None)


def current_job() -> JobContext:
    """Return the job that runs here.

    >>> current_job()
    Traceback (most recent call last):
    laneway.errors.NoCurrentJob: No job runs here: current_job() is for code that a worker runs.
    """
    job = running_job.get()
    if job is None:
        raise NoCurrentJob
    return job
