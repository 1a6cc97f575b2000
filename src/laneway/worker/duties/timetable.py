"""The timetable: enqueues the jobs of schedules when their occurrences come.

Every worker runs one, and the store lets each occurrence fire once. So there is no leader to elect and none to lose. Time is the
store's: a worker whose clock is wrong fires nothing early. Occurrences that passed while no worker ran are made up for when a
worker starts, as the task's `catch_up` says; so are those that passed while a machine slept.

Enters: the tasks' schedules.  Leaves: jobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from laneway.clock import now_micros
from laneway.core.cron import Schedule, missed
from laneway.core.instant import SECOND
from laneway.desk.task import Task
from laneway.errors import LanewayError, StoreUnavailable
from laneway.logs import log
from laneway.store.contract import Occurrence, Store
from laneway.worker.duties.service import Service

__all__ = ["Timetable"]

#: How often it asks the store for its time and for occurrences that other workers fired, seconds.
LOOK_EVERY = 30.0
#: A gap between two looks above this means that the machine slept: occurrences in it were missed, microseconds.
SLEPT = 60 * SECOND


class Timetable(Service):
    """Wakes up for the next occurrence."""

    name = "timetable"

    def __init__(self, store: Store, tasks: Iterable[Task[..., Any, Any]]) -> None:
        super().__init__()
        self._store = store
        self._tasks = {task.name: task for task in tasks if task.schedule is not None}
        self._last: dict[str, int] = {}  # the last known occurrence of each that fired
        self._ahead = 0  # how far the store's clock is ahead of this worker's, microseconds
        self._looked = 0  # the last look, by the store's clock

    def start(self) -> None:
        """Start the thread, if there is a schedule."""
        if self._tasks:
            super().start()

    def run(self) -> None:
        """Fire due occurrences, and sleep until the next."""
        asked = float("-inf")
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                if time.monotonic() - asked >= LOOK_EVERY:
                    self._ask()
                    asked = time.monotonic()
                self._fire_all(now_micros() + self._ahead)
                pause = self._until_next(now_micros() + self._ahead)
            except StoreUnavailable as error:
                log.debug("schedules wait for the store: %s", error)
                pause = 1.0
            except LanewayError:
                log.exception("a schedule could not fire; the others go on")
                pause = 1.0

    def _ask(self) -> None:
        """Read the store's time, and the occurrences fired so far."""
        found = self._store.schedules()
        self._ahead = found.now - now_micros()
        for name in self._tasks:
            known = found.last.get(name)
            if known is None:
                # No worker has seen this schedule before: it begins now.
                self._store.push([], Occurrence(name, found.now))
                known = found.now
            self._last[name] = max(known, self._last.get(name, 0))

    def _fire_all(self, now: int) -> None:
        """Fire occurrences since the last look; those before the first look, or while the machine slept, were missed."""
        slept = now - self._looked > SLEPT
        self._looked = now
        for name, task in self._tasks.items():
            schedule, last = _schedule(task), self._last[name]
            moments = missed(schedule, last, now, task.catch_up if slept else "all")
            for moment in moments:
                if self._stopping.is_set():
                    return
                if task.fire(Occurrence(name, moment)):
                    log.debug("the schedule of %s fired for %s", name, moment)
            self._last[name] = max([now if slept else last, *moments])

    def _until_next(self, now: int) -> float:
        """Return the time until the next occurrence, seconds."""
        first = min(next(_schedule(task).occurrences(self._last[name]), now + SLEPT) for name, task in self._tasks.items())
        return min(max(first - now, 0) / SECOND, LOOK_EVERY)


def _schedule(task: Task[..., Any, Any]) -> Schedule:
    assert task.schedule is not None  # noqa: S101 - only tasks with a schedule are here
    return task.schedule
