"""The lifespans of a worker: entered before it claims, left when it stops.

Both happen in one thread, since what a plain lifespan opens may have to be closed where it was opened; async ones run on the
worker's event loop meanwhile. The worker waits for this thread only as long as a stop allows: a lifespan that hangs is logged and
left behind.

Enters: `Lifespans`.  Leaves: their resources, for the worker's runs.
"""

from __future__ import annotations

import contextlib
import threading

from laneway.desk.lifespan import Lifespans
from laneway.logs import log
from laneway.worker.duties.service import Service
from laneway.worker.event_loop import LoopThread

__all__ = ["LifespanKeeper"]

#: How long a lifespan has to end after it was cancelled, seconds.
CLEAN_UP = 0.2


class LifespanKeeper(Service):
    """Keeps lifespans open for the life of a worker."""

    name = "lifespans"

    def __init__(self, lifespans: Lifespans, loop: LoopThread) -> None:
        super().__init__()
        self._lifespans = lifespans
        self._loop = loop
        self._tried = threading.Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to enter. Where there are no lifespans, there is nothing to wait for and no thread."""
        if self._lifespans.is_empty:
            self._tried.set()
        else:
            super().start()

    def has_entered(self, within: float) -> bool:
        """Wait some seconds for all to be entered; return whether they are, or raise what prevents it."""
        if not self._tried.wait(within):
            return False
        if self._error is not None:
            raise self._error
        return True

    def run(self) -> None:
        """Enter all, wait for the end, and leave those that were entered."""
        from concurrent.futures import CancelledError  # noqa: PLC0415 - only workers with lifespans load it

        try:
            for step in self._lifespans.entering():
                self._loop.wait(step)
        except BaseException as error:  # noqa: BLE001 - raised again in the worker's thread
            self._error = error
        self._tried.set()
        if self._error is None:
            self._stopping.wait()
        for step in self._lifespans.leaving():
            with contextlib.suppress(CancelledError):
                self._loop.wait(step)

    def leave(self, within: float) -> None:
        """Leave all within some seconds. No more are entered; an async one that is being entered is cancelled."""
        self._stopping.set()
        if not self._tried.is_set():
            self._lifespans.cancel()
        if not self.stop(within):
            log.error("lifespan %s did not end within %g s; the worker exits without it", self._lifespans.at, within)
            self._lifespans.cancel()
            self.stop(CLEAN_UP)
