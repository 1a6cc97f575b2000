"""A queue (line): items that wait, and the threads that take them.

This is the inner hand-over, with nothing around it: no futures, no results, no lock. A caller that adds an item wakes a thread; a
thread that finds nothing goes to sleep; the thread that slept last is woken first. That costs about a microsecond. The worker's
slots are such a line, and so is every line of a `WorkerPool`.

Enters: items.  Leaves: calls of the work with them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

__all__ = ["ThreadQueue"]

T = TypeVar("T")


class ThreadQueue(Generic[T]):
    """Threads, one per name, that start as they are needed.

    `begin(name)` is called in each thread and returns the function that handles an item. That must not raise: if it does, the
    thread calls `crash` and ends. `put` and `wake` may be called from any thread.
    """

    def __init__(
        self, names: Sequence[str], begin: Callable[[str], Callable[[T], object]], crash: Callable[[BaseException], None]
    ) -> None:
        self.size = len(names)
        self._names = list(reversed(names))  # of threads that have not started
        self._begin = begin
        self._crash = crash
        self._items: deque[T] = deque()
        self._idle: list[threading.Lock] = []  # the locks that idle threads wait for
        self.threads: list[threading.Thread] = []
        self._wanted = self.size  # how many threads should be awake
        self._closed = False

    @property
    def waiting(self) -> int:
        """The number of items that wait for a thread."""
        return len(self._items)

    @property
    def active(self) -> int:
        """The number of threads that are awake."""
        return len(self.threads) - len(self._idle)

    def put(self, item: T) -> None:
        """Add an item, and wake a thread for it if one sleeps. Raises RuntimeError if it was added, but there is no thread."""
        self._items.append(item)
        if self._idle or self._names:
            self.wake()

    def take_out(self, item: T) -> bool:
        """Take an item out again; return False if a thread has it."""
        with contextlib.suppress(ValueError):
            self._items.remove(item)
            return True
        return False

    def listed(self) -> list[T]:
        """Return all items that no thread has taken, and leave them there."""
        return list(self._items.copy())

    def take_back(self) -> list[T]:
        """Take out all items that no thread has taken."""
        back: list[T] = []
        with contextlib.suppress(IndexError):
            while True:
                back.append(self._items.popleft())
        return back

    def wake(self) -> bool:
        """Wake one more thread, a new one if all are awake; return False if all are."""
        self._wanted = max(self._wanted, self.active + 1)
        try:
            self._idle.pop().release()
        except IndexError:
            return self._start()
        return True

    def close(self) -> None:
        """Let threads end: idle ones at once, others after their item. Items that still wait are left."""
        self._closed = True
        while self._idle:
            self.wake()

    def _start(self) -> bool:
        try:
            name = self._names.pop()
        except IndexError:
            return False
        thread = threading.Thread(target=self._work, args=(name,), name=name, daemon=True)
        self.threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads, or the interpreter is about to end
            self.threads.remove(thread)
            self._names.append(name)
            if not self.threads:
                raise
            return False
        return True

    def _work(self, name: str) -> None:
        bed = threading.Lock()
        bed.acquire()
        items = self._items
        try:
            work = self._begin(name)
            while not self._closed:
                try:
                    item = items.popleft()
                except IndexError:
                    self._rest(bed, items)
                    continue
                work(item)
                del item  # a sleeping thread keeps nothing alive
                if len(self.threads) - len(self._idle) > self._wanted:
                    self._rest(bed, ())  # the others are enough, and this thread would only slow them down
        except BaseException as error:  # noqa: BLE001 - an internal error: the work catches what items raise
            self._crash(error)

    def _rest(self, bed: threading.Lock, unless: Collection[T]) -> None:
        self._idle.append(bed)
        # An item may have come since the check: then no thread was woken for it, or this one was.
        if unless or self._closed:
            try:
                self._idle.remove(bed)
            except ValueError:
                pass
            else:
                return
        bed.acquire()
