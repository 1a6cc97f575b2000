"""The database file: its identity, how it is opened and locked, and its errors in plain words."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from laneway.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from laneway.kernel import was_forked
from laneway.store.sqlite.lock import FileLock, has_locks

__all__ = ["DatabaseFile", "Identity", "as_text", "is_busy"]

log = logging.getLogger("laneway.store")

#: A file's device and inode.
Identity = tuple[int, int] | None


#: How often writers look whether another file has the name of theirs, seconds: it takes as long as a statement.
LOOK_AGAIN = 0.001


class DatabaseFile:
    """A file of SQLite with its lock, or memory if there is no path."""

    def __init__(self, path: Path | None, synchronous: str, timeout: float) -> None:
        self.path = path
        self.folder = None if path is None else path.with_name(path.name + "-sync")
        self.lock = None if self.folder is None else FileLock(self.folder)
        self.timeout = timeout
        self._name = ":memory:" if path is None else os.fspath(path)
        self._synchronous = synchronous
        self._told_of: Identity = None
        self._look_at = 0.0

    def __str__(self) -> str:
        return "the store in memory" if self.path is None else f"the store {self.path}"

    def translate(self, error: sqlite3.Error, timeout: float | None = None) -> StoreError:
        """Return an error that says in one line what happened, why, and what to do."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self} is full ({error}). Nothing was written: make room on the disk, then try again.")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return self._read_only(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(error)
        if is_busy(error):
            return self.busy(self.timeout if timeout is None else timeout)
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(
                f"{self} cannot be opened ({error}): its folder must exist, and this user may write there.", written=False
            )
        return StoreUnavailable(f"{self} failed: {error}. Nothing was written.", written=False)

    def _damaged(self, error: sqlite3.Error) -> StoreError:
        if self._lacks_locks(self.identity()):
            return self.forked()  # others changed the file while it was read
        return StoreCorrupt(
            f"{self} is damaged or no SQLite database ({error}). Nothing was written: restore a backup, "
            "or move the file away to start with an empty store."
        )

    def _read_only(self, error: Exception) -> StoreReadOnly:
        return StoreReadOnly(
            f"{self} cannot be written to ({error}). Nothing was written: give this user write access to the file and its folder."
        )

    def busy(self, timeout: float) -> StoreBusy:
        """Return an error that names the process that holds the file."""
        pid = None if self.lock is None else self.lock.holder()
        who = "another process" if pid is None else f"process {pid}"
        return StoreBusy(
            f"{self} is held by {who} for more than {timeout:g} s: it is frozen or in a long transaction. "
            "Nothing was written: try again, or end that process.",
            pid=pid,
        )

    def take_lock(self, end: float, timeout: float, *, first: bool) -> None:
        """Keep other processes from writing. Wait until `end`, of `timeout` seconds in all; the `first` call makes the folder."""
        lock = self.lock
        if lock is None:
            return
        try:
            if first:
                lock.folder.mkdir(exist_ok=True)
            locked = lock.acquire(end)
        except FileNotFoundError as error:
            raise StoreUnavailable(
                f"{self} cannot be opened: its folder {lock.folder.parent} does not exist.", written=False
            ) from error
        except OSError as error:
            raise self._read_only(error) from error
        if not locked:
            raise self.busy(timeout)

    def has_moved(self, opened: Identity, now: float | None = None) -> bool:
        """Return whether the opened file is no longer the one with its name, and log that once. With a time: not each time."""
        if now is not None:
            if now < self._look_at:
                return False
            self._look_at = now + LOOK_AGAIN
        there = self.identity()
        if there == opened:
            return False
        if self._told_of != opened:
            self._told_of = opened
            what = "was deleted" if there is None else "was replaced by another file"
            log.error(
                "%s %s while this program had it open. Jobs that were only in the old file are gone; "
                "this program goes on with %s. Stop all programs before you touch the file.",
                self, what, "a new, empty one" if there is None else "the file that is there now",
            )  # fmt: skip
        return True

    def identity(self) -> Identity:
        """Return the identity of the file that has the name now."""
        if self.path is None:
            return None
        try:
            found = os.stat(self._name)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def connect(self, timeout: float) -> sqlite3.Connection:
        """Open a connection; its statements wait at most `timeout` seconds for other processes."""
        connection = sqlite3.connect(self._name, timeout=timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.text_factory = as_text
            connection.execute(f"pragma synchronous = {self._synchronous}")
            connection.execute("pragma cache_size = -8000")
            connection.execute("pragma wal_autocheckpoint = 4000")  # 16 MB: a checkpoint waits for the disk
        except BaseException:
            connection.close()
            raise
        return connection

    def check_locks(self, opened: Identity) -> None:
        """Raise StoreUnavailable if this is a forked process in which SQLite holds no lock on the file."""
        if self._lacks_locks(opened):
            raise self.forked()

    def is_open(self) -> bool:
        """Return whether this process has the file open, as far as the system tells."""
        opened = self.identity()
        return opened is not None and bool(_descriptors(opened))

    def _lacks_locks(self, opened: Identity) -> bool:
        """Return whether this is a forked process that has the file open, and no lock on it."""
        if opened is None or self.lock is None or not was_forked() or not self.lock.shows_locks():
            return False
        found = _descriptors(opened)
        return bool(found) and not any(map(has_locks, found))

    def forked(self) -> StoreUnavailable:
        """Return the error for a process that was forked while a connection was open: SQLite believes that it holds locks."""
        if self.path is None:
            return StoreUnavailable(
                'the store "sqlite://" lives in the memory of the process that opened it, and this is a forked child: '
                'use a file, such as "sqlite:///jobs.db"',
                written=False,
            )
        return StoreUnavailable(
            f"{self} cannot be used in this process, which was forked while a connection to the file was open: SQLite holds "
            "no lock here, and other programs would damage what is written. Nothing was written. Close every connection to "
            "this file before the fork (your own ones too; app.close() closes Laneway's), or start the process anew (spawn).",
            written=False,
        )


def as_text(raw: bytes) -> str:
    """Decode text leniently: bytes that another program wrote must not keep the jobs around them from being read."""
    return raw.decode(errors="replace")


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection holds the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _descriptors(identity: tuple[int, int]) -> list[int]:
    """Return the descriptors that this process has of a file."""
    found: list[int] = []
    for fd in map(int, os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ()):
        with contextlib.suppress(OSError):
            state = os.fstat(fd)
            if (state.st_dev, state.st_ino) == identity:
                found.append(fd)
    return found
