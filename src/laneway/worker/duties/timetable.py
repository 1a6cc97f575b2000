"""The timetable: enqueues the jobs of schedules when their occurrences come.

Every worker runs one, and the store lets each occurrence fire once. So there is no leader to elect and none to lose. Time is the
store's: a worker whose clock is wrong, or is changed, fires nothing early. Occurrences that passed while no worker ran are made
up for when a worker starts, as the schedule's `catch_up` says; so are those that passed while a machine slept.

Schedules are declared in code, or kept in the store: a look at the store, every few seconds, finds those that were set, replaced
or dropped. One that this worker cannot fire (its entry cannot be read, or it does not know the task) is reported once.

Enters: the app's schedules, and those in the store.  Leaves: jobs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from laneway.core.instant import FAR, SECOND
from laneway.desk.schedules import Scheduled, read_entry
from laneway.errors import LanewayError, StoreMoved, StoreUnavailable, UnknownTask
from laneway.logs import log
from laneway.store.contract import Occurrence
from laneway.worker.duties.service import Service

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["Timetable"]

#: How often it asks the store for its time, for occurrences that other workers fired, and for schedules, seconds.
LOOK_EVERY = 10.0
#: A gap between two turns above this means that the machine slept: occurrences in it were missed, microseconds.
SLEPT = 60 * SECOND
#: The most schedules that are fired between two looks at what other workers have fired.
AT_ONCE = 50
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has only the latter, which stops while it sleeps
#: The most names in a line of the log.
SHOWN = 5


class TimetableRow:
    """A schedule in the timetable, and up to when it has fired."""

    def __init__(self, scheduled: Scheduled) -> None:
        self.scheduled = scheduled
        self.last = -1  #: its last known occurrence that fired or was skipped, microseconds
        self.due = 0  #: its next one; far away if there is none
        self.missed = True  #: occurrences up to now passed while no worker was there: `catch_up` decides about them

    def advance(self, last: int) -> None:
        """Note that it has fired up to here."""
        if last > self.last:
            self.last = last
            self.due = next(self.scheduled.schedule.occurrences(last), last + FAR * SECOND)


class Timetable(Service):
    """Wakes up for the next occurrence."""

    name = "timetable"

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app
        self._rows: dict[str, TimetableRow] = {}
        self._reported: dict[str, bytes] = {}  # entries in the store that this worker cannot fire
        self._ahead = 0  # how far the store's clock is ahead of the time since this machine started, microseconds
        self._turned = 0  # the last turn, by the store's clock

    def run(self) -> None:
        """Fire due occurrences, and sleep until the next."""
        asked = float("-inf")
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                if time.monotonic() - asked >= LOOK_EVERY:
                    self._ask()
                    asked = time.monotonic()
                self._fire_all(_uptime() + self._ahead)
                pause = self._until_next(_uptime() + self._ahead)
            except (StoreUnavailable, StoreMoved) as error:
                log.debug("schedules wait for the store: %s", error)
                pause = 1.0
            except Exception:  # noqa: BLE001 - as in every duty: the next turn comes
                log.exception("the timetable could not be read; schedules wait %g s", LOOK_EVERY)
                pause = LOOK_EVERY

    # -- what there is ---------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Read the store's time, the occurrences fired so far, and the schedules that are kept there."""
        found = self._app.store.schedules()
        self._ahead = found.now - _uptime()
        rows: dict[str, TimetableRow] = {}
        for row in self._find(found.kept):
            name = row.scheduled.name
            last = found.last.get(name)
            if last is None:
                # No worker has seen this schedule before: it begins now.
                self._app.store.push([], Occurrence(name, found.now, row.scheduled.entry))
            row.advance(found.now if last is None or not 0 <= last <= found.now + FAR * SECOND else last)
            rows[name] = row
        self._rows = rows

    def _find(self, kept: Mapping[str, bytes]) -> Iterator[TimetableRow]:
        """Yield a row for each schedule that this worker can fire; those it has stay as they are."""
        declared = self._app.schedules.by_name()
        for name, scheduled in declared.items():
            row = self._rows.get(name)
            yield row if row is not None and row.scheduled is scheduled else TimetableRow(scheduled)
        unknown: list[str] = []
        for name, raw in kept.items():
            row = self._rows.get(name)
            if name in declared:
                self._report(name, raw, "the app declares one of this name, and that counts: drop this one")
            elif row is not None and row.scheduled.entry == raw:
                yield row
            elif self._reported.get(name) != raw:
                try:
                    yield TimetableRow(read_entry(name, raw).scheduled(self._app, name, raw))
                except UnknownTask:
                    unknown.append(name)
                    self._reported[name] = raw
                except LanewayError as error:
                    self._report(name, raw, str(error))
        self._reported = {name: raw for name, raw in self._reported.items() if name in kept}
        if unknown:
            names = ", ".join(unknown[:SHOWN]) + (", …" if len(unknown) > SHOWN else "")
            log.info("this worker does not know the tasks of %d schedules in the store; they wait for one that does: %s",
                     len(unknown), names)  # fmt: skip

    def _report(self, name: str, raw: bytes, why: str) -> None:
        """Log, once for each entry, why it does not fire here."""
        if self._reported.get(name) != raw:
            self._reported[name] = raw
            log.warning('the schedule "%.200s" in the store does not fire here: %s', name, why)

    # -- firing ----------------------------------------------------------------------------------------------

    def _fire_all(self, now: int) -> None:
        """Fire occurrences since the last turn, the earliest first if they are few."""
        if now - self._turned > SLEPT:
            for row in self._rows.values():
                row.missed = True
        self._turned = now
        due = sorted([row for row in self._rows.values() if row.due <= now], key=lambda row: row.due)
        if len(due) > AT_ONCE:  # workers begin with different ones, and find those of the others fired
            random.shuffle(due)
        for number, row in enumerate(due, 1):
            if row.due <= now:
                self._fire(row, now)
            if number % AT_ONCE == 0:
                self._ask()
        for row in self._rows.values():
            row.missed = False

    def _fire(self, row: TimetableRow, now: int) -> None:
        """Fire what is due of one schedule. What goes wrong with it is logged: other schedules go on."""
        from laneway.core.cron import missed  # noqa: PLC0415 - most workers have no schedules, and time zones take a while to load

        scheduled = row.scheduled
        for moment in missed(scheduled.schedule, row.last, now, scheduled.catch_up if row.missed else "all"):
            if self._stopping.is_set():
                return
            try:
                if scheduled.fire(moment):
                    log.debug('the schedule "%s" fired for %s', scheduled.name, moment)
            except (StoreUnavailable, StoreMoved):
                raise
            except Exception:  # noqa: BLE001 - a middleware of the user's may raise anything
                log.exception('the schedule "%s" could not fire; other schedules go on', scheduled.name)
            row.advance(moment)
        if row.missed:
            row.advance(now)

    def _until_next(self, now: int) -> float:
        """Return the time until the next occurrence, seconds."""
        first = min((row.due for row in self._rows.values()), default=now + FAR * SECOND)
        return min(max(first - now, 0) / SECOND, LOOK_EVERY)


def _uptime() -> int:
    """Return the time since this machine started, sleep included, microseconds: no program can set it."""
    return time.clock_gettime_ns(_UPTIME) // 1000
