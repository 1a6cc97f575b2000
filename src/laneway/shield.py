"""The shield: a run whose timeout is over is not ended in the middle of Laneway's own code.

A thread is ended by an exception that is raised in it wherever it is. In a job's own code that is what a timeout means; inside a
store it would leave a lock held, or half an answer unread. So stores raise the shield where they must not be interrupted, and the
exception waits until it is down. It also waits while the thread takes or releases a lock, or enters or leaves a `with`:
raised at that point, it would leave the lock taken.

Python ignores an exception that leaves a destructor (`__del__`) or a callback of the garbage collector: it only calls
`sys.unraisablehook`. A hook of ours notices that the exception was lost there, and the limit strikes again.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Limit", "TimeIsUp", "down", "mend_log", "notice_lost", "up"]


#: Functions that take and release locks, in logging, threading, importlib and elsewhere. The exception is raised in the innermost
#: function: after the lock was taken and before any code can release it.
_DELICATE = {"acquire", "release", "_acquireLock", "_releaseLock", "_acquire_restore", "_release_save", "__enter__", "__exit__"}


class TimeIsUp(BaseException):
    """Raised inside a run: its timeout is over. No `except Exception` holds it up."""


class Limit:
    """The limit of one run, made in the thread that runs it. Its shield is up to begin with."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._shields = 1
        self._open = True
        self._struck = False
        self._waits = False  # it struck while the shield was up
        _here.limit = self

    def up(self) -> None:
        """Hold the exception back."""
        with self._lock:
            self._shields += 1
        try:
            _look()
        except TimeIsUp:  # it was on its way already: better now than behind the shield
            self._shields -= 1
            raise

    def down(self) -> None:
        """Let the exception come: if the limit struck meanwhile, raise it now."""
        with self._lock:
            self._shields -= 1
            if self._shields or not self._waits or not self._open:
                return
            self._open = False
        raise TimeIsUp

    def strike(self) -> bool:
        """Raise TimeIsUp in the run's thread: now, or when its shield goes down. Returns False if it cannot be raised now.

        Called by another thread, until the run has ended: it raises again only if the exception was lost.
        """
        with self._lock:
            self._waits = True
            if self._shields or not self._open:
                return True
            if _is_delicate(self._thread):
                return False
            self._open = False
            self._struck = True
            _raise_in(self._thread, TimeIsUp)
            return True

    def lost(self) -> None:
        """Let it be struck again: Python ignored the exception. Called in the run's thread."""
        self._open = True  # without the lock: this thread may hold it at this very moment

    def lift(self) -> None:
        """Disarm the limit: the run has ended. Call it again if it was interrupted."""
        _here.limit = None
        with self._lock:
            self._open = False
        if self._struck:
            _swallow(self._thread)


class _Here(threading.local):
    limit: Limit | None = None  # of the run in this thread


_here = _Here()


def up() -> None:
    """Raise the shield of the run in this thread, if it has a limit."""
    limit = _here.limit
    if limit is not None:
        limit.up()


def down() -> None:
    """Lower the shield of the run in this thread."""
    limit = _here.limit
    if limit is not None:
        limit.down()


def notice_lost() -> None:
    """Notice from now on if Python ignores the exception of a limit. Other ignored exceptions go to the hook that was there."""
    if isinstance(sys.unraisablehook, _Hook):
        return
    sys.unraisablehook = _Hook(sys.unraisablehook)


class _Hook:
    """Called by the interpreter, in the thread that lost the exception."""

    def __init__(self, before: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._before = before

    def __call__(self, ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, TimeIsUp):
            self._before(ignored)
        elif _here.limit is not None:
            _here.limit.lost()


def _is_delicate(thread: int) -> bool:
    """Return whether a thread is in a function that must not be interrupted."""
    # Python before 3.11.9 and 3.12.3 may collect garbage in there with a lock of its own held, and wait for itself (gh-106883).
    collects = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] - it is documented
    finally:
        if collects:
            gc.enable()
    return frame is not None and frame.f_code.co_name in _DELICATE


def mend_log() -> None:
    """Release what an interrupted run has left locked in the log. Called by its thread, which is not in there any more.

    The striking thread may find this one not delicate and be delayed at that moment: when it strikes, this thread may be.
    """
    inside: Any = logging
    handlers = [reference() for reference in inside._handlerList]
    locks: list[Any] = [inside._lock, *(getattr(handler, "lock", None) for handler in handlers)]
    for lock in locks:
        while lock is not None and lock._is_owned():
            lock.release()


def _look() -> None:
    """Do nothing: the interpreter checks for pending exceptions when it enters a function."""


def _swallow(thread: int) -> None:
    """Let this thread meet the exception on its way to it, or one more of the kind, and ignore it.

    Taking it back would leave the interpreter's mark of a pending exception: all functions would check for it from then on,
    and Python 3.11 would never get past the first line of one that is traced (by a debugger, or for coverage).
    """
    try:
        _raise_in(thread, TimeIsUp)
        _look()
    except TimeIsUp:
        pass


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    import ctypes  # noqa: PLC0415 - most processes never end a run

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
