"""Pushing, and finishing a claim, in the transaction of a user's connection to the same file.

The rules are those of every push, run by a turn that borrows the connection: it neither begins nor commits, and takes no lock but
SQLite's own, which the transaction holds until it ends. What the user has set on the connection is put back. To finish a claim is
to mark its row: the next exchange lets the job leave.

Enters: jobs or a claim, and a user's connection.  Leaves: rows.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from laneway.core.job import Claim, Job
from laneway.core.outcome import FinishMark
from laneway.errors import BadOption, ClaimLost, NotSameDatabase, StoreBusy, StoreError
from laneway.store.sql.push import push
from laneway.store.sqlite import schema
from laneway.store.sqlite.file import as_text, is_busy
from laneway.store.sqlite.statements import IN_ORDER, SQL
from laneway.store.sqlite.turn import SQLiteTurn
from laneway.transactions.connection import UserConnection
from laneway.transactions.identity import identity
from laneway.transactions.steps import Aside, Ask, InSQLite, Steps

if TYPE_CHECKING:
    from laneway.store.sqlite.store import SQLiteStore

__all__ = ["finish_with", "open_for", "push_with"]

#: Takes SQLite's write lock before anything is read: what is read then stays as it is. sqlite3 begins a transaction before it, if
#: that is the connection's mode.
_LOCK = "update laneway_meta set version = version where 0"
_VERSION = "select version from laneway_meta"
#: The delay before the lock is tried again, seconds. The connection itself may wait longer, or not at all.
_TRY_AGAIN = 0.002


def push_with(store: SQLiteStore, connection: UserConnection, jobs: Sequence[Job]) -> Steps[list[str | None]]:
    """Insert jobs in the transaction of a user's connection, in order. See the contract."""
    if not (yield from _is_same(store, connection)):
        raise NotSameDatabase.of(connection, store)
    answers: list[str | None] = yield from _locked(store, partial(_push, store, jobs))
    return answers


def finish_with(store: SQLiteStore, connection: UserConnection, claim: Claim, mark: FinishMark) -> Steps[None]:
    """Finish a claim in the transaction of a user's connection. See the contract."""
    if not (yield from _is_same(store, connection)):
        raise NotSameDatabase.to_finish(connection, store)
    refused: Exception | None = yield from _locked(store, partial(_finish, claim, mark))
    if refused is not None:
        raise refused


def _is_same(store: SQLiteStore, connection: UserConnection) -> Steps[bool]:
    """Return whether a connection leads to the store's file."""
    file = store.database.file.identity()
    if file is None and store.database.path is not None:
        yield Aside(lambda: open_for(store))  # no program has used the store yet
        file = store.database.file.identity()
    found = yield from identity(connection)
    return file is not None and found == f"{file[0]}/{file[1]}"


def _locked(store: SQLiteStore, function: Callable[[sqlite3.Connection], Any]) -> Steps[Any]:
    """Call a function with the user's connection, which has SQLite's write lock; its errors are the store's."""
    try:
        yield from _lock(store, time.monotonic() + store.enqueue_timeout)
        answer = yield InSQLite(function)
    except Exception as error:
        raise _translated(store, error) from error
    return answer


def _lock(store: SQLiteStore, until: float) -> Steps[None]:
    """Wait for SQLite's write lock. If there are no tables yet, make them."""
    while True:
        try:
            yield Ask(_LOCK)
        except Exception as error:
            trouble = _of_sqlite(error)
            if trouble is None:
                raise
            if "no such table" in str(trouble):
                yield Aside(lambda: open_for(store))
            elif not is_busy(trouble) or _is_stale(trouble) or time.monotonic() > until:
                raise
            else:
                yield Aside(lambda: time.sleep(_TRY_AGAIN))
        else:
            return


