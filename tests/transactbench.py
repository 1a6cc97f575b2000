"""Users' connections for tests: each kind behind the same few verbs, on the database that a store is in.

Verbs are coroutines. Those of plain drivers never wait, so `play` runs them without an event loop: Django refuses to work on one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from laneway import App

__all__ = ["POSTGRES", "SEATS", "SQLITE", "Seat", "play"]

T = TypeVar("T")


class Seat:
    """A connection of one kind, and how its user begins, writes, commits and rolls back."""

    is_async = False
    writes = "insert into orders values ({})"

    def __init__(self, address: str) -> None:
        self.address = address  # a file, or the URL of a server
        self.connection: Any = None

    async def open(self, *, autocommit: bool = False) -> None:
        """Connect."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Begin a transaction, where the driver does not do it by itself."""

    async def execute(self, sql: str) -> None:
        """Run a statement."""
        self.connection.execute(sql)

    async def write(self, number: int) -> None:
        """Write an order."""
        await self.execute(self.writes.format(number))

    async def commit(self) -> None:
        """Commit."""
        self.connection.commit()

    async def rollback(self) -> None:
        """Roll back."""
        self.connection.rollback()

    async def savepoint(self) -> None:
        """Begin what can be rolled back alone."""
        await self.execute("savepoint mine")

    async def rollback_to(self) -> None:
        """Roll that back."""
        await self.execute("rollback to savepoint mine")

    async def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextlib.asynccontextmanager
    async def block(self, app: App) -> AsyncIterator[None]:
        """Be in a block of `app.transaction`."""
        if self.is_async:
            async with app.transaction(self.connection):
                yield
        else:
            with app.transaction(self.connection):
                yield

    async def enqueue(self, task: Any, *args: Any) -> Any:
        """Enqueue in the way that fits."""
        return await task.aenqueue(*args) if self.is_async else task.enqueue(*args)

    async def enqueue_many(self, task: Any, calls: list[Any]) -> int:
        """Enqueue many in the way that fits."""
        return int(await task.aenqueue_many(calls) if self.is_async else task.enqueue_many(calls))


class SQLite3(Seat):
    async def open(self, *, autocommit: bool = False) -> None:
        self.connection = sqlite3.connect(self.address, timeout=0, isolation_level=None if autocommit else "DEFERRED")
        self.connection.row_factory = lambda _, row: {"row": row}  # ours need tuples
        self.connection.text_factory = bytes


class AIOSQLite(Seat):
    is_async = True

    async def open(self, *, autocommit: bool = False) -> None:
        self.connection = await pytest.importorskip("aiosqlite").connect(self.address, isolation_level=None if autocommit else "")

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class Psycopg(Seat):
    async def open(self, *, autocommit: bool = False) -> None:
        psycopg = pytest.importorskip("psycopg")
        self.connection = psycopg.connect(self.address, autocommit=autocommit, row_factory=psycopg.rows.dict_row)


class AsyncPsycopg(Seat):
    is_async = True

    async def open(self, *, autocommit: bool = False) -> None:
        psycopg = pytest.importorskip("psycopg")
        self.connection = await psycopg.AsyncConnection.connect(self.address, autocommit=autocommit)

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class Asyncpg(Seat):
    is_async = True

    async def open(self, *, autocommit: bool = False) -> None:
        self.connection = await pytest.importorskip("asyncpg").connect(self.address)

    async def begin(self) -> None:
        self.open_transaction = self.connection.transaction()
        await self.open_transaction.start()

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.open_transaction.commit()

    async def rollback(self) -> None:
        await self.open_transaction.rollback()

    async def close(self) -> None:
        await self.connection.close()


class SQLAlchemy(Seat):
    """`Connection` of SQLAlchemy; those below are its other kinds."""

    drivers: tuple[str, str] = ("sqlite", "postgresql+psycopg")

    def engine(self, autocommit: bool, make: str = "create_engine") -> Any:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        source = pytest.importorskip("sqlalchemy.ext.asyncio") if make == "create_async_engine" else sqlalchemy
        if "://" in self.address:
            url = self.address.replace("postgresql", self.drivers[1], 1)
        else:
            url = f"{self.drivers[0]}:///{self.address}"
        options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        return getattr(source, make)(url, poolclass=sqlalchemy.pool.NullPool, **options)

    async def open(self, *, autocommit: bool = False) -> None:
        self.connection = self.engine(autocommit).connect()

    async def execute(self, sql: str) -> None:
        self.connection.execute(pytest.importorskip("sqlalchemy").text(sql))

    async def savepoint(self) -> None:
        self.nested = self.connection.begin_nested()

    async def rollback_to(self) -> None:
        self.nested.rollback()


