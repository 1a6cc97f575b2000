"""What a task's code can know and say about its own job while it runs.

`current_job()` is the job that runs here: in a thread, in a coroutine, and in what they call. The exceptions say how a run
is meant to end if not by its result.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from laneway.core.instant import FAR
from laneway.core.job import Claim, check_lane
from laneway.core.outcome import Dead, Notes
from laneway.errors import NoCurrentJob

__all__ = [
    "Cancel",
    "JobContext",
    "LaneFailures",
    "RetryIn",
    "Snooze",
    "check_seconds",
    "current_job",
    "running_job",
]

#: How many log lines a job keeps, and how long each may be.
LOG_LINES = 100
LINE_LENGTH = 1000
_NOTHING: Mapping[str, Dead] = {}


class Snooze(Exception):
    """Not yet: run again after some seconds. The job keeps its place, and no attempt counts."""

    __module__ = "laneway"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds:g} s")
        self.seconds = check_seconds("Snooze", seconds)


class RetryIn(Exception):
    """This attempt failed: try again after just so many seconds."""

    __module__ = "laneway"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"to be retried in {seconds:g} s")
        self.seconds = check_seconds("RetryIn", seconds)


class Cancel(Exception):
    """The job is not to be done any more."""

    __module__ = "laneway"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled")
        self.reason = str(reason)


class LaneFailures(Exception):
    """A collector's run failed for some of its lanes; the others are done.

    Each lane's error is judged by itself: it is retried, or, a Snooze, Cancel or RetryIn, what that says.
    """

    __module__ = "laneway"

    def __init__(self, failures: Mapping[Any, BaseException | str]) -> None:
        self.failures: dict[str, BaseException] = {}
        for lane, error in failures.items():
            made = error if isinstance(error, BaseException) else LaneFailed(str(error))
            self.failures[check_lane(lane)] = made
        super().__init__(f"{len(self.failures)} lanes failed: {', '.join(list(self.failures)[:5])}")


class LaneFailed(Exception):
    """A lane failed, and LaneFailures says why in words."""


def check_seconds(name: str, seconds: float) -> float:
    """Return a time to wait, or raise ValueError."""
    if not 0 <= seconds <= FAR:
        raise ValueError(f"{name}({seconds!r}): use seconds from 0 to ten years")
    return seconds


class JobContext:
    """The job that runs here."""

    __slots__ = ("_notes", "args", "cancelled", "claim", "headers", "kwargs", "lost", "notes_changed", "row", "spoilt", "started")

    def __init__(
        self, claim: Claim, args: list[Any], kwargs: dict[str, Any], headers: Mapping[str, str], started: int = 0
    ) -> None:
        self.claim = claim
        self._notes: Notes | None = None
        self.notes_changed = False
        self.started = started  #: by this worker's clock, microseconds
        self.row = 0  #: where it stands on the worker's board
        self.args = args
        self.kwargs = kwargs
        self.headers = headers
        #: True once somebody asked to cancel it: a long task looks now and then, and raises Cancel.
        self.cancelled = False
        self.spoilt: Mapping[str, Dead] = _NOTHING  #: units of the claim that take no part, and what they come to, by their ids
        self.lost = False  #: its claim may have been given to others: unless it succeeds, this run is not to count

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
        """Its lane, if it has one; of a collector's run with more than one lane there is no such."""
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
    def batch(self) -> dict[str, list[Any]]:
        """The payloads, by their name before 0.2."""
        warnings.warn("current_job().batch is called .payloads now, and goes with 0.3", DeprecationWarning, stacklevel=2)
        return self.payloads

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that the store knows it by: a collector's run has one for each lane."""
        return tuple(self.claim.ids)

    @property
    def attempt(self) -> int:
        """1 in the first run; of a collector's lanes the highest."""
        return max([unit.attempt for unit in self.claim.units])

    @property
    def token(self) -> int:
        """Grows with every claim: a fence for what lies outside, such as `update … where token < ?`."""
        return self.claim.token

    @property
    def notes(self) -> Notes | None:
        """What was told so far."""
        return self._notes

    def progress(self, done: float, total: float) -> None:
        """Tell how far it is; shown with the job within about a second."""
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
        """Take what an isolated run told about itself."""
        self._notes = notes
        self.notes_changed = True

    def _go_on(self) -> None:
        """End a run that was cancelled: a thread cannot be stopped, but it can be told when it calls us."""
        if self.cancelled:
            raise Cancel("cancelled while it ran")

    def _note(self) -> Notes:
        if self._notes is None:
            self._notes = Notes()
        self.notes_changed = True
        return self._notes

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
