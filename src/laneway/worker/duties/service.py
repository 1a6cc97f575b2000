"""A duty beside the worker's loop: one thread, one `tick`, started and stopped the same way.

Stopping twice is fine, and so is stopping what never started. A tick that raises is logged, and the next one comes.
"""

from __future__ import annotations

import logging
import threading

__all__ = ["Service"]

log = logging.getLogger("laneway")


class Service:
    """Subclasses say what to do and how often."""

    every = 1.0  #: seconds between ticks

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """Do the duty once."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to tick."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._loop, name=f"laneway-{type(self).__name__.lower()}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, after the tick that runs."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        while not self._stop.wait(self.every):
            try:
                self.tick()
            except Exception:
                log.exception("%s failed; it goes on", type(self).__name__)
