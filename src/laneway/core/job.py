"""A job and its claim: the values that travel between the desk, the store and the workers.

Pure values, no I/O. `Job` is what a client pushes; `Claim` is a worker's right to run it. A collector's payload is pushed as a
job too: it says how it gathers, and its id is that of its lane. A claim holds units: one job, or some lanes of a collector that
run together.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal, overload

from msgspec import Struct
from msgspec.structs import replace

from laneway.core.instant import FAR

__all__ = [
    "FINISHED",
    "STATES",
    "TIMED",
    "UniformJobs",
    "Claim",
    "Gather",
    "Job",
    "Payload",
    "State",
    "Unit",
    "check_id",
    "check_lane",
    "check_priority",
    "check_queue",
    "check_score",
    "lane_id",
    "payload_id",
]

State = Literal["scheduled", "ready", "retrying", "blocked", "running", "dead", "done", "cancelled", "gone"]

#: The states of a job that is in the store, in the order of its life.
STATES: tuple[State, ...] = ("scheduled", "ready", "retrying", "blocked", "running", "dead")
#: And of one whose record is kept.
FINISHED: tuple[State, ...] = ("done", "cancelled")
#: States of jobs and lanes that wait for a time.
TIMED: tuple[State, ...] = ("retrying", "scheduled")


class Gather(Struct, frozen=True, gc=False):
    """How a payload joins its lane of a collector."""

    score: float | None = None  #: its place among the lane's payloads; None: the store's now in seconds, after all earlier ones
    quiet: int = 0  #: a lane that waits for its first run is postponed until this long after the last payload, microseconds
    longest: int = 0  #: but not for longer than this after its first, microseconds; 0: no limit
    headers: str = ""  #: what middlewares added, a JSON object as text, see `headers`; empty: nothing


class Job(Struct, frozen=True, gc=False):
    """One enqueued run of a task, or a collector's payload, as the client made it."""

    id: str  #: letters, digits, - and _; unique among the jobs in the store
    task: str  #: the task's name
    queue: str  #: the queue it waits in
    body: bytes  #: arguments and options as JSON, see `codec`; of a payload: itself as canonical JSON, empty if left out
    lane: str | None = None  #: its lane's key; None: alone in a lane of its own
    priority: int = 0  #: -100 to 100, higher first; 0 in a lane
    delay: int = 0  #: not before the store's now plus this, microseconds
    at: int = 0  #: not before this instant, microseconds
    unique: str | None = None  #: equal jobs have the same key; the task's name is in it
    expires: int = 0  #: it does not start later than its place's time plus this, microseconds; 0: it never expires
    gather: Gather | None = None  #: it is a payload; its id is `lane_id` of its queue and lane
    until_end: bool = False  #: it has a unique key, which ends when it does, or dies; else at its first claim


class UniformJobs(Sequence[Job]):
    """New jobs that differ only in their ids and bodies. None has a unique key, and `new_ids` made their ids.

    A store that has no use for that reads them one by one, as from any sequence.
    """

    __slots__ = ("_jobs", "bodies", "first", "ids")

    def __init__(self, first: Job, ids: Sequence[str], bodies: Sequence[bytes]) -> None:
        self.first = first  #: has the fields that all have in common
        self.ids = ids
        self.bodies = bodies
        self._jobs: list[Job] | None = None

    def _all(self) -> list[Job]:
        if self._jobs is None:
            pairs = zip(self.ids, self.bodies, strict=True)
            self._jobs = [replace(self.first, id=id_, body=body) for id_, body in pairs]
        return self._jobs

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        return self._all()[index]


class Payload(Struct, frozen=True, gc=False, array_like=True):
    """A payload in a collector's lane."""

    body: bytes  #: canonical JSON: equal payloads have the same; empty if it was left out
    score: float
    headers: str = ""  #: its headers and those of equal payloads that were merged with it, one JSON object per line


