"""Schedules: calls that are enqueued by themselves, declared in code or kept in the store.

`@app.task(schedule=…)` and `app.schedule(…)` declare one; `app.inspect.set_schedule` keeps one in the store, as a
`KeptSchedule`. An entry has what the caller gave: the call, its options, and when. The rest (queue, lane, retries, …) is what
the task declares where the job is enqueued, so that a schedule follows its task through deployments.

Enters: a call and when.  Leaves: `Scheduled`, whose `fire` enqueues the job of an occurrence.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from laneway.core.codec import open_body
from laneway.core.retry import Retry, with_stored
from laneway.desk.collector import LEFT_OUT, AnyCollector, is_collector
from laneway.desk.enqueue import LaneDraft
from laneway.desk.handle import JobHandle
from laneway.desk.options import check_schedule_options
from laneway.desk.task import Bound, Task, is_task
from laneway.errors import (
    BadArguments,
    BadOption,
    DeclarationError,
    GarbageError,
    LanewayError,
    UnknownTask,
    did_you_mean,
)
from laneway.store.contract import Occurrence

if TYPE_CHECKING:
    from laneway.core.cron import Schedule
    from laneway.desk.app import App

__all__ = ["DeclaredSchedules", "KeptSchedule", "Scheduled", "When", "bound_call", "read_entry", "read_when"]

#: When a schedule runs: cron, or an interval.
When = str | timedelta
#: The options of a call that an entry keeps. How often it is retried travels in its body.
KEPT = ("queue", "lane", "priority", "expires", "unique_until")


class Scheduled:
    """A call that is enqueued by itself, under a name."""

    def __init__(self, app: App, name: str, call: Bound, schedule: Schedule, catch_up: str, entry: bytes | None = None) -> None:
        self.name = name
        self.call = call
        self.schedule = schedule
        self.catch_up = catch_up
        self.entry = entry  #: as the store keeps it; None: it is declared in code
        self._app = app

    def fire(self, at: int) -> bool:
        """Enqueue the job of an occurrence; return False if another worker did, or the schedule is paused or was replaced."""
        occurrence = Occurrence(self.name, at, self.entry)
        return self._app.desk.enqueue(self._app.store, self.call.draft(), occurrence) is None

    def as_entry(self) -> tuple[KeptSchedule, str]:
        """Return it as it would be kept in a store; if its call cannot be made now, without the call, and why."""
        try:
            return KeptSchedule.of(self.call, self.schedule, self.catch_up), ""
        except LanewayError as error:
            return KeptSchedule.without_call(self.call.task, self.schedule, self.catch_up), f"its call cannot be made: {error}"

    def enqueue(self) -> JobHandle[Any]:
        """Enqueue its job now."""
        draft = self.call.draft()
        there = self._app.desk.enqueue(self._app.store, draft)
        declared = self._app.declared.get(draft.task)
        if is_task(declared):
            found: Task[..., Any, Any] = declared
            return found.handle(draft.id, there)
        return JobHandle(self._app, there or draft.id, draft.task, there is None, None if declared is None else False)


class KeptSchedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as a store keeps it, as JSON."""

    task: str
    body: str = ""  #: the call as a job's body; of a collector its payload, empty if it was left out
    collects: bool = False  #: the task is a collector
    options: dict[str, Any] = {}  #: those of `KEPT` that were given; of a collector the lane, and the score if one was given
    cron: str = ""  #: the expression; empty for an interval
    every: int = 0  #: the interval, microseconds
    timezone: str = "UTC"  #: of the expression
    catch_up: str = "one"
    by: str = ""  #: the name of the user that set it

    @classmethod
    def of(cls, call: Bound, schedule: Schedule, catch_up: str, by: str = "") -> KeptSchedule:
        """Return the entry of a call; raises what an enqueue of it would."""
        draft = call.draft()
        job = draft.seal()
        options = {name: call.options[name] for name in KEPT if name in call.options}
        if isinstance(draft, LaneDraft):
            options = {"lane": job.lane} if draft.score is None else {"lane": job.lane, "score": draft.score}
        bare = cls.without_call(call.task, schedule, catch_up)
        collects = job.gather is not None
        return structs.replace(bare, body=job.body.decode(), collects=collects, options=options, by=by)

    @classmethod
    def without_call(cls, task: str, schedule: Schedule, catch_up: str) -> KeptSchedule:
        """Return the entry of a call that is not known."""
        cron, every, timezone = schedule.expression, schedule.every, schedule.timezone
        return cls(task=task, cron=cron, every=every, timezone=timezone, catch_up=catch_up)

    def encoded(self) -> bytes:
        """Return it as a store keeps it."""
        return msgspec.json.encode(self)

    @property
    def schedule(self) -> Schedule:
        """When it runs. Raises ValueError if that cannot be read."""
        return _schedule(self.cron, self.every, self.timezone)

    def arguments(self) -> tuple[list[Any] | None, dict[str, Any] | None]:
        """Return the arguments of its call as plain JSON values, as they would be written; None if the call is not known."""
        if not self.body and not self.collects:
            return None, None
        if self.collects:
            given = {name: value for name, value in self.options.items() if name == "score"}
            return [self.options["lane"], *([msgspec.json.decode(self.body)] if self.body else [])], given
        envelope = open_body(self.body.encode())
        read = msgspec.json.decode
        return [read(value) for value in envelope.args], {name: read(value) for name, value in envelope.kwargs.items()}

    def scheduled(self, app: App, name: str, raw: bytes) -> Scheduled:
        """Return what it means to an app; raise a LanewayError if the task is unknown there, or the call does not fit it."""
        declared = app.declared.get(self.task)
        if declared is None:
            near = did_you_mean(self.task, app.declared)
            raise UnknownTask(f'no task named "{self.task}" is registered here.{near}', task=self.task)
        try:
            if is_task(declared) and not self.collects:
                call = self._call(declared)
            elif is_collector(declared) and self.collects:
                call = self._lane_call(declared)
            else:
                raise BadArguments(f"{self.task} {'is no collector any more' if self.collects else 'is a collector now'}")
        except LanewayError:
            raise
        except Exception as error:  # a user's type may raise anything, and so may hostile values
            raise BadArguments(f"{type(error).__name__}: {error}") from error
        return Scheduled(app, name, call, self.schedule, self.catch_up, raw)

    def _call(self, task: Task[..., Any, Any]) -> Bound:
        options: dict[str, Any] = {name: self.options[name] for name in KEPT if name in self.options}
        args, kwargs, travelled = task.signature.open(self.body.encode())
        if travelled and "retry" in travelled:
            options["retry"] = with_stored(Retry(), travelled["retry"])
        return task.using(**options).bind(*args, **kwargs)

    def _lane_call(self, collector: AnyCollector[Any, Any]) -> Bound:
        payload = collector.payload.unpack(self.body.encode()) if self.body else LEFT_OUT
        lane, score = self.options["lane"], self.options.get("score")
        call = Bound(self.task, lambda _args, _kwargs: collector.draft(lane, payload, score, {}), (), {}, {})
        call.draft().seal()  # checks the lane and the score
        return call


