"""One fair write lock.

SQLite lets writers race for its lock, and the one that just had it wins: of two busy workers one starves. So writers
queue up before they ask SQLite. Threads of a process wait in line (`FairLock`), and the first one waits for the other
processes (`FileLock`).

The lock is only for fairness. SQLite's own lock still guards the data, so a deleted lock file does no harm.
"""

from __future__ import annotations

import sys
import time
from io import FileIO
from pathlib import Path

if sys.platform != "win32":
    import fcntl
else:  # SQLite's own lock must do
    fcntl = None

__all__ = ["FileLock", "has_locks"]

_NOW = 0 if fcntl is None else fcntl.LOCK_EX | fcntl.LOCK_NB


class FileLock:
    """A lock between processes in which no process overtakes the next in line.

    Two files: the process that has locked `turn` is next, waits for `write`, and releases `turn` only then. A process that has
    just released `write` finds `turn` taken and waits behind it. Processes wait by polling, so that a time-out can end it; the
    holder of `turn` cannot be overtaken while it sleeps.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._turn: FileIO | None = None
        self._write: FileIO | None = None

    def acquire(self, end: float) -> bool:
        """Take the lock; return False if it was not free until `end` (monotonic). Called by one thread at a time."""
        if fcntl is None:
            return True
        try:
            turn, write = self._turn, self._write
            if turn is None or write is None or turn.closed or write.closed:
                turn = self._turn = FileIO(self.folder / "turn", "a+")
                write = self._write = FileIO(self.folder / "write", "a+")
            try:
                return (_try(turn) or _poll(turn, end)) and (_try(write) or _poll(write, end))
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)
        except BaseException:
            self.close()  # whatever was locked already
            raise

    def release(self) -> None:
        """Let the next process in."""
        if fcntl is not None and self._write is not None and not self._write.closed:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files, and so release all locks on them.

        In a forked child this frees nothing of its parent's, and a dead parent's lock does not live on in the child.
        """
        for file in (self._turn, self._write):
            if file is not None:
                file.close()
        self._turn = self._write = None

    def __del__(self) -> None:
        self.close()

    def holder(self) -> int | None:
        """Return the pid of the lock's holder, if the system shows it."""
        try:
            inode = (self.folder / "write").stat().st_ino
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        for line in lines:
            fields = line.split()
            if "->" not in fields and fields[5].endswith(f":{inode}"):
                return int(fields[4])
        return None

    def shows_locks(self) -> bool:
        """Return whether the system lists the locks that a process has on files of this folder."""
        if fcntl is None:
            return False
        try:
            with FileIO(self.folder / "turn") as file:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return has_locks(file.fileno())
        except OSError:
            return False


def has_locks(fd: int) -> bool:
    """Return whether Linux lists POSIX locks of this process on an open file."""
    return "POSIX" in Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="utf-8")


def _try(file: FileIO) -> bool:
    assert fcntl is not None  # noqa: S101 - for the type checker
    try:
        fcntl.flock(file, _NOW)
    except BlockingIOError:
        return False
    return True


def _poll(file: FileIO, end: float) -> bool:
    """Lock a file, polling often: a process that polls less often than the others finds it taken each time."""
    patience = time.monotonic() + 0.1  # no healthy process holds it longer
    while not _try(file):
        now = time.monotonic()
        if now >= end:
            return False
        time.sleep(0.00005 if now < patience else 0.001)
    return True
