"""Settling: outcomes on their way back to the store.

Runs hand over outcomes in any order, from any thread. The exchanger takes all that wait whenever its last exchange
returned: under load many outcomes share a round trip, and an idle worker settles one at once. There is no timer.

Enters: `Settled` pairs.  Leaves: lists of them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from laneway.core.outcome import Settled

__all__ = ["WaitingOutcomes"]


class WaitingOutcomes:
    """Outcomes that wait for the next exchange, and the means to wake the session."""

    def __init__(self, wake_store: Callable[[], None]) -> None:
        self.waiting: deque[Settled] = deque()  # any thread may append; `wake` if the session must see it now
        self._wake_store = wake_store
        self._in_store = False  # the session sleeps in `store.wait`
        self._asleep = False  # the session sleeps in `doze` or `sleep`
        self._rung = False  # the session was woken since it last slept, whether it slept or not
        self._door = threading.Lock()
        self._door.acquire()

    def wake(self) -> None:
        """Wake the session, or keep it from going to sleep."""
        self._rung = True
        if self._asleep:
            self._asleep = False
            self._open()
        elif self._in_store:
            self._in_store = False
            self._wake_store()

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # another thread released it at this moment
            self._door.release()

    def take(self) -> list[Settled]:
        """Take all waiting outcomes."""
        taken: list[Settled] = []
        while self.waiting:
            taken.append(self.waiting.popleft())
        return taken

    def put_back(self, settled: list[Settled]) -> None:
        """Return outcomes that could not be written, in front of newer ones."""
        self.waiting.extendleft(reversed(settled))

    def doze(self, timeout: float) -> None:
        """Sleep until `wake` is called; outcomes alone do not end it."""
        self._asleep = True
        if not self._rung:
            self._door.acquire(timeout=timeout)
        self._asleep = self._rung = False

    def sleep(self, timeout: float, in_store: Callable[[float], bool] | None) -> None:
        """Sleep until an outcome comes; with `in_store` also until the store rings."""
        # The mark is set before the check: a thread that adds something after the check sees the mark and wakes the session.
        if in_store is not None:
            self._in_store = True
            if not self.waiting and not self._rung:
                in_store(timeout)
            self._in_store = False
        else:
            self._asleep = True
            if not self.waiting and not self._rung:
                self._door.acquire(timeout=timeout)
            self._asleep = False
        self._rung = False
