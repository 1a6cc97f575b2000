"""A job and its claim: the values that travel between the desk, the store and the workers.

Pure values, no I/O. `Job` is what a client pushes; `Claim` is a worker's right to run it.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Literal

from msgspec import Struct

from laneway.instant import now_micros

__all__ = ["STATES", "Claim", "Job", "State", "check_id", "check_lane", "check_priority", "check_queue", "new_id"]

State = Literal["scheduled", "ready", "retrying", "blocked", "running", "dead", "done", "cancelled", "gone"]

#: The states of a job that is in the store, in the order of its life.
STATES: tuple[State, ...] = ("scheduled", "ready", "retrying", "blocked", "running", "dead")


class Job(Struct, frozen=True, gc=False):
    """One enqueued run of a task, as the client made it."""

    id: str  #: letters, digits, - and _; unique among the jobs in the store
    task: str  #: the task's name
    queue: str  #: where it waits
    body: bytes  #: arguments and options as JSON, see `laneway.codec`
    lane: str | None = None  #: its lane's key; None: alone in a lane of its own
    priority: int = 0  #: -100 to 100, higher first; 0 in a lane
    delay: int = 0  #: not before the store's now plus this, microseconds
    at: int = 0  #: not before this instant, microseconds
    unique: str | None = None  #: an equal job has the same; the task's name is in it
    expires: int = 0  #: it is not to start later than its place's time plus this, microseconds; 0: never too late


class Claim(Struct, frozen=True, gc=False):
    """A worker's right to run one job. Only its holder can settle it."""

    job: Job  #: without what the store has made of it: its time, its key, its end
    token: int  #: grows with every claim in the store, for fencing
    attempt: int  #: 1 in the first run; runs that did not count are not counted
    enqueued: int  #: when the store took the job, microseconds
    due: int  #: since when it could be claimed, microseconds
    place: int = 0  #: since when it could run for the first time, microseconds
    #: why the claim before this one was lost, if whoever runs it now must know: `crash` (it had started when its worker's process
    #: crashed: a suspect, it runs alone) or `timeout` (it ran past its timeout until its worker was ended)
    lost: str = ""


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: read aloud without mistakes
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]  # ten bits each
_SHIFTS = tuple(range(90, -1, -10))
_last_lock = threading.Lock()
_last = 0


def _after_fork_in_child() -> None:
    """Another thread of the parent may have held the lock; it does not exist here."""
    global _last_lock  # noqa: PLW0603 - the same
    _last_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def new_id() -> str:
    """Return a new id: 20 letters and digits, ordered by time, increasing within this process.

    52 bits of microseconds and 48 random ones. The random ones come from the kernel, so that a forked
    child does not repeat its parent's.
    """
    global _last  # noqa: PLW0603 - the one counter behind "increasing within this process"
    with _last_lock:
        _last = now = max(now_micros(), _last + 1)
    number = now << 48 | int.from_bytes(os.urandom(6))
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_QUEUE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def check_id(value: object) -> str:
    """Return a job's id, or raise ValueError that says what ids look like."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is no id: use 1 to 100 letters, digits, - and _")


def check_queue(value: object) -> str:
    """Return a queue's name, or raise ValueError that says what names look like."""
    if isinstance(value, str) and _QUEUE.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is no name for a queue: use 1 to 100 letters, digits and - _ . :")


def check_lane(value: object) -> str:
    """Return a lane's key: a string, or an integer as its decimal text. Anything else is a ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(int(value)) if abs(value) < 10**500 else ""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no key for a lane: use a string or an integer, such as f'order-{{order.id}}'")
    if not 0 < len(value) <= 500 or "\0" in value or not value.isprintable():
        raise ValueError(f"{value[:60]!r} is no key for a lane: use 1 to 500 printable characters")
    return str.__str__(value)  # a member of a (str, Enum) is its value, not its name


def check_priority(value: object) -> int:
    """Return a priority, or raise ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and -100 <= value <= 100:
        return int(value)
    raise ValueError(f"{value!r} is no priority: use a whole number from -100 (last) to 100 (first)")
