"""The options of a task and of one enqueue: checked where they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypedDict

from laneway.clock import now_micros
from laneway.core.instant import When, parse_when
from laneway.core.job import check_id, check_lane, check_priority, check_queue
from laneway.core.retry import Retry
from laneway.desk.synonyms import synonym
from laneway.errors import BadOption, did_you_mean

__all__ = [
    "CATCH_UP",
    "CollectorOptions",
    "JobOptions",
    "LaneOptions",
    "TaskOptions",
    "check_bound",
    "check_collector_options",
    "check_job_options",
    "check_lane_options",
    "check_schedule_options",
    "check_task_options",
    "hint_for_arguments",
]


#: The kind of a task's runs: they compute, or they wait.
KINDS = ("cpu", "io")
#: How occurrences that passed while no worker ran are handled: the last one fires, all of them, or none.
CATCH_UP = ("one", "all", "none")
#: The payloads of a lane that a collector's function gets.
MERGE = ("all", "last")
#: When the key of a unique job ends: at its first claim, or when it is done, cancelled or dead.
UNTIL = ("claim", "end")
#: The most lanes or payloads that a run may have.
MOST_AT_ONCE = 100_000


class JobOptions(TypedDict, total=False):
    """What `using(...)` takes."""

    queue: str
    lane: str | int
    priority: int
    run_after: When
    retry: Retry
    expires: float | timedelta
    unique_until: Literal["claim", "end"]  #: of a task with `unique`
    id: str
    connection: Any  #: of yours: the job goes with its transaction


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes."""

    name: str
    queue: str
    lane: str | Callable[..., str | int]  #: the parameter whose value is the lane's key, or a function of the arguments
    halt_on_death: bool  #: a dead job keeps its lane, until it is replayed or deleted
    priority: int
    retry: Retry
    keep_result: float  #: seconds
    timeout: float  #: seconds that a run may take
    isolate: bool  #: each run in a process of its own
    kind: Literal["cpu", "io"]  #: whether it computes or waits; learned if not given
    unique: bool | str  #: an equal job that has not started prevents this one; equal in all arguments, or in this one
    unique_until: Literal["claim", "end"]  #: until the first claim of the equal job, or until it is done, cancelled or dead
    expires: float | timedelta  #: it does not start later than this after it could have
    schedule: str | timedelta  #: when it runs by itself: cron, or an interval
    timezone: str  #: of the schedule; default UTC
    catch_up: str  #: what to do with occurrences that no worker saw: "one", "all" or "none"


class LaneOptions(TypedDict, total=False):
    """What a collector's `using(...)` takes."""

    run_after: When
    connection: Any  #: of yours: the payload goes with its transaction


class CollectorOptions(TypedDict, total=False):
    """What `@app.collector(...)` takes, beside `lane`."""

    name: str  #: also the name of its queue
    score: Callable[[Any], float]  #: gives a payload's score
    max_lanes: int  #: the most lanes in one run
    max_payloads: int  #: the most payloads of one lane in one run
    merge: str  #: the function gets "all" payloads, or the "last"
    debounce: float | timedelta  #: a lane waits until no payload came for this time,
    max_wait: float | timedelta  #: but not longer than this
    retry: Retry
    timeout: float  #: seconds that a run may take
    isolate: bool  #: each run in a process of its own
    kind: Literal["cpu", "io"]  #: whether it computes or waits; learned if not given


def _retry(value: object) -> Retry:
    if not isinstance(value, Retry):
        raise ValueError(f"{value!r} is not a policy: use Retry(times=5), Retry(times=0) for none")
    return value


def _when(value: object) -> tuple[int, int]:
    return parse_when(value, now_micros())


def _plain_retry(value: object) -> Retry:
    """Refuse a policy that cannot travel with the job: only numbers can."""
    retry = _retry(value)
    default = Retry()
    if (callable(retry.backoff) and retry.backoff is not default.backoff) or (retry.on, retry.give_up_on) != (
        default.on,
        (),
    ):
        raise ValueError(
            "only times, a backoff in seconds, max_delay and jitter are stored with a job: declare the rest on the task"
        )
    return retry


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError(f"{value!r}: use seconds, more than 0")
    return value


def _duration(value: object) -> float:
    return _seconds(value.total_seconds() if isinstance(value, timedelta) else value)


def _unique(value: object) -> bool | str:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or not value.isidentifier():
        raise ValueError(f'{value!r}: use True, or name the parameter that counts, such as unique="order_id"')
    return value


