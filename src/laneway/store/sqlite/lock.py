"""One fair write lock.

SQLite lets writers race for its lock and the one that just had it wins: of two busy workers one starves. So writers
queue up before they ask SQLite. Threads of a process wait in line (`FairLock`), and the one in front waits for the other
processes (`FileLock`).

The lock is only about fairness. SQLite's own lock still guards the data, so a deleted lock file harms nobody.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from pathlib import Path

if sys.platform != "win32":
    import fcntl
else:  # SQLite's own lock has to do
    fcntl = None

__all__ = ["FairLock", "FileLock"]


class FairLock:
    """A lock that is handed over in the order of asking."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._line: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take the lock; False if it could not be had in time."""
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            turn = threading.Lock()
            turn.acquire()
            self._line.append(turn)
        if turn.acquire(timeout=timeout):
            return True
        with self._mutex:
            if turn in self._line:
                self._line.remove(turn)
                return False
        return True  # it was handed over in this very moment

    def release(self) -> None:
        """Hand the lock to who has waited longest."""
        with self._mutex:
            if self._line:
                self._line.popleft().release()
            else:
                self._held = False


class FileLock:
    """A lock between processes in which nobody can overtake the next in line.

    Two files: whoever has locked `turn` is next, waits for `write`, and lets go of `turn` only then. A process that has
    just released `write` finds `turn` taken and stands behind. Waiting is polling, so that it can end in time;
    who holds `turn` cannot be overtaken while it sleeps.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn: int | None = None
        self._write: int | None = None

    def acquire(self, timeout: float) -> bool:
        """Take the lock; False if it could not be had in time. Called by one thread at a time."""
        if fcntl is None:
            return True
        if self._turn is None or self._write is None:
            self._turn, self._write = self._open("turn"), self._open("write")
        if _try(self._turn) and _try(self._write):
            fcntl.flock(self._turn, fcntl.LOCK_UN)
            return True
        deadline = time.monotonic() + timeout
        try:
            return _poll(self._turn, deadline) and _poll(self._write, deadline)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def release(self) -> None:
        """Let the next one in."""
        if fcntl is not None and self._write is not None:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files.

        In a forked child this frees nothing of its parent's, and a dead parent's lock does not live on in the child.
        """
        for fd in (self._turn, self._write):
            if fd is not None:
                os.close(fd)
        self._turn = self._write = None

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

    def _open(self, name: str) -> int:
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _try(fd: int) -> bool:
    assert fcntl is not None  # noqa: S101 - for the type checker
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _poll(fd: int, deadline: float) -> bool:
    """Lock a file, looking often: who looks less often than the others finds it taken each time."""
    patience = time.monotonic() + 0.1  # nobody who is well holds it longer
    while not _try(fd):
        now = time.monotonic()
        if now >= deadline:
            return False
        time.sleep(0.00005 if now < patience else 0.001)
    return True