def open_for(store: SQLiteStore) -> None:
    """Make the tables if there are none, by the store's own connection."""
    try:
        with store.reading():
            pass
    except StoreBusy as error:
        raise StoreBusy(
            f"{store} has no tables of Laneway yet, and they cannot be made while your transaction holds the file. Nothing was "
            "written: run laneway migrate once, or enqueue a job outside of a transaction first",
            pid=getattr(error, "pid", None),
        ) from error


def _push(store: SQLiteStore, jobs: Sequence[Job], raw: sqlite3.Connection) -> list[str | None]:
    with _as_ours(raw) as connection:
        if connection.execute(_VERSION).fetchone() != (schema.VERSION,):
            schema.ensure(connection, str(store))  # raises SchemaError
        with BorrowedTurn(store, connection) as turn:
            turn.check_open(store)
            return push(turn, jobs, store.push_jobs)


_FINISH, _ASKED = IN_ORDER[SQL["finish_claim"]], IN_ORDER[SQL["finish_asked"]]


def _finish(claim: Claim, mark: FinishMark, raw: sqlite3.Connection) -> Exception | None:
    """Mark a claim as finished; return the error if it cannot be."""
    values = {"id": claim.unit.id, "token": claim.token, "finish": msgspec.json.encode(mark)}
    with _as_ours(raw) as connection:
        if connection.execute(_FINISH.text, _FINISH.pick(values)).rowcount:
            return None
        asked = connection.execute(_ASKED.text, _ASKED.pick(values)).fetchall()
    if asked and asked[0][1]:
        return BadOption.finished_before(claim.unit.id)
    return ClaimLost.of(claim.unit.id, claim.token, asked[0][0] if asked else "taken")


class BorrowedTurn(SQLiteTurn):
    """A turn inside of a transaction of the user's. If it fails, what it did is undone, and the transaction goes on."""

    def __init__(self, store: SQLiteStore, connection: Any) -> None:
        super().__init__(store.database, store.clock, lambda: None, in_books=store.in_books)
        self.connection = connection

    def __enter__(self) -> Self:
        self.connection.execute("savepoint laneway")
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.write_back()
        except BaseException:
            self._undo()
            raise
        if error is not None:
            self._undo()
        else:
            self.connection.execute("release laneway")
            self._database.last_books = (self.as_read, self.books)  # the transaction holds the lock: no other turn is open

    def _undo(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back all of the transaction
            self.connection.execute("rollback to laneway")
            self.connection.execute("release laneway")


class _Ours:
    """A user's connection as a turn needs it: rows are tuples. Each answer is read before the next statement."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._cursor = sqlite3.Connection.cursor(raw)
        self._cursor.row_factory = None
        self.execute = self._cursor.execute

    def cursor(self) -> sqlite3.Cursor:
        return self._cursor

    @property
    def total_changes(self) -> int:
        return self._raw.total_changes

    @property
    def text_factory(self) -> Any:
        return self._raw.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self._raw.text_factory = factory


@contextlib.contextmanager
def _as_ours(raw: sqlite3.Connection) -> Generator[Any]:
    factory, raw.text_factory = raw.text_factory, as_text
    try:
        yield _Ours(raw)
    finally:
        raw.text_factory = factory


# -- errors --------------------------------------------------------------------------------------------------


def _of_sqlite(error: BaseException | None) -> sqlite3.Error | None:
    """Return SQLite's own error; SQLAlchemy and Django raise theirs around it."""
    while error is not None and not isinstance(error, sqlite3.Error):
        error = getattr(error, "orig", None) or error.__cause__
    return error


def _is_stale(error: sqlite3.Error) -> bool:
    """Return whether the transaction has read before, and others have written since."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT


def _translated(store: SQLiteStore, error: Exception) -> Exception:
    found = _of_sqlite(error)
    if isinstance(error, StoreError) or found is None:
        return error
    if _is_stale(found):
        return StoreBusy(
            f"{store} was written by others since your transaction read from it, so that it cannot write any more ({found}). "
            'Nothing was written: roll back and repeat it, begun with "begin immediate"'
        )
    return store.database.file.translate(found, store.enqueue_timeout)
