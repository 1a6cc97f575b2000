"""The watchdog: ends runs in threads that have used up their time.

It raises an exception in the run's thread, which ends Python code at once and a call into C when it returns. One that does not
return is the supervisor's business: see `laneway.fleet.supervisor`. Async runs are ended by their event loop and isolated ones
by the worker.

Enters: runs with a timeout.  Leaves: `TimeIsUp` in their threads.
"""

from __future__ import annotations

import threading
import time

from laneway.shield import Limit
from laneway.worker.duties.service import Service

__all__ = ["Watchdog"]

#: How soon it tries again when a run cannot be ended just there, seconds.
AGAIN = 0.002


class Watchdog(Service):
    """Its thread starts with the first run that has a timeout."""

    name = "watchdog"

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._limits: dict[Limit, float] = {}  # when each is over, monotonic

    def begin(self, seconds: float) -> Limit:
        """Give the run in this thread so long."""
        limit = Limit()
        with self._changed:
            self._limits[limit] = time.monotonic() + seconds
            if self._thread is None:
                self.start()
            self._changed.notify()
        limit.down()
        return limit

    def end(self, limit: Limit) -> None:
        """The run has ended. Call it again if it was interrupted: a limit strikes only once."""
        limit.lift()
        with self._changed:
            self._limits.pop(limit, None)

    def wake(self) -> None:
        """Let the thread look at its limits."""
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        """Strike where a limit is over."""
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                for limit, over in list(self._limits.items()):
                    if over <= now:
                        if limit.strike():
                            del self._limits[limit]
                        else:
                            self._limits[limit] = now + AGAIN
                next_one = min(self._limits.values(), default=None)
                self._changed.wait(None if next_one is None else max(next_one - now, 0))
