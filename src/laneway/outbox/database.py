"""The user's database, by connections of ours: for relays, and for looking.

Statements are alike for SQLite and PostgreSQL. Each `?` is a value. A write is a transaction of its own, in which other relays
wait: it is short, and PostgreSQL ends the session of a relay that is frozen in the middle of it.

Enters: statements.  Leaves: rows.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway.config import safe_url
from laneway.errors import ConfigError, SchemaError, StoreBusy, StoreCorrupt, StoreFull, StoreReadOnly, StoreUnavailable
from laneway.outbox.tables import create
from laneway.store.registry import StoreURL, number, parse_url

if TYPE_CHECKING:
    from laneway.store.postgres.connection import PostgresConnection
    from laneway.store.postgres.wire import PostgresWire

__all__ = ["Ask", "OutboxDatabase", "OutboxURL", "no_tables", "open_database"]

#: Runs a statement with its values, and returns rows.
Ask = Callable[..., list[Any]]

_NOW = {
    "sqlite": "cast((julianday('now') - 2440587.5) * 86400000000 as integer)",
    "postgresql": "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
}
_BYTES = {"sqlite": "length(cast(job as blob))", "postgresql": "octet_length(job)"}
#: Locks the row until the transaction ends; SQLite has one lock, which a transaction for writing holds.
_LOCK = {"sqlite": "", "postgresql": " for update"}


class OutboxURL:
    """Where an outbox is."""

    def __init__(self, given: object) -> None:
        if not isinstance(given, str):
            raise ConfigError(
                f"outbox={type(given).__name__}: use the address of your database, such as postgresql://… or sqlite:///…"
            )
        parsed: StoreURL = parse_url(given)
        if parsed.scheme not in ("sqlite", "postgresql", "postgres"):
            raise ConfigError(
                f"outbox={safe_url(given)!r}: an outbox is in SQLite or PostgreSQL, with the tables of your program"
            )
        if parsed.scheme == "sqlite" and not parsed.path:
            raise ConfigError(f"outbox={safe_url(given)!r}: a database in memory is seen by one connection. Name a file")
        self.url = given
        self.kind = "sqlite" if parsed.scheme == "sqlite" else "postgresql"  #: as drivers of users name it
        self.path = parsed.path
        self.timeout = number(parsed.options, "timeout", 5.0)
        schema = parsed.options.get("schema", "")
        if schema and not (schema.isascii() and schema.replace("_", "a").isalnum() and schema == schema.lower()):
            raise ConfigError(f"schema={schema}: use small letters, digits and _")
        self.schema = f"{schema}." if schema else ""  #: in front of the names of tables

    def __str__(self) -> str:
        return f"the outbox's database {safe_url(self.url)}"

    def driver_url(self) -> str:
        """Return it as libpq reads it."""
        from laneway.store.backends import Postgres  # noqa: PLC0415 - a cycle: it registers stores

        return Postgres().for_driver(self.url)


class OutboxDatabase(ABC):
    """The user's database. One thread at a time uses it."""

    def __init__(self, url: OutboxURL) -> None:
        self.url = url
        kind = url.kind
        self._words = {"schema": url.schema, "now": _NOW[kind], "bytes": _BYTES[kind], "lock": _LOCK[kind]}

    def __str__(self) -> str:
        return str(self.url)

    def text(self, statement: str) -> str:
        """Return a statement with the words of this kind of database: its schema, its clock, sizes, and the lock of a row."""
        return statement.format(**self._words)

    @abstractmethod
    def writing(self) -> AbstractContextManager[Ask]:
        """Return a transaction, to be used in a `with`: it commits at the end, or rolls back if the block raises."""

    @abstractmethod
    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of one statement."""

    @abstractmethod
    def identity(self) -> str:
        """Return which database this is, as `laneway.transactions.identity` does for a connection of the user's."""

    @abstractmethod
    def create(self) -> None:
        """Make the tables that are missing."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. The next use opens another."""


def open_database(url: OutboxURL) -> OutboxDatabase:
    """Return the database of an outbox. Nothing is opened yet."""
    return SQLiteOutbox(url) if url.kind == "sqlite" else PostgresOutbox(url)


def no_tables(url: OutboxURL, said: object) -> SchemaError:
    """Return the error of a database without the outbox's tables."""
    return SchemaError(
        f"{url} has no outbox, or the search path does not lead to it ({said}): run laneway outbox init once, or put what "
        "laneway outbox init --sql prints into your migrations"
    )


