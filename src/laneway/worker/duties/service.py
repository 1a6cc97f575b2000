"""A duty in a thread of its own. All duties start and stop in the same way.

Stopping twice is fine, and so is stopping a duty that never started.
"""

from __future__ import annotations

import threading

from laneway.logs import log

__all__ = ["Service"]


class Service:
    """Subclasses define `tick` and `every`, or `run`."""

    name = "service"  #: of the thread
    every = 1.0  #: seconds between ticks

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """Do the duty once."""
        raise NotImplementedError

    def run(self) -> None:
        """Do the duty until `_stopping` is set. An error in a tick is logged, and the next tick comes."""
        while not self._stopping.wait(self.every):
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a duty that fails once is done again
                log.exception("%s failed; it is tried again", self.name)

    def start(self) -> None:
        """Start the thread."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self.run, name=f"laneway-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, within: float | None = None) -> bool:
        """End the thread after the current tick; return False if that takes longer."""
        self._stopping.set()
        self.wake()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(within)
        return not thread.is_alive()

    def wake(self) -> None:
        """Wake the thread. A duty that waits for anything but `_stopping` overrides this."""
