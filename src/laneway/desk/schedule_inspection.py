"""What `app.inspect` offers for schedules: list them, act on one, and set or drop one at run time."""

from __future__ import annotations

import functools
import getpass
import socket
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from laneway.core.instant import FAR, SECOND, as_datetime
from laneway.core.plain import Plain
from laneway.desk.options import check_schedule_options
from laneway.desk.schedules import KeptSchedule, When, bound_call, read_entry, read_when
from laneway.errors import BadOption, GarbageError, LanewayError, NotFound, UnknownTask, did_you_mean
from laneway.store.workers import live_of

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.handle import JobHandle
    from laneway.desk.task import Bound, Task
    from laneway.store.contract import Schedules

__all__ = ["ScheduleInfo", "ScheduleInspection", "no_worker_knows", "this_user"]

#: The most names that a message lists.
SHOWN = 20


class ScheduleInfo(Plain, frozen=True, kw_only=True):
    """A schedule: one that this app declares, or one that is kept in the store."""

    name: str
    task: str  #: empty if its entry in the store cannot be read
    args: list[Any] | None  #: the positional arguments of its call, as plain JSON values; None: they cannot be read
    kwargs: dict[str, Any] | None
    schedule: str  #: cron and time zone, or the interval
    catch_up: str
    stored: bool  #: it is kept in the store; False: it is declared in code
    set_by: str = ""  #: the name given when it was set
    trouble: str = ""  #: why it does not fire; empty: nothing is wrong with it
    paused: bool
    paused_by: str
    last_at: datetime | None  #: its last occurrence that fired or was skipped; None: no worker has seen it yet
    next_at: datetime | None  #: None: it cannot be read