class SQLiteOutbox(OutboxDatabase):
    """A file."""

    def __init__(self, url: OutboxURL) -> None:
        super().__init__(url)
        self._path = Path(url.path).resolve()
        self._open: tuple[int, sqlite3.Connection] | None = None  # of this process
        self._inherited: list[Any] = []  # of a parent process: closing them would release its locks

    def _connection(self, *, make: bool = False) -> sqlite3.Connection:
        if self._open is not None and self._open[0] != os.getpid():
            self._inherited.append(self._open)
            self._open = None
        if self._open is None:
            address = f"{self._path.as_uri()}?mode={'rwc' if make else 'rw'}"
            found = sqlite3.connect(address, uri=True, timeout=self.url.timeout, isolation_level=None, check_same_thread=False)
            self._open = os.getpid(), found
        return self._open[1]

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            raise self._as_ours(error) from error

    @contextlib.contextmanager
    def writing(self) -> Generator[Ask]:
        """Return a transaction; it holds the file's one lock for writing."""
        with self._translated():
            connection = self._connection()
            connection.execute("begin immediate")

            def ask(text: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(self.text(text), values).fetchall()

            try:
                yield ask
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of one statement."""
        with self._translated():
            return self._connection().execute(self.text(statement), values).fetchall()

    def identity(self) -> str:
        """Return the file's device and inode."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise StoreUnavailable(f"{self} cannot be opened ({error.strerror})", written=False) from error
        return f"{found.st_dev}/{found.st_ino}"

    def create(self) -> None:
        """Make the tables that are missing, and the file."""
        with self._translated():
            connection = self._connection(make=True)
            connection.executescript(f"begin immediate;\n{create('sqlite')}commit;")

    def close(self) -> None:
        """Close the connection."""
        opened, self._open = self._open, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def _as_ours(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if "no such table" in str(error) or "no such column" in str(error):
            return no_tables(self.url, error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(f"{self} is busy: another transaction holds its write lock ({error})")
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self} has no space left ({error})")
        if code == sqlite3.SQLITE_READONLY:
            return StoreReadOnly(f"{self} cannot be written to ({error})")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreCorrupt(f"{self} is damaged, or no database ({error})")
        return StoreUnavailable(f"{self} cannot be used ({error}): is the address right?", written=False)


class PostgresOutbox(OutboxDatabase):
    """A server. Two connections at most: a pooler for transactions is fine."""

    def __init__(self, url: OutboxURL) -> None:
        super().__init__(url)
        self._made: PostgresWire | None = None

    @property
    def _wire(self) -> PostgresWire:
        if self._made is None:
            from laneway.outbox.postgres import OutboxWire  # noqa: PLC0415 - its driver may be missing

            self._made = OutboxWire(self.url)
        return self._made

    @contextlib.contextmanager
    def writing(self) -> Generator[Ask]:
        """Return a transaction. A relay that is frozen in it loses its session after ten seconds."""
        with self._wire.lend() as line:
            limits = "set_config('lock_timeout', '2s', true), set_config('idle_in_transaction_session_timeout', '10s', true)"
            line.send([("begin isolation level read committed", ()), (f"select {limits}", ())])
            line.read()

            def ask(text: str, values: Sequence[Any] = ()) -> list[Any]:
                return self._ask(line, text, values)

            yield ask
            line.ask("commit")

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of one statement."""
        with self._wire.lend() as line:
            return self._ask(line, statement, values)

    def _ask(self, line: PostgresConnection, text: str, values: Sequence[Any]) -> list[Any]:
        first, *rest = self.text(text).split("?")
        numbers = itertools.count(1)
        return line.ask(first + "".join(f"${next(numbers)}{part}" for part in rest), values)

    def identity(self) -> str:
        """Return the server and the database."""
        from laneway.transactions.identity import POSTGRES  # noqa: PLC0415 - as above

        with self._wire.lend() as line:
            [(found,)] = line.ask(POSTGRES)
        return str(found)

    def create(self) -> None:
        """Make the tables that are missing."""
        with self._wire.lend() as line:
            line.run_script(f"begin;\nselect pg_advisory_xact_lock(8172635401);\n{create('postgresql', self.url.schema)}commit;")

    def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()
