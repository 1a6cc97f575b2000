"""The database file: connections, transactions, and errors in plain words.

One connection writes, behind one fair lock; one reads, with a snapshot of its own. Both open on first use. A forked child drops
what it inherited without closing it and opens its own. In memory there is one connection for both.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType

from laneway import shield
from laneway.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from laneway.store.sqlite.lock import FairLock, FileLock

__all__ = ["Database"]

_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []  # connections of our parent: closing them would be ours to regret


class Database:
    """An SQLite file, or memory if there is no path."""

    def __init__(self, path: Path | None, *, synchronous: str = "normal", timeout: float = 5.0) -> None:
        self.path = path
        self.folder = None if path is None else path.with_name(path.name + "-sync")
        self.timeout = timeout
        self.is_there: Callable[[sqlite3.Connection], bool] = lambda _: True
        self.on_open: Callable[[sqlite3.Connection], None] = lambda _: None
        self.on_fork: Callable[[], None] = lambda: None
        self._synchronous = synchronous
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._line = FairLock()
        self._file_lock = None if self.folder is None else FileLock(self.folder)
        self._reading = threading.Lock()
        self._lost_in_fork = False
        self._version = -1
        self.writing = _Writing(self)
        _open_databases.add(self)

    def enter(self, timeout: float | None = None) -> sqlite3.Connection:
        """Take the write lock and begin; wait for it at most so long, or as long as this store waits."""
        shield.up()
        try:
            return self._enter(self.timeout if timeout is None else timeout)
        except BaseException:
            shield.down()
            raise

    def _enter(self, timeout: float) -> sqlite3.Connection:
        end = time.monotonic() + timeout
        if not self._line.acquire(timeout):
            raise StoreBusy(f"{self}: other threads of this process kept writing for {timeout:g} s. Nothing was written.")
        try:
            self._lock_file(max(end - time.monotonic(), 0), timeout)
            try:
                connection = self._writer or self._open_writer()
                connection.execute("begin immediate")
            except BaseException:
                self._unlock_file()
                raise
        except sqlite3.Error as error:
            self._line.release()
            raise self.translate(error) from error
        except BaseException:
            self._line.release()
            raise
        return connection

    def leave(self, error: BaseException | None) -> None:
        """Commit, or take everything back, and hand the lock on."""
        connection = self._writer
        assert connection is not None  # noqa: S101 - it was open when we entered
        try:
            if error is None:
                connection.execute("commit")
        except sqlite3.Error as trouble:
            raise self.translate(trouble) from trouble
        finally:
            # After an error SQLite may have rolled back by itself.
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("rollback")
            self._unlock_file()
            self._line.release()
            shield.down()
        if isinstance(error, sqlite3.Error):
            raise self.translate(error) from error

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Give a connection with one consistent view."""
        if self.path is None:
            with self.writing as connection:
                yield connection
            return
        shield.up()
        try:
            with self._reading:
                connection = self._reader or self._open_reader()
                connection.execute("begin")
                try:
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("commit")
        except sqlite3.Error as error:
            raise self.translate(error) from error
        finally:
            shield.down()

    def changed(self) -> bool:
        """Say whether anybody has committed since this was last asked."""
        if self.path is None:
            return False
        with self._reading:
            try:
                connection = self._reader or self._open_reader()
                version = connection.execute("pragma data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise self.translate(error) from error
        before, self._version = self._version, version
        return bool(version != before)

    def close(self) -> None:
        """Close what is open."""
        if not self._line.acquire(self.timeout):
            raise StoreBusy(f"{self} cannot be closed: other threads of this process kept writing for {self.timeout:g} s.")
        try:
            with self._reading:
                for connection in (self._reader, self._writer):
                    if connection is not None:
                        connection.close()
                self._reader = self._writer = None
                if self._file_lock is not None:
                    self._file_lock.close()
        finally:
            self._line.release()

    def __del__(self) -> None:
        # Who forgets to close leaves nothing open; in a forked child these are not ours, and were forgotten already.
        for connection in (getattr(self, "_reader", None), getattr(self, "_writer", None)):
            if connection is not None:
                connection.close()

    def after_fork(self) -> None:
        """Forget what belongs to the parent."""
        self._lost_in_fork = self.path is None and self._writer is not None
        _inherited.extend(c for c in (self._writer, self._reader) if c is not None)
        self._writer = self._reader = None
        self._line = FairLock()
        self._reading = threading.Lock()
        if self._file_lock is not None:
            self._file_lock.close()
        self.on_fork()

    def __str__(self) -> str:
        return "the store in memory" if self.path is None else f"the store {self.path}"

    def translate(self, error: sqlite3.Error) -> StoreError:
        """Say in one line what happened, why, and what to do."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self} is full ({error}). Nothing was written: make room on the disk, then try again.")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return self._read_only(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreCorrupt(
                f"{self} is damaged or no SQLite database ({error}). Nothing was written: restore a backup, "
                "or move the file away to start with an empty store."
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._busy(self.timeout)
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(f"{self} cannot be opened ({error}): its folder must exist, and this user may write there.")
        return StoreUnavailable(f"{self} failed: {error}. Nothing was written.")

    def _read_only(self, error: Exception) -> StoreReadOnly:
        return StoreReadOnly(
            f"{self} cannot be written to ({error}). Nothing was written: give this user write access to the file and its folder."
        )

    def _busy(self, timeout: float) -> StoreBusy:
        pid = None if self._file_lock is None else self._file_lock.holder()
        who = "another process" if pid is None else f"process {pid}"
        return StoreBusy(
            f"{self} is held by {who} for more than {timeout:g} s: it is frozen or in a long transaction. "
            "Nothing was written: try again, or end that process.",
            pid=pid,
        )

    def _lock_file(self, left: float, timeout: float) -> None:
        if self._file_lock is None or self.folder is None:
            return
        try:
            if self._writer is None:
                self.folder.mkdir(exist_ok=True)
            locked = self._file_lock.acquire(left)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{self} cannot be opened: its folder {self.folder.parent} does not exist.") from error
        except OSError as error:
            raise self._read_only(error) from error
        if not locked:
            raise self._busy(timeout)

    def _unlock_file(self) -> None:
        if self._file_lock is not None:
            self._file_lock.release()

    def _open_writer(self) -> sqlite3.Connection:
        if self._lost_in_fork:
            raise StoreUnavailable(
                'the store "sqlite://" lives in the memory of the process that opened it, and this is a forked child: '
                'use a file, such as "sqlite:///jobs.db"'
            )
        connection = self._connect()
        try:
            if self.path is not None:
                # For a new file: jobs are small, and a commit writes whole pages.
                connection.execute("pragma page_size = 2048")
                connection.execute("pragma journal_mode = wal")
            self.on_open(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        # Who only looks needs no lock, unless there is nothing to look at yet.
        connection = self._connect()
        try:
            if self._writer is None and not self.is_there(connection):
                with self.writing:
                    pass
        except BaseException:
            connection.close()
            raise
        self._reader = connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        target = ":memory:" if self.path is None else os.fspath(self.path)
        connection = sqlite3.connect(target, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.text_factory = _text
            connection.execute(f"pragma synchronous = {self._synchronous}")
            connection.execute("pragma cache_size = -8000")
            connection.execute("pragma wal_autocheckpoint = 4000")  # 16 MB: a checkpoint waits for the disk
        except BaseException:
            connection.close()
            raise
        return connection


class _Writing:
    """`with database.writing as connection:` is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        return self._database.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.leave(error)


def _text(raw: bytes) -> str:
    """Text that somebody else wrote may be none: it must not keep the jobs around it from being read."""
    return raw.decode(errors="replace")


def _after_fork_in_child() -> None:
    for database in list(_open_databases):
        database.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
