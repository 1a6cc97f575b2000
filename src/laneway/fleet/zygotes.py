"""The zygotes of a fleet: the current one, one that is to take over, and old ones whose last workers drain."""

from __future__ import annotations

import contextlib
import selectors
import time

from laneway.errors import ConfigError
from laneway.fleet.position import pause
from laneway.fleet.settings import FleetSettings
from laneway.fleet.zygote_handle import ZygoteHandle, reap
from laneway.kernel import cause_of_death
from laneway.logs import log

__all__ = ["Zygotes"]


class Zygotes:
    """Starts and ends zygotes, and knows the zygote of each worker."""

    def __init__(self, plan: FleetSettings, selector: selectors.BaseSelector) -> None:
        self.current = ZygoteHandle(plan)
        self.homes: dict[str, ZygoteHandle] = {}  #: the zygote of each worker, by the worker's id
        self._plan = plan
        self._selector = selector
        self._next: ZygoteHandle | None = None  # is to take over
        self._old: list[ZygoteHandle] = []  # kept until their last worker has drained
        self._failures = 0  # of zygotes that were to take over, in a row
        self._again_at = 0.0  # when another try may be made, monotonic
        self._watch(self.current)

    def all(self) -> list[ZygoteHandle]:
        """Return all zygotes, the current one first."""
        return [zygote for zygote in (self.current, self._next, *self._old) if zygote is not None]

    def _watch(self, zygote: ZygoteHandle) -> None:
        self._selector.register(zygote.wire, selectors.EVENT_READ)

    def unwatch(self, zygote: ZygoteHandle) -> None:
        """Stop watching a zygote's socket."""
        with contextlib.suppress(KeyError, ValueError):  # it is not watched any more
            self._selector.unregister(zygote.wire)

    def _end(self, zygote: ZygoteHandle) -> None:
        self.unwatch(zygote)
        zygote.end()

    def start_next(self) -> None:
        """Start a zygote that takes over when it has loaded the app."""
        if self._next is not None:
            self._end(self._next)
            self._next = None
        try:
            self._next = ZygoteHandle(self._plan)
        except ConfigError as error:  # as while Python is replaced by another version
            log.error("the app cannot be loaded any more: %s", error)
            self._wait()
        else:
            self._watch(self._next)

    def take_over(self, zygote: ZygoteHandle) -> ZygoteHandle | None:
        """Fork new workers from this zygote, which has loaded the app. Return the one before it, if there is a change."""
        if zygote is not self._next:
            return None
        old, self.current, self._next = self.current, zygote, None
        self._failures = 0
        if old in self.homes.values():
            self._old.append(old)
        else:
            self._end(old)
        return old

    def left(self, worker: str) -> None:
        """Note that a worker has ended. With the last worker of an old zygote that zygote ends too."""
        home = self.homes.pop(worker)
        if home in self._old and home not in self.homes.values():
            self._old.remove(home)
            self._end(home)

    def look(self, *, stopping: bool) -> None:
        """Replace a zygote that is lost; its workers die with it."""
        reaped = reap()
        for zygote in self.all():
            if zygote.process.pid in reaped:
                zygote.ended(reaped[zygote.process.pid])
        if self._next is not None and self._next.wire.closed:
            self._end(self._next)
            if not self._next.failed:
                cause = cause_of_death(self._next.code or 0)
                log.error("the app cannot be loaded any more: its process ended with %s", cause)
            self._next = None
            self._wait()
        if self.current.wire.closed and self._next is None and not stopping and time.monotonic() >= self._again_at:
            log.warning("zygote lost; starting another one")
            self.start_next()

    def _wait(self) -> None:
        """Put off the next try."""
        self._again_at = time.monotonic() + pause(self._failures)
        self._failures += 1

    def close(self, *, at_once: bool) -> None:
        """End all zygotes."""
        for zygote in self.all():
            zygote.end(at_once=at_once)