def _one_of(choices: Sequence[str], meaning: str = "") -> Callable[[object], object]:
    use = meaning or f"one of {', '.join(map(repr, choices))}"

    def check(value: object) -> object:
        if value not in choices:
            raise ValueError(f"{value!r}: use {use}")
        return value

    return check


_unique_until = _one_of(UNTIL, '"claim" (until it starts) or "end" (until it is done, cancelled or dead)')
_catch_up = _one_of(CATCH_UP)
_kind = _one_of(KINDS, '"cpu" for a task that computes, "io" for one that waits')
_merge = _one_of(MERGE)


def _as_it_is(value: object) -> object:
    return value  # checked where it is used


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r}: use True or False")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable() or " " in value:
        raise ValueError(f"{value!r} is not a name: use 1 to 200 printable characters without spaces")
    return value


def _lane_key(value: object) -> object:
    if not callable(value) and (not isinstance(value, str) or not value.isidentifier()):
        raise ValueError(
            f'{value!r}: name the parameter whose value is the lane\'s key, such as lane="customer_id", or give a function of '
            "the task's arguments"
        )
    return value


def _function(value: object) -> object:
    if not callable(value):
        raise ValueError(f"{value!r}: use a function of the payload, such as lambda order: order.id")
    return value


def _one_or_more(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_AT_ONCE:
        raise ValueError(f"{value!r}: use a whole number from 1 to {MOST_AT_ONCE:,}")
    return value


def _collector_name(value: object) -> str:
    return check_queue(_name(value))


_JOB: dict[str, Callable[[object], object]] = {
    "queue": check_queue, "lane": check_lane, "priority": check_priority, "run_after": _when, "retry": _plain_retry,
    "expires": _duration, "unique_until": _unique_until, "id": check_id, "connection": _as_it_is,
}  # fmt: skip
_TASK: dict[str, Callable[[object], object]] = {
    "name": _name, "queue": check_queue, "lane": _lane_key, "halt_on_death": _yes_or_no, "priority": check_priority,
    "retry": _retry, "keep_result": _seconds, "timeout": _seconds, "isolate": _yes_or_no, "kind": _kind,
    "unique": _unique, "unique_until": _unique_until, "expires": _duration, "schedule": _as_it_is, "timezone": _as_it_is,
    "catch_up": _catch_up,
}  # fmt: skip
_LANE: dict[str, Callable[[object], object]] = {"run_after": _when, "connection": _as_it_is}
_COLLECTOR: dict[str, Callable[[object], object]] = {
    "name": _collector_name, "lane": _function, "score": _function, "max_lanes": _one_or_more, "max_payloads": _one_or_more,
    "merge": _merge, "debounce": _duration, "max_wait": _duration, "retry": _retry, "timeout": _seconds, "isolate": _yes_or_no,
    "kind": _kind,
}  # fmt: skip
_SCHEDULE: dict[str, Callable[[object], object]] = {"name": _name, "catch_up": _catch_up}


def hint_for_arguments(names: Iterable[str]) -> str:
    """Return what to write instead, if one of these names, given as an argument of a task, is an option here or elsewhere."""
    for name in names:
        if name in _JOB:
            return f". Options are given before: TASK.using({name}=…).enqueue(…)"
        if here := synonym(name):
            return f".{here}"
    return ""


def check_bound(where: str, options: Mapping[str, Any]) -> None:
    """Raise BadOption for options that a call as a value cannot have: it may be enqueued when the connection is gone."""
    if options.get("connection") is not None:
        raise BadOption(f"{where}, option connection: a bound call has none; write `with app.transaction(connection):` around it")


def _check(where: str, options: Mapping[str, Any], known: Mapping[str, Callable[[object], object]]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            near = synonym(name) or did_you_mean(name, known)
            raise BadOption(f'{where} has no option "{name}".{near} It has: {", ".join(known)}', option=name)
        try:
            checked[name] = known[name](value)
        except ValueError as error:
            raise BadOption(f"{where}, option {name}: {error}", option=name) from None
    return checked


# Each takes where the options are given, for messages, and the options. It returns them as they will be used, or raises
# BadOption.
check_task_options = partial(_check, known=_TASK)
check_job_options = partial(_check, known=_JOB)  #: of `using`
check_collector_options = partial(_check, known=_COLLECTOR)
check_lane_options = partial(_check, known=_LANE)  #: of a collector's `using`
check_schedule_options = partial(_check, known=_SCHEDULE)  #: those that are not read together with its time
