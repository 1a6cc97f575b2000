"""The kinds of connections that are known, each by the names of its classes: no driver is imported here.

sqlite3 and aiosqlite, psycopg 3, asyncpg, SQLAlchemy (Connection, Session and their async kinds), Django. What is behind
SQLAlchemy and Django is found by their own names for it.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from laneway.errors import BadOption
from laneway.transactions.connection import AsyncUserConnection, SyncUserConnection, UserConnection

__all__ = ["recognise"]

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


def recognise(given: Any) -> UserConnection:
    """Return a user's connection as what it is, or raise BadOption."""
    if isinstance(given, str):
        return DjangoConnection(_django_connection(given))
    for kind in type(given).__mro__:
        made = _KINDS.get((kind.__module__.partition(".")[0], kind.__name__))
        if made is not None:
            return made(given)
    raise BadOption(
        f"{type(given).__module__}.{type(given).__qualname__} is not a connection that Laneway knows: give a connection of "
        "sqlite3, psycopg 3, asyncpg or aiosqlite, a Connection or Session of SQLAlchemy, or a connection of Django or its alias"
    )


def _with_marks(text: str, style: str) -> str:
    """Return a statement with the marks for values that a driver wants."""
    if style == "qmark":
        return text
    numbers = itertools.count(1)
    first, *rest = text.split("?")
    return first + "".join(f"{'%s' if style == 'format' else f'${next(numbers)}'}{part}" for part in rest)


# -- sqlite3 -------------------------------------------------------------------------------------------------


def _sqlite_commits_each(connection: sqlite3.Connection) -> bool:
    """Return whether sqlite3 neither has begun a transaction nor begins one before the next write."""
    mode = getattr(connection, "autocommit", -1)  # since Python 3.12; -1: as isolation_level says
    by_itself = mode is True or (mode == -1 and connection.isolation_level is None)
    return by_itself and not connection.in_transaction


def _sqlite_execute(connection: sqlite3.Connection, text: str, values: Sequence[Any]) -> Rows:
    cursor = sqlite3.Connection.cursor(connection)
    cursor.row_factory = None
    return cursor.execute(text, tuple(values)).fetchall()


