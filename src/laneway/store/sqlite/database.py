"""The database: connections and transactions on its file.

One connection writes, behind one fair lock; one reads, with a snapshot of its own. Both open on first use. In memory there is one
connection for both.

**An exception at any line**, raised by a signal handler, leaves no lock behind that the next call does not notice (`FairLock`).
That call also rolls back the open transaction, and releases the lock file.

**Forks.** SQLite keeps a table of the locks that its process holds, and a forked child inherits the table but not the locks. A
child that opened the file then would hold no lock, and another process could remove the log under it. So both connections are
closed before a fork, under Laneway's own locks, and each side opens its own. A connection that could not be closed, or one of the
user's to the same file, still leaves its mark in that table: a forked process checks whether it really holds a lock, and refuses
to write if not.

**A file that is deleted or replaced** is noticed before each transaction. Laneway goes on with the file that is there now.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sqlite3
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

from laneway import shield
from laneway.errors import StoreBusy
from laneway.locks import FairLock, Waiter, around_forks, this_frame
from laneway.store.sqlite.books import Books
from laneway.store.sqlite.file import DatabaseFile, Identity, is_busy

__all__ = ["SQLiteDatabase"]

_open_databases: weakref.WeakSet[SQLiteDatabase] = weakref.WeakSet()
_numbers = itertools.count()
_inherited: list[object] = []  # connections of a parent process: closing them would release its locks

#: The delay before the next try where SQLite's own lock is taken, seconds: only other programs hold it without our lock file.
_TRY_AGAIN = 0.002


class SQLiteDatabase:
    """An SQLite file, or memory if there is no path."""

    def __init__(self, path: Path | None, *, synchronous: str = "normal", timeout: float = 5.0) -> None:
        self.file = DatabaseFile(path, synchronous, timeout)
        self.path = path
        self.is_there: Callable[[sqlite3.Connection], bool] = lambda _: True
        self.on_open: Callable[[sqlite3.Connection], None] = lambda _: None
        self.on_fork: Callable[[], None] = lambda: None
        self.number = next(_numbers)
        #: The books of the last transaction, as bytes and decoded: most often the next one finds the same bytes.
        self.last_books: tuple[bytes, Books] | None = None
        self._lost_in_fork = False
        self._start()
        self.writing = _Writing(self)
        _open_databases.add(self)

    def _start(self) -> None:
        """Begin with nothing open, in a new process."""
        self._pid = os.getpid()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._writer_file: Identity = None
        self._reader_file: Identity = None
        self._writer_closes = self._reader_closes = False  # closing has begun, and may have been interrupted
        self._version = -1
        self._writers = FairLock()
        self._readers = FairLock()  # taken before `_writers`, where both are taken
        self._waiter: Waiter | None = None  # of the current transaction, or of one that was never left

    @property
    def is_open(self) -> bool:
        """Whether this process has opened the file, and so found its tables, or made them."""
        return self._pid == os.getpid() and (self._reader is not None or self._writer is not None)

    # -- writing ---------------------------------------------------------------------------------------------

    def enter(self, frame: FrameType, timeout: float | None = None) -> sqlite3.Connection:
        """Take the write lock for a frame and begin. Wait at most `timeout` seconds, by default as long as this store does."""
        timeout = self.file.timeout if timeout is None else timeout
        now = time.monotonic()
        end = now + timeout
        waiter = None
        shield.up()
        try:
            if self._pid != os.getpid():
                self.after_fork()
            waiter = self._writers.acquire(timeout, frame)
            if waiter is None:
                raise self._crowded(timeout, self._writers)
            if self._waiter is not None:
                self._clean_up()  # after a transaction that was never left
            self._waiter = waiter
            if self._writer_closes or (self._writer is not None and self.file.has_moved(self._writer_file, now)):
                self._close_writer()
            self.file.take_lock(end, timeout, first=self._writer is None)
            return self._begin(end)
        except BaseException as error:
            try:
                self._let_go(waiter)
            finally:
                shield.down()
            if isinstance(error, sqlite3.Error):
                raise self.file.translate(error, timeout) from error
            raise

    def _begin(self, end: float) -> sqlite3.Connection:
        """Begin a transaction; open the file if needed. Waits here: SQLite would begin to wait anew in each statement."""
        while True:
            try:
                connection = self._writer or self._open_writer()
                connection.execute("begin immediate")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= end:
                    raise
            else:
                return connection
            time.sleep(_TRY_AGAIN)

    def leave(self, error: BaseException | None) -> None:
        """Commit or roll back, and hand the lock on."""
        waiter = self._waiter
        try:
            try:
                if error is None and self._writer is not None:
                    self._writer.execute("commit")
            finally:
                self._let_go(waiter)
        except BaseException as trouble:
            self._let_go(waiter)  # once more, if it was interrupted
            if isinstance(trouble, sqlite3.Error):
                raise self.file.translate(trouble) from trouble
            raise
        finally:
            shield.down()
        if isinstance(error, sqlite3.Error):
            raise self.file.translate(error) from error

    def _let_go(self, waiter: Waiter | None) -> None:
        """Roll back the open transaction and hand the lock on. Calling it twice does no harm."""
        if waiter is not None:
            if self._waiter is waiter:
                self._clean_up()
            self._writers.release(waiter)

    def _clean_up(self) -> None:
        """Leave no transaction open and no file locked."""
        # After an error SQLite may have rolled back by itself.
        if self._writer is not None and not self._writer_closes and self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("rollback")
        if self.file.lock is not None:
            self.file.lock.release()
        self._waiter = None

    # -- reading ---------------------------------------------------------------------------------------------

    def reading(self, frame: FrameType | None = None) -> _Reading | _Writing:
        """Return a connection with one consistent view, for a `with` of the given frame, or of the caller's."""
        return _Writing(self, frame) if self.path is None else _Reading(self, frame)

    def enter_reading(self, frame: FrameType) -> tuple[Waiter, sqlite3.Connection]:
        """Take the reading connection, for a frame."""
        if self._pid != os.getpid():
            self.after_fork()
        waiter = self._readers.acquire(float("inf"), frame)
        if waiter is None:
            raise self._crowded(self.file.timeout, self._readers)
        try:
            reader = self._reader
            if self._reader_closes or (reader is not None and (reader.in_transaction or self.file.has_moved(self._reader_file))):
                self._close_reader()  # a view that was never left is out of date
            return waiter, self._reader or self._open_reader()
        except sqlite3.Error as error:
            self._readers.release(waiter)
            raise self.file.translate(error) from error
        except BaseException:
            self._readers.release(waiter)
            raise

    def leave_reading(self, waiter: Waiter) -> None:
        """Return the reading connection."""
        reader = self._reader
        try:
            if reader is not None and reader.in_transaction:
                reader.execute("commit")
        except sqlite3.Error as error:
            raise self.file.translate(error) from error
        finally:
            self._readers.release(waiter)

    def changed(self) -> bool:
        """Return whether any client has committed since the last call, or replaced the file."""
        if self.path is None:
            return False
        waiter, connection = self.enter_reading(this_frame())
        try:
            version = connection.execute("pragma data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise self.file.translate(error) from error
        finally:
            self._readers.release(waiter)
        before, self._version = self._version, version
        return bool(version != before)

    def _crowded(self, timeout: float, line: FairLock) -> StoreBusy:
        if line.has_or_waits():
            return StoreBusy(
                f"{self.file} is in use by this very thread: a signal handler or a __del__ has interrupted it there. "
                "Nothing was written: hand the work to another thread, or set a flag and do it later."
            )
        return StoreBusy(f"{self.file}: other threads of this process kept it busy for {timeout:g} s. Nothing was written.")

    # -- opening and closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections and the lock file."""
        frame = this_frame()
        readers = self._readers.acquire(self.file.timeout, frame)
        line = None if readers is None else self._writers.acquire(self.file.timeout, frame)
        try:
            if line is None:
                raise StoreBusy(
                    f"{self.file} cannot be closed: other threads of this process kept using it for {self.file.timeout:g} s."
                )
            self._close_all()
        finally:
            if line is not None:
                self._writers.release(line)
            if readers is not None:
                self._readers.release(readers)

    def _close_all(self) -> None:
        self._close_reader()
        self._close_writer()

    def _close_reader(self) -> None:
        self._reader_closes = True
        if self._reader is not None:
            self._reader.close()
        self._reader = None
        self._version = -1
        self._reader_closes = False

    def _close_writer(self) -> None:
        self._writer_closes = True
        if self.file.lock is not None:
            self.file.lock.close()
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._writer_closes = False

    def __del__(self) -> None:
        # Leaves nothing open; connections that a forked child has inherited are not its own.
        if getattr(self, "_pid", None) == os.getpid():
            for connection in filter(None, (self._reader, self._writer)):
                connection.close()

    def before_fork(self, end: float, frame: FrameType) -> None:
        """Take the locks and close the connections, so that the child inherits nothing. Does not wait for its own thread."""
        for lock in (self._readers, self._writers):
            if not lock.enter_fork(min(end, time.monotonic() + self.file.timeout), frame):
                return  # the child finds out when it opens the file
        if self.path is not None:
            if self._waiter is not None:
                self._clean_up()
            self._close_all()
            if self.file.is_open():  # SQLite keeps a connection open for a cursor that waits for the garbage collector
                gc.collect()

    def after_fork_in_parent(self) -> None:
        """Release the locks."""
        self._writers.leave_fork()
        self._readers.leave_fork()

    def after_fork(self) -> None:
        """Forget connections and locks of the parent."""
        inherited = [connection for connection in (self._writer, self._reader) if connection is not None]
        self._lost_in_fork = self._lost_in_fork or bool(inherited) or self.file.is_open()
        _inherited.extend(inherited)
        if self.file.lock is not None:
            self.file.lock.close()
        self._start()
        self.on_fork()

    def _connect(self, timeout: float) -> sqlite3.Connection:
        """Open a connection, unless this process was forked while one was open."""
        if self._lost_in_fork:
            raise self.file.forked()
        return self.file.connect(timeout)

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._connect(0.0)
        try:
            if self.path is not None:
                # For a new file: jobs are small, and a commit writes whole pages.
                connection.execute("pragma page_size = 2048")
                connection.execute("pragma journal_mode = wal")
            self.on_open(connection)
            self._writer_file = self.file.identity()
            self.file.check_locks(self._writer_file)
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        # Reading needs no lock, unless there are no tables yet.
        connection = self._connect(self.file.timeout)
        try:
            if self._writer is None and not self.is_there(connection):
                with self.writing:
                    pass
            connection.execute("pragma schema_version")  # SQLite locks the file
            self._reader_file = self.file.identity()
            self.file.check_locks(self._reader_file)
        except BaseException:
            connection.close()
            raise
        self._reader = connection
        return connection


class _Writing:
    """`with database.writing as connection:` is one transaction."""

    def __init__(self, database: SQLiteDatabase, frame: FrameType | None = None) -> None:
        self._database = database
        self._frame = frame

    def __enter__(self) -> sqlite3.Connection:
        frame, self._frame = self._frame, None
        return self._database.enter(frame or this_frame(1))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.leave(error)


class _Reading:
    """`with database.reading() as connection:` is one consistent view."""

    def __init__(self, database: SQLiteDatabase, frame: FrameType | None = None) -> None:
        self._database = database
        self._frame = frame

    def __enter__(self) -> sqlite3.Connection:
        shield.up()
        try:
            frame, self._frame = self._frame, None
            self._waiter, connection = self._database.enter_reading(frame or this_frame(1))
            connection.execute("begin")
        except BaseException as error:
            self._leave(error)
            raise
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        try:
            waiter = getattr(self, "_waiter", None)
            if waiter is not None:
                self._database.leave_reading(waiter)
        finally:
            shield.down()
        if isinstance(error, sqlite3.Error):
            raise self._database.file.translate(error) from error


def _all_databases() -> list[SQLiteDatabase]:
    """Return all databases, in one order for all threads: two of them may fork at once."""
    return sorted(_open_databases, key=lambda database: database.number)


def _before_fork(end: float, frame: FrameType) -> None:
    for database in _all_databases():
        database.before_fork(end, frame)


def _after_fork_in_parent() -> None:
    for database in _all_databases():
        database.after_fork_in_parent()


def _after_fork_in_child() -> None:
    for database in _all_databases():
        database.after_fork()


around_forks(_before_fork, _after_fork_in_parent, _after_fork_in_child)
