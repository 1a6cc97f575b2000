"""Locks that outlive exceptions and forks.

A signal handler may raise an exception at any line, also between taking a lock and the `try` that would release it.
So a `FairLock` needs no clean-up: its whole state is one deque, each operation on it is atomic, and each waiter in
it belongs to a frame. When that frame has ended, its waiter counts no more.

A forked child has only the thread that forked: a lock that another thread held would stay locked in it for ever. So the locks
that the child needs are taken before a fork, and released on both sides.
"""

from __future__ import annotations

import logging  # noqa: F401 # pyright: ignore[reportUnusedImport] - its hooks come first, so that they are called after ours
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

__all__ = ["FairLock", "Waiter", "around_forks", "lock_held_over_forks", "this_frame"]

#: The calling frame; with a number, the one that many levels further out.
this_frame = sys._getframe  # pyright: ignore[reportPrivateUsage] - it is documented
#: How often a waiting thread checks whether the lock's owner is gone, seconds.
_LOOK_EVERY = 0.05
#: How long a fork waits for other threads at most, seconds.
_FORK_WAITS = 10.0


class Waiter:
    """A thread that has a lock or waits for it. The first of a lock's waiters has the lock."""

    __slots__ = ("forks", "frame", "sleep_lock", "thread")

    def __init__(self, frame: FrameType, forks: bool) -> None:
        self.frame = frame  #: the frame that asked for the lock
        self.forks = forks  #: whether it is held for a fork
        self.thread = threading.get_ident()
        self.sleep_lock: threading.Lock | None = None  #: the lock that its thread sleeps on

    def is_gone(self) -> bool:
        """Return whether the frame has ended without releasing the lock."""
        try:
            self.frame.clear()  # raises while the frame runs, in any thread or greenlet
        except RuntimeError:
            return False
        return True

    def wake(self) -> None:
        """Wake its thread to look again."""
        sleep_lock = self.sleep_lock
        if sleep_lock is not None and sleep_lock.locked():
            with suppress(RuntimeError):  # another thread has just done so
                sleep_lock.release()


class FairLock:
    """A lock that is handed over in the order of asking, and that an owner does not keep when its frame ends."""

    def __init__(self) -> None:
        self._waiters: deque[Waiter] = deque()

    def acquire(self, timeout: float, frame: FrameType, *, forks: bool = False) -> Waiter | None:
        """Take the lock for a frame of this thread; return None if it was not free in time.

        A thread that has the lock or waits for it already (a signal handler or a `__del__` has interrupted it there) gets None
        at once: it would wait for itself.
        """
        waiter = Waiter(frame, forks)
        try:
            self._waiters.append(waiter)
            if self._waiters[0] is waiter or self._wait(waiter, timeout):
                return waiter
        except BaseException:
            self.release(waiter)
            raise
        self.release(waiter)
        return None

    def release(self, waiter: Waiter) -> bool:
        """Hand the lock on; return False if that was done before."""
        try:
            self._waiters.remove(waiter)
        except ValueError:
            return False
        if self._waiters:
            for first in list(self._waiters)[:1]:
                first.wake()
        return True

    @contextmanager
    def held(self, frame: FrameType) -> Generator[None]:
        """Hold the lock during a `with` in this frame, for work too short to need a limit on the wait."""
        waiter = None
        while waiter is None:
            waiter = self.acquire(1.0, frame)
            if waiter is None and self.has_or_waits():
                break  # interrupted inside this very block: this thread's work is done twice
        try:
            yield
        finally:
            if waiter is not None:
                self.release(waiter)

    def has_or_waits(self) -> bool:
        """Return whether this thread has the lock or waits for it."""
        me = threading.get_ident()
        return any(waiter.thread == me for waiter in list(self._waiters))

    def enter_fork(self, end: float, frame: FrameType) -> bool:
        """Hold the lock until `leave_fork`, for a frame that forks; return False if it was not free in time."""
        me = threading.get_ident()
        if any(waiter.forks and waiter.thread == me for waiter in list(self._waiters)[:1]):
            return True
        self.leave_fork()  # if it was interrupted while it waited
        return self.acquire(max(end - time.monotonic(), 0), frame, forks=True) is not None

    def leave_fork(self) -> None:
        """Release what this thread took for a fork."""
        me = threading.get_ident()
        for waiter in list(self._waiters):
            if waiter.forks and waiter.thread == me:
                self.release(waiter)

    def reset(self) -> None:
        """Free the lock in a forked child, which has none of the threads that waited."""
        self._waiters = deque()

    def _wait(self, waiter: Waiter, timeout: float) -> bool:
        """Sleep until this waiter is the first, and so has the lock; return False if that took too long."""
        deadline = time.monotonic() + timeout
        sleep_lock = threading.Lock()
        sleep_lock.acquire()
        waiter.sleep_lock = sleep_lock
        for other in list(self._waiters):
            if other is not waiter and other.thread == waiter.thread and not other.is_gone():
                return False
        while (first := self._waiters[0]) is not waiter:
            if first.is_gone():
                self.release(first)
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            sleep_lock.acquire(timeout=min(left, _LOOK_EVERY))
        return True


def lock_held_over_forks() -> FairLock:
    """Return a lock for moments in which no other thread may fork: an unfinished import, say, would never end in the child."""
    lock = FairLock()

    def enter(end: float, frame: FrameType) -> None:
        lock.enter_fork(end, frame)

    around_forks(enter, lock.leave_fork, lock.reset)
    return lock


def around_forks(before: Callable[[float, FrameType], None], in_parent: Callable[[], None], in_child: Callable[[], None]) -> None:
    """Call functions around each fork; the first gets its deadline, and the frame that forks.

    Before a fork they are called in the order of registration: first the lock for opening a store, which may register more,
    then the open databases. Calling them again must do no harm.
    """
    _hooks.append((before, in_parent, in_child))


_hooks: list[tuple[Callable[[float, FrameType], None], Callable[[], None], Callable[[], None]]] = []


def _before_fork() -> None:
    frame = this_frame(1)
    end = time.monotonic() + _FORK_WAITS
    _insist((partial(hook[0], end, frame) for hook in _hooks), end)  # Python's own list would miss hooks added meanwhile


def _after_fork_in_parent() -> None:
    _insist((hook[1] for hook in reversed(_hooks)), time.monotonic() + _FORK_WAITS)


def _after_fork_in_child() -> None:
    for hook in _hooks:
        hook[2]()


def _insist(calls: Iterable[Callable[[], None]], end: float) -> None:
    """Call each, again if a signal handler interrupts it: Python prints what is raised here and goes on with the fork."""
    interrupted: BaseException | None = None
    for call in calls:
        while interrupted is None or time.monotonic() < end:
            try:
                call()
                break
            except BaseException as error:  # noqa: BLE001 - raised again when the work is done
                interrupted = error
                _clear_frames(error)
    if interrupted is not None:
        raise interrupted


def _clear_frames(error: BaseException) -> None:
    """Let go of what the frames of an error hold: a connection that was being opened would stay open over the fork."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__context__


if hasattr(os, "register_at_fork"):
    # A handler is most likely to run at a function's first line, before anything can be caught there: so each is called twice.
    for _ in range(2):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