class SQLite3Connection(SyncUserConnection):
    """`sqlite3.Connection`."""

    name = "sqlite3 connection"
    begin = 'conn.execute("begin immediate")'
    database = "sqlite"

    def commits_each_statement(self) -> bool:
        """Return whether nothing begins a transaction."""
        return _sqlite_commits_each(self.given)

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return bool(self.given.in_transaction)

    def execute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples, whatever the connection's row_factory is."""
        return _sqlite_execute(self.given, text, values)

    def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection."""
        return function(self.given)


class AIOSQLiteConnection(AsyncUserConnection):
    """`aiosqlite.Connection`: sqlite3 in a thread of its own."""

    name = "aiosqlite connection"
    begin = 'await conn.execute("begin immediate")'
    database = "sqlite"

    def commits_each_statement(self) -> bool:
        """Return whether nothing begins a transaction."""
        return _sqlite_commits_each(self.given._conn)

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return bool(self.given.in_transaction)

    async def aexecute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples."""
        return await self.acall(lambda connection: _sqlite_execute(connection, text, values))

    async def acall(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the `sqlite3.Connection`, in its thread."""
        return await _in_its_thread(self.given, function)


async def _in_its_thread(connection: Any, function: Callable[[sqlite3.Connection], T]) -> T:
    return await connection._execute(function, connection._conn)  # type: ignore[no-any-return]


# -- psycopg and asyncpg -------------------------------------------------------------------------------------


class _AnyPsycopgConnection(UserConnection):
    """What both kinds of connections of psycopg say of themselves."""

    database = "postgresql"

    def commits_each_statement(self) -> bool:
        """Return whether nothing has begun a transaction, nor will."""
        return bool(self.given.autocommit) and not self.in_transaction()

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return self.given.info.transaction_status.name not in ("IDLE", "UNKNOWN")


class PsycopgConnection(_AnyPsycopgConnection, SyncUserConnection):
    """`psycopg.Connection`."""

    name = "psycopg connection"
    begin = "`with conn.transaction():`, or set conn.autocommit = False"

    def execute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples, whatever the connection's row_factory and cursors are."""
        psycopg = sys.modules["psycopg"]
        with psycopg.Cursor(self.given, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(_with_marks(text, "format"), values or None)
            return cursor.fetchall() if cursor.description else []


class AsyncPsycopgConnection(_AnyPsycopgConnection, AsyncUserConnection):
    """`psycopg.AsyncConnection`."""

    name = "async psycopg connection"
    begin = "`async with conn.transaction():`, or await conn.set_autocommit(False)"

    async def aexecute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples."""
        psycopg = sys.modules["psycopg"]
        async with psycopg.AsyncCursor(self.given, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(_with_marks(text, "format"), values or None)
            return await cursor.fetchall() if cursor.description else []


class AsyncpgConnection(AsyncUserConnection):
    """`asyncpg.Connection`, or one that a pool has lent."""

    name = "asyncpg connection"
    begin = "`async with conn.transaction():`"
    has_mode = False
    database = "postgresql"

    def commits_each_statement(self) -> bool:
        """Return whether no transaction is open: asyncpg begins none by itself."""
        return not self.in_transaction()

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return bool(self.given.is_in_transaction())

    @property
    def session(self) -> object:
        """The connection behind that of a pool."""
        return getattr(self.given, "_con", self.given)

    async def aexecute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples."""
        return [tuple(row) for row in await self.given.fetch(_with_marks(text, "numeric_dollar"), *values)]


# -- SQLAlchemy ----------------------------------------------------------------------------------------------


class SQLAlchemyConnection(SyncUserConnection):
    """`sqlalchemy.Connection`."""

    name = "SQLAlchemy connection"
    begin = "leave out isolation_level=AUTOCOMMIT"

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.database = self.connection.dialect.name

    @property
    def connection(self) -> Any:
        """SQLAlchemy's connection."""
        return self.given

    @property
    def session(self) -> object:
        """The driver's own connection."""
        return self.connection.connection.driver_connection

    def commits_each_statement(self) -> bool:
        """Return whether SQLAlchemy has set the driver to autocommit."""
        adapted = self.connection.connection.dbapi_connection
        if self.database == "sqlite":
            return adapted.isolation_level is None and not _behind(self.session).in_transaction
        return getattr(adapted, "autocommit", False) is True

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, by SQLAlchemy's account."""
        return bool(self.given.in_transaction())

    def execute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples. SQLAlchemy begins a transaction first, as always."""
        connection = self.connection
        style = connection.dialect.paramstyle
        result = connection.exec_driver_sql(_with_marks(text, "format" if style == "pyformat" else style), tuple(values))
        return [tuple(row) for row in result] if result.returns_rows else []

    def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the `sqlite3.Connection`, in its thread if it has one."""
        pooled = self.connection.connection
        if isinstance(pooled.driver_connection, sqlite3.Connection):
            return function(pooled.driver_connection)
        if self.database != "sqlite":
            return super().call(function)
        return pooled.dbapi_connection.run_async(lambda driver: _in_its_thread(driver, function))  # type: ignore[no-any-return]


class SQLAlchemySession(SQLAlchemyConnection):
    """`sqlalchemy.orm.Session`."""

    name = "SQLAlchemy session"

    @property
    def connection(self) -> Any:
        """The connection of the session's transaction."""
        return self.given.connection()


class AsyncSQLAlchemyConnection(AsyncUserConnection):
    """`AsyncConnection` of SQLAlchemy: its plain connection does the work, where SQLAlchemy lets it wait."""

    name = "async SQLAlchemy connection"
    begin = "leave out isolation_level=AUTOCOMMIT"
    plain: type[SQLAlchemyConnection] = SQLAlchemyConnection

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.database = self.bind.dialect.name

    @property
    def bind(self) -> Any:
        """What has the dialect."""
        return self.given

    def commits_each_statement(self) -> bool:
        """Refuse: `alook` asks the plain connection."""
        raise NotImplementedError

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, by SQLAlchemy's account."""
        return bool(self.given.in_transaction())

    async def alook(self, function: Callable[[SQLAlchemyConnection], T]) -> T:
        """Call a function with the plain connection."""

        def look(plain: Any) -> T:
            return function(self.plain(plain))

        return await self.given.run_sync(look)  # type: ignore[no-any-return]

    async def aexecute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples."""
        return await self.alook(lambda plain: plain.execute(text, values))

    async def acall(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the `sqlite3.Connection`, in its thread."""
        return await self.alook(lambda plain: plain.call(function))


class AsyncSQLAlchemySession(AsyncSQLAlchemyConnection):
    """`AsyncSession` of SQLAlchemy."""

    name = "async SQLAlchemy session"
    plain = SQLAlchemySession

    @property
    def bind(self) -> Any:
        """The engine of the session."""
        return self.given.get_bind()


def _behind(driver: Any) -> sqlite3.Connection:
    return driver if isinstance(driver, sqlite3.Connection) else driver._conn


# -- Django --------------------------------------------------------------------------------------------------


class DjangoConnection(SyncUserConnection):
    """A connection of Django: `django.db.connection`, or `connections["default"]`."""

    name = "Django connection"
    begin = "`with transaction.atomic():`"
    has_mode = False

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.database = given.vendor

    @property
    def session(self) -> object:
        """The driver's own connection."""
        self.given.ensure_connection()
        return self.given.connection

    def commits_each_statement(self) -> bool:
        """Return whether it is in no atomic block, and in autocommit mode."""
        return not self.in_transaction() and bool(self.given.get_autocommit())

    def in_transaction(self) -> bool:
        """Return whether it is in an atomic block."""
        return bool(self.given.in_atomic_block)

    def execute(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; return its rows as tuples."""
        with self.given.cursor() as cursor:
            cursor.execute(_with_marks(text, "format"), list(values) or None)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def after_commit(self, function: Callable[[], None]) -> None:
        """Call a function when the atomic block has committed."""
        self.given.on_commit(function, robust=True)

    def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the `sqlite3.Connection`."""
        if not isinstance(self.session, sqlite3.Connection):
            return super().call(function)
        return function(self.session)


def _django_connection(alias: str) -> Any:
    if "django.db" not in sys.modules:
        raise BadOption(f'"{alias}" would be the alias of a Django connection, and this program does not use Django')
    return sys.modules["django.db"].connections[alias]


#: By the package and the name of a class.
_KINDS: dict[tuple[str, str], Callable[[Any], UserConnection]] = {
    ("sqlite3", "Connection"): SQLite3Connection,
    ("aiosqlite", "Connection"): AIOSQLiteConnection,
    ("psycopg", "Connection"): PsycopgConnection,
    ("psycopg", "AsyncConnection"): AsyncPsycopgConnection,
    ("asyncpg", "Connection"): AsyncpgConnection,
    ("asyncpg", "PoolConnectionProxy"): AsyncpgConnection,
    ("sqlalchemy", "Connection"): SQLAlchemyConnection,
    ("sqlalchemy", "Session"): SQLAlchemySession,
    ("sqlalchemy", "scoped_session"): lambda scoped: SQLAlchemySession(scoped()),  # it has not all that its session has
    ("sqlalchemy", "AsyncConnection"): AsyncSQLAlchemyConnection,
    ("sqlalchemy", "AsyncSession"): AsyncSQLAlchemySession,
    ("sqlalchemy", "async_scoped_session"): lambda scoped: AsyncSQLAlchemySession(scoped()),
    ("django", "BaseDatabaseWrapper"): DjangoConnection,
    ("django", "ConnectionProxy"): DjangoConnection,
}
