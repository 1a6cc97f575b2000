"""The watchdog: ends runs in threads that exceed their timeout.

It raises an exception in the run's thread, which ends Python code at once and a call into C when it returns. A call that does not
return is left to the supervisor: see `laneway.fleet.supervisor`. Async runs are ended by their event loop and isolated ones
by the worker.

Enters: runs with a timeout.  Leaves: `TimeIsUp` in their threads.
"""

from __future__ import annotations

import threading
import time

from laneway.shield import Limit, notice_lost
from laneway.worker.duties.service import Service

__all__ = ["Watchdog"]

#: The delay before the next try when a run cannot be ended at this point, seconds.
AGAIN = 0.002
#: The delay before checking whether a run that was interrupted has lost the exception, seconds.
LOST = 0.02


class Watchdog(Service):
    """Its thread starts with the first run that has a timeout."""

    name = "watchdog"

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._limits: dict[Limit, float] = {}  # the deadline of each, monotonic

    def begin(self, limit: Limit, seconds: float) -> None:
        """Give the run in this thread `seconds` seconds, and lower its shield."""
        with self._changed:
            self._limits[limit] = time.monotonic() + seconds
            if self._thread is None:
                notice_lost()
                self.start()
            self._changed.notify()
        limit.down()

    def end(self, limit: Limit) -> None:
        """Remove the limit of a run that ended. Call it again if it was interrupted."""
        limit.lift()
        with self._changed:
            self._limits.pop(limit, None)

    def wake(self) -> None:
        """Wake the thread to check its limits."""
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        """Interrupt each run whose deadline has passed."""
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                for limit, over in list(self._limits.items()):
                    if over <= now:
                        self._limits[limit] = now + (LOST if limit.strike() else AGAIN)
                next_one = min(self._limits.values(), default=None)
                self._changed.wait(None if next_one is None else max(next_one - now, 0))