class ScheduleInspection:
    """The schedules' part of `app.inspect`."""

    _app: App

    def schedules(self, name: str | None = None) -> list[ScheduleInfo]:
        """List the schedules that this app declares, and those that are kept in the store, by name; or the one with this name."""
        found = self._app.store.schedules()
        declared = self._app.schedules.by_name()
        known = functools.cache(self._known_tasks)
        listed: list[ScheduleInfo] = []
        for one in sorted({*declared, *found.kept} if name is None else {name} & {*declared, *found.kept}):
            stored = one not in declared
            entry, trouble = self._kept(one, found.kept[one], known) if stored else declared[one].as_entry()
            listed.append(_shown(one, found, entry, trouble, stored=stored))
        return listed

    def set_schedule(
        self, name: str, call: Bound | Task[..., Any, Any], when: When, *, timezone: str | None = None, catch_up: str = "one",
        by: str | None = None,
    ) -> None:  # fmt: skip
        """Keep a schedule in the store: all workers see it within seconds. One that was kept under this name is replaced.

        Refused if this app declares a schedule of this name, if neither this app nor a live worker knows the task, and if the
        call would be refused by an enqueue.
        """
        bound = bound_call("set_schedule", call)
        name = str(check_schedule_options("set_schedule", {"name": name, "catch_up": catch_up})["name"])
        if name in self._app.schedules.by_name():
            raise BadOption(f'set_schedule: "{name}" is declared in code: change it there, or use another name')
        try:
            schedule = read_when(when, timezone)
        except ValueError as error:
            raise BadOption(f"set_schedule, {error}") from None
        if bound.task not in self._app.declared and bound.task not in (known := self._known_tasks()):
            raise UnknownTask(
                f'set_schedule: neither this app nor a live worker knows a task named "{bound.task}".'
                f"{did_you_mean(bound.task, known)} Start a worker that knows it first, or correct the name",
                task=bound.task,
            )
        entry = KeptSchedule.of(bound, schedule, catch_up, this_user() if by is None else by)
        self._app.store_inspect.set_schedule(name, entry.encoded())

    def drop_schedule(self, name: str) -> None:
        """Remove a schedule that is kept in the store. From now on it does not fire, whichever worker has yet to notice."""
        if self._app.store_inspect.drop_schedule(name):
            return
        if name in self._app.schedules.by_name():
            raise BadOption(f'drop_schedule: "{name}" is declared in code: remove it there, or pause it')
        raise self._missing(name, self._app.store.schedules().kept)

    def pause_schedule(self, name: str, *, by: str | None = None) -> None:
        """Skip a schedule's occurrences until it is resumed."""
        self._check(name)
        self._app.store_inspect.pause_schedule(name, paused=True, by=this_user() if by is None else by)

    def resume_schedule(self, name: str) -> None:
        """Resume a paused schedule with its next occurrence."""
        self._check(name)
        self._app.store_inspect.pause_schedule(name, paused=False)

    def run_schedule(self, name: str) -> JobHandle[Any]:
        """Enqueue a schedule's job now, in addition to its occurrences."""
        declared = self._app.schedules.by_name().get(name)
        if declared is not None:
            return declared.enqueue()
        raw = self._check(name)
        try:
            return read_entry(name, raw).scheduled(self._app, name, raw).enqueue()
        except GarbageError as error:
            raise GarbageError(f'schedule "{name}": {error}. Set it again, or drop it') from None
        except UnknownTask as error:
            raise UnknownTask(f'schedule "{name}": {error} To run it now, use an app that declares it') from None

    # -- what is known ---------------------------------------------------------------------------------------

    def _check(self, name: str) -> bytes:
        """Raise NotFound if there is no such schedule; return the entry of one that is kept in the store."""
        if name in self._app.schedules.by_name():
            return b""
        kept = self._app.store.schedules().kept
        if name not in kept:
            raise self._missing(name, kept)
        return kept[name]

    def _missing(self, name: str, kept: dict[str, bytes]) -> NotFound:
        names = sorted({*self._app.schedules.by_name(), *kept})
        known = f" Schedules: {', '.join(names[:SHOWN])}" if names else " This app has none, and none is kept in the store"
        return NotFound(f'no schedule "{name}".{did_you_mean(name, names)}{known}')

    def _known_tasks(self) -> set[str]:
        """Name the tasks of this app, and those that live workers know."""
        app = self._app
        live = live_of(self._app.store_inspect.workers(), app.dead_after)
        return {*app.declared, *(name for worker in live for name in worker.tasks)}

    def _kept(self, name: str, raw: bytes, known: Callable[[], set[str]]) -> tuple[KeptSchedule | None, str]:
        """Return an entry of the store, None if it cannot be read, and why it does not fire."""
        app = self._app
        try:
            entry = read_entry(name, raw)
        except GarbageError as error:
            return None, str(error)
        if entry.task not in app.declared:
            return entry, "" if entry.task in known() else no_worker_knows(entry.task)
        try:
            entry.scheduled(app, name, raw)
        except LanewayError as error:
            return entry, f"its call does not fit the task: {error}"
        return entry, ""


def no_worker_knows(task: str) -> str:
    """Say why a schedule does not fire."""
    return f'no live worker knows the task "{task}": it waits for one'


def _shown(name: str, found: Schedules, entry: KeptSchedule | None, trouble: str, *, stored: bool) -> ScheduleInfo:
    last = found.last.get(name)
    if last is not None and not 0 <= last <= found.now + FAR * SECOND:
        last = None  # no occurrence that a worker wrote
    schedule = None if entry is None else entry.schedule
    moment = None if schedule is None else next(schedule.occurrences(max(found.now, last or 0)), None)
    args, kwargs = (None, None) if entry is None else entry.arguments()
    return ScheduleInfo(
        name=name, task=entry.task if entry else "", args=args, kwargs=kwargs, schedule=str(schedule or ""),
        catch_up=entry.catch_up if entry else "", stored=stored, set_by=entry.by if entry else "", trouble=trouble,
        paused=name in found.paused, paused_by=found.paused.get(name, ""), last_at=None if last is None else as_datetime(last),
        next_at=None if moment is None else as_datetime(moment),
    )  # fmt: skip


def this_user() -> str:
    """Return the name of the acting user, for others to read."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "somebody"
    return f"{name}@{socket.gethostname()}"
