"""One fair write lock.

SQLite lets writers race for its lock and the one that just had it wins: of two busy workers one starves. So writers
queue up before they ask SQLite. Threads of a process wait in line (`FairLock`), and the one in front waits for the other
processes (`FileLock`).

The lock is only about fairness. SQLite's own lock still guards the data, so a deleted lock file harms nobody.

A signal's handler may raise an exception at any line of ours. So `FairLock` needs nobody to clean up: all that it knows is one
deque, each operation on it is atomic, and a place in it belongs to a frame. If that frame has ended, so has the place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from types import FrameType

if sys.platform != "win32":
    import fcntl
else:  # SQLite's own lock has to do
    fcntl = None

__all__ = ["FairLock", "FileLock", "Place", "has_locks", "this_frame"]

#: The frame that calls it; with a number, one that many levels further out.
this_frame = sys._getframe  # pyright: ignore[reportPrivateUsage] - it is documented
#: How often a waiting thread looks whether the owner of the lock is gone, seconds.
_LOOK_EVERY = 0.05


class Place:
    """A thread's place in the line of a lock. The first in line has the lock."""

    __slots__ = ("bed", "frame", "thread")

    def __init__(self, frame: FrameType | None) -> None:
        self.frame = frame  #: what it belongs to; None: it stays until it is released
        self.thread = threading.get_ident()
        self.bed: threading.Lock | None = None  #: what its thread sleeps on

    def is_gone(self) -> bool:
        """Say whether the frame has ended without giving the place back."""
        if self.frame is None:
            return False
        try:
            self.frame.clear()  # refused while it runs, in whichever thread or greenlet
        except RuntimeError:
            return False
        return True

    def wake(self) -> None:
        """Let its thread look again."""
        bed = self.bed
        if bed is not None and bed.locked():
            with suppress(RuntimeError):  # somebody else has just done so
                bed.release()


class FairLock:
    """A lock that is handed over in the order of asking, and that an owner cannot take along when it ends."""

    def __init__(self) -> None:
        self._line: deque[Place] = deque()

    def acquire(self, timeout: float, frame: FrameType | None) -> Place | None:
        """Take the lock for a frame of this thread; None if it could not be had in time.

        A thread that is in line already (a signal's handler or a `__del__` has interrupted it there) gets None at once: it would
        wait for itself.
        """
        place = Place(frame)
        try:
            self._line.append(place)
            if self._line[0] is place or self._wait(place, timeout):
                return place
        except BaseException:
            self.release(place)
            raise
        self.release(place)
        return None

    def release(self, place: Place) -> bool:
        """Hand the lock on; False if that was done before."""
        try:
            self._line.remove(place)
        except ValueError:
            return False
        for first in list(self._line)[:1]:
            first.wake()
        return True

    @contextmanager
    def held(self, frame: FrameType) -> Generator[None]:
        """Have the lock for the time of a `with` in this frame, for work so short that waiting for it needs no limit."""
        place = None
        while place is None:
            place = self.acquire(1.0, frame)
            if place is None and self.is_in_line():
                break  # interrupted in the middle of the same: what this thread was about to do is done twice
        try:
            yield
        finally:
            if place is not None:
                self.release(place)

    def is_in_line(self) -> bool:
        """Say whether this thread has the lock or waits for it."""
        me = threading.get_ident()
        return any(place.thread == me for place in list(self._line))

    def leave_fork(self) -> None:
        """Give back what this thread took for the time of a fork."""
        me = threading.get_ident()
        for place in list(self._line):
            if place.frame is None and place.thread == me:
                self.release(place)

    def _wait(self, place: Place, timeout: float) -> bool:
        """Sleep until this place is the first; False if that took too long."""
        deadline = time.monotonic() + timeout
        bed = threading.Lock()
        bed.acquire()
        place.bed = bed
        for other in list(self._line):
            if other is not place and other.thread == place.thread and not other.is_gone():
                return False
        while (first := self._line[0]) is not place:
            if first.is_gone():
                self.release(first)
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            bed.acquire(timeout=min(left, _LOOK_EVERY))
        return True


class FileLock:
    """A lock between processes in which nobody can overtake the next in line.

    Two files: whoever has locked `turn` is next, waits for `write`, and lets go of `turn` only then. A process that has
    just released `write` finds `turn` taken and stands behind. Waiting is polling, so that it can end in time;
    who holds `turn` cannot be overtaken while it sleeps.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn: FileIO | None = None
        self._write: FileIO | None = None

    def acquire(self, timeout: float) -> bool:
        """Take the lock; False if it could not be had in time. Called by one thread at a time."""
        if fcntl is None:
            return True
        turn = self._turn = self._turn or self._open("turn")
        write = self._write = self._write or self._open("write")
        if _try(turn) and _try(write):
            fcntl.flock(turn, fcntl.LOCK_UN)
            return True
        deadline = time.monotonic() + timeout
        try:
            return _poll(turn, deadline) and _poll(write, deadline)
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)

    def release(self) -> None:
        """Let the next one in."""
        if fcntl is not None and self._write is not None:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files, and so let go of whatever was locked.

        In a forked child this frees nothing of its parent's, and a dead parent's lock does not live on in the child.
        """
        files, self._turn, self._write = (self._turn, self._write), None, None
        for file in files:
            if file is not None:
                file.close()

    def __del__(self) -> None:
        self.close()

    def holder(self) -> int | None:
        """Return the pid of who holds the lock, where the system tells."""
        try:
            inode = (self._folder / "write").stat().st_ino
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        for line in lines:
            fields = line.split()
            if "->" not in fields and fields[5].endswith(f":{inode}"):
                return int(fields[4])
        return None

    def shows_locks(self) -> bool:
        """Say whether the system lists the locks that a process has on files of this folder. The files must be open."""
        if fcntl is None or self._turn is None:
            return False
        try:
            fcntl.lockf(self._turn, fcntl.LOCK_SH | fcntl.LOCK_NB)
            try:
                return has_locks(self._turn.fileno())
            finally:
                fcntl.lockf(self._turn, fcntl.LOCK_UN)
        except OSError:
            return False

    def _open(self, name: str) -> FileIO:
        return FileIO(self._folder / name, "a+")


def has_locks(fd: int) -> bool:
    """Say whether Linux lists POSIX locks of this process on an open file."""
    return "POSIX" in Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="utf-8")


def _try(file: FileIO) -> bool:
    assert fcntl is not None  # noqa: S101 - for the type checker
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _poll(file: FileIO, deadline: float) -> bool:
    """Lock a file, looking often: who looks less often than the others finds it taken each time."""
    patience = time.monotonic() + 0.1  # nobody who is well holds it longer
    while not _try(file):
        now = time.monotonic()
        if now >= deadline:
            return False
        time.sleep(0.00005 if now < patience else 0.001)
    return True