class SQLAlchemySession(SQLAlchemy):
    async def open(self, *, autocommit: bool = False) -> None:
        self.connection = pytest.importorskip("sqlalchemy.orm").Session(self.engine(autocommit))


class AsyncSQLAlchemy(SQLAlchemy):
    is_async = True
    drivers = ("sqlite+aiosqlite", "postgresql+psycopg")

    async def open(self, *, autocommit: bool = False) -> None:
        pytest.importorskip("greenlet")
        self.connection = await self.engine(autocommit, "create_async_engine").connect()

    async def execute(self, sql: str) -> None:
        await self.connection.execute(pytest.importorskip("sqlalchemy").text(sql))

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def savepoint(self) -> None:
        self.nested = await self.connection.begin_nested()

    async def rollback_to(self) -> None:
        await self.nested.rollback()

    async def close(self) -> None:
        await self.connection.close()


class AsyncSQLAlchemySession(AsyncSQLAlchemy):
    drivers = ("sqlite+aiosqlite", "postgresql+asyncpg")

    async def open(self, *, autocommit: bool = False) -> None:
        pytest.importorskip("greenlet")
        self.connection = pytest.importorskip("sqlalchemy.ext.asyncio").AsyncSession(
            self.engine(autocommit, "create_async_engine")
        )


class Django(Seat):
    """An alias of Django."""

    def configure(self) -> None:
        django = pytest.importorskip("django")
        pytest.importorskip("django.db")
        settings = pytest.importorskip("django.conf").settings

        if not settings.configured:
            settings.configure(DATABASES={})
            django.setup()
        if "://" in self.address:
            found = pytest.importorskip("psycopg.conninfo").conninfo_to_dict(self.address)
            database = {"ENGINE": "django.db.backends.postgresql", "NAME": found["dbname"]}
            database |= {"USER": found["user"], "HOST": found["host"], "PORT": found["port"]}
        else:
            database = {"ENGINE": "django.db.backends.sqlite3", "NAME": self.address}
        connections = django.db.connections
        connections.databases["mine"] = connections.configure_settings({"default": {}, "mine": database})["mine"]

    async def open(self, *, autocommit: bool = False) -> None:
        self.configure()
        self.connection, self.django = "mine", pytest.importorskip("django.db").connections["mine"]

    async def begin(self) -> None:
        self.atomic = pytest.importorskip("django.db").transaction.atomic(using="mine")
        self.atomic.__enter__()

    async def execute(self, sql: str) -> None:
        with self.django.cursor() as cursor:
            cursor.execute(sql)

    async def commit(self) -> None:
        self.atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        self.django.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    async def savepoint(self) -> None:
        self.nested = self.django.savepoint()

    async def rollback_to(self) -> None:
        self.django.savepoint_rollback(self.nested)

    async def close(self) -> None:
        self.django.close()
        del pytest.importorskip("django.db").connections["mine"]


SQLITE: dict[str, Callable[[str], Seat]] = {
    "sqlite3": SQLite3, "sqlalchemy": SQLAlchemy, "session": SQLAlchemySession, "django": Django, "aiosqlite": AIOSQLite,
    "async-sqlalchemy": AsyncSQLAlchemy, "async-session": AsyncSQLAlchemySession,
}  # fmt: skip
POSTGRES: dict[str, Callable[[str], Seat]] = {
    "psycopg": Psycopg, "sqlalchemy": SQLAlchemy, "session": SQLAlchemySession, "django": Django, "async-psycopg": AsyncPsycopg,
    "asyncpg": Asyncpg, "async-sqlalchemy": AsyncSQLAlchemy, "async-session": AsyncSQLAlchemySession,
}  # fmt: skip
#: Each kind of connection on each store whose database it can lead to.
SEATS = [("sqlite", name) for name in SQLITE] + [("postgres", name) for name in POSTGRES]


def play(seat: Seat, scene: Coroutine[Any, Any, T]) -> T:
    """Run a scene: on an event loop, or without one where nothing waits."""
    if seat.is_async:
        return asyncio.run(scene)
    try:
        scene.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a plain driver waited")