_decode = msgspec.json.Decoder(KeptSchedule).decode


def read_entry(name: str, raw: bytes) -> KeptSchedule:
    """Return an entry as the store has it, or raise GarbageError: any program may have written there."""
    try:
        entry = _decode(raw)
        _ = entry.schedule
        if entry.arguments()[0] is None:
            raise ValueError("it has no call")
        check_schedule_options("", {"name": name, "catch_up": entry.catch_up})
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError, OverflowError, LanewayError) as error:
        raise GarbageError(f"the entry cannot be read: {error}") from None
    return entry


@functools.lru_cache(maxsize=4096)
def _schedule(cron: str, every: int, timezone: str) -> Schedule:
    return read_when(timedelta(microseconds=every), None) if every else read_when(cron, timezone)


#: Where a schedule is declared, and its call as bytes; empty if that could not be known yet.
Origin = tuple[object, bytes]


class DeclaredSchedules:
    """The schedules that an app declares."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._found: dict[str, Scheduled] = {}
        self._origins: dict[str, Origin] = {}  # where each is declared

    def by_name(self) -> Mapping[str, Scheduled]:
        """Return all by name, those of the app's imports included."""
        _ = self.app.declared
        return MappingProxyType(self._found)

    def add(
        self, call: Bound | Task[..., Any, Any], when: When, name: str | None, timezone: str | None, catch_up: str, origin: object
    ) -> None:
        """Declare a schedule."""
        bound = bound_call("app.schedule", call)
        checked = check_schedule_options("app.schedule", {"name": bound.task if name is None else name, "catch_up": catch_up})
        name = str(checked["name"])
        try:
            schedule = read_when(when, timezone)
        except ValueError as error:
            raise DeclarationError(f"app.schedule {name}, {error}") from None
        try:
            body = bound.draft().seal().body
        except (BadArguments, BadOption) as error:
            raise DeclarationError(f"app.schedule {name}: {error}") from None
        except DeclarationError as error:
            if not isinstance(error.__cause__, NameError):  # an annotation that is defined further down is known when it is used
                raise
            body = b""
        self._put(Scheduled(self.app, name, bound, schedule, catch_up), (origin, body))

    def add_of_task(self, task: Task[..., Any, Any]) -> None:
        """Declare the schedule that a task has by its decorator, if any."""
        origin = (inspect.unwrap(task.function).__qualname__, b"")
        if self._origins.get(task.name) == origin:
            del self._found[task.name], self._origins[task.name]
        if task.schedule is not None:
            self._put(Scheduled(self.app, task.name, task.bind(), task.schedule, task.catch_up), origin)

    def _put(self, made: Scheduled, origin: Origin) -> None:
        (place, call), (known_place, known_call) = origin, self._origins.get(made.name, origin)
        # A module that is loaded twice declares the same schedule twice, at the same line: the newer one counts.
        if place != known_place or (call and known_call and call != known_call):
            raise DeclarationError(
                f'two schedules are named "{made.name}": give one of them another name with app.schedule(…, name="…")'
            )
        self._found[made.name], self._origins[made.name] = made, origin


def bound_call(where: str, call: Bound | Task[..., Any, Any]) -> Bound:
    """Return the call that is to be scheduled, or raise BadOption if there is none, or it has options that make no sense here."""
    bound: object = call.bind() if is_task(call) else call
    if not isinstance(bound, Bound):
        raise BadOption(f'{where} takes a task or a bound call, such as report.bind("eu"), not {call!r}')
    for option, why in (("id", "one id is for one job"), ("run_after", "the schedule says when it runs")):
        if option in bound.options:
            raise BadOption(f"{where}: using({option}=…) and a schedule together: {why}. Leave {option} out.", option=option)
    return bound


def read_when(when: object, timezone: object) -> Schedule:
    """Return when a schedule runs, or raise ValueError that says what to write."""
    from laneway.core.cron import read_schedule  # noqa: PLC0415 - most programs have none, and time zones take a while to load

    return read_schedule(when, timezone)