class Unit(Struct, frozen=True, gc=False):
    """The unit of claims and outcomes: one job, or one lane of a collector's run."""

    id: str
    lane: str | None  #: its lane's key; None: a job that is alone in a lane of its own
    attempt: int  #: 1 in the first run; runs that did not count are not counted
    enqueued: int  #: when the store took the job, or the lane began to wait, microseconds
    due: int  #: since when it could be claimed, microseconds
    place: int = 0  #: since when it could run for the first time, microseconds
    body: bytes = b""  #: of a job: arguments and options, see `Job.body`
    payloads: Sequence[Payload] = ()  #: of a collector's lane: by score, ties by arrival, the oldest first
    first: int = 0  #: which of the payloads arrived first: it dies, unless others are named
    number: int = 0  #: for the store's own use


class Claim(Struct, frozen=True, gc=False):
    """A worker's right to run one job, or some lanes of a collector together. Only its holder can settle it."""

    #: for fencing: greater than those of all earlier claims of the same job or lane, and than all that this worker has received
    token: int
    queue: str
    task: str
    #: one job; or the lanes that run together, oldest due first. Several jobs of one lane would fit: no store gives them
    units: tuple[Unit, ...]
    #: the word for an earlier claim that was lost, if the worker must know: `crash` (the code was running when its worker's
    #: process crashed: a suspect, it runs alone) or `timeout` (it ran past its timeout until its worker was ended)
    lost: str = ""
    garbage: str = ""  #: why it cannot be run: the stored bytes are not a job. It is to be settled as dead

    @property
    def unit(self) -> Unit:
        """Its first unit; the only one of a job."""
        return self.units[0]

    @property
    def collects(self) -> bool:
        """Whether it is a run of a collector."""
        return bool(self.units[0].payloads)

    @property
    def ids(self) -> list[str]:
        """The ids of its units."""
        return [unit.id for unit in self.units]


def lane_id(queue: str, lane: str) -> str:
    """Return the id of a collector's lane, a function of queue and lane alone.

    It begins as the lane's key does, so that lanes with similar names are close in a store's index.
    """
    digest = hashlib.blake2b(f"{queue}\0{lane}".encode(), digest_size=10).hexdigest()
    return f"l-{_NOT_IN_IDS.sub('_', lane[:40])}-{digest}"


def payload_id(queue: str, lane: str, body: bytes) -> str:
    """Return the id of a collector's dead payload. Equal payloads of a lane have the same."""
    return "p-" + hashlib.blake2b(f"{queue}\0{lane}\0".encode() + body, digest_size=10).hexdigest()


_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_501_DIGITS = 10**500
_QUEUE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def check_id(value: object) -> str:
    """Return a job's id, or raise ValueError that says what ids look like."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is not an id: use 1 to 100 letters, digits, - and _")


def check_queue(value: object) -> str:
    """Return a queue's name, or raise ValueError that says what names look like."""
    if isinstance(value, str) and _QUEUE.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is not a name for a queue: use 1 to 100 letters, digits and - _ . :")


def check_lane(value: object) -> str:
    """Return a lane's key: a string, or an integer as its decimal text. Raise ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(int(value)) if abs(value) < _501_DIGITS else ""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a key for a lane: use a string or an integer, such as f'order-{{order.id}}'")
    if not 0 < len(value) <= 500 or "\0" in value or not value.isprintable():
        raise ValueError(f"{value[:60]!r} is not a key for a lane: use 1 to 500 printable characters")
    return str.__str__(value)  # a member of a (str, Enum) is its value, not its name


def check_score(value: object, now: float) -> float:
    """Return a payload's score: a number. A score that is a time is in seconds, as `now` and the store's own scores."""
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value!r} is not a score: use a number, such as a version, or a time in seconds")
    if abs(value) > 1e300:
        raise ValueError("a score of more than 300 digits: use a smaller number, such as a version, or a time in seconds")
    score = float(value)
    for unit, factor in (("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)):
        if abs(score / factor - now) < FAR:
            raise ValueError(
                f"a score of {value!r} looks like a time in {unit}, and scores that are times count seconds, as the default "
                f"(now) does: divide it by {factor:,.0f}"
            )
    if score != value:
        raise ValueError(f"{value!r} is not a score: it has more digits than a number with a point can hold")
    return score


def check_priority(value: object) -> int:
    """Return a priority, or raise ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and -100 <= value <= 100:
        return int(value)
    raise ValueError(f"{value!r} is not a priority: use a whole number from -100 (last) to 100 (first)")
