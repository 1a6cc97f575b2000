"""What the user's transactions cost: a row and its job, and a row and the end of its job, as one transaction and as two.

make bench ARGS="transaction finish postgres_transaction postgres_finish"
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from any_store import drained, each
from harness import compare, rate
from laneway import App, current_job
from raw_postgres import served

SINGLE = 2_000
DURABLE = 400  # each with a commit that waits for the disk


class Shop:
    """An app whose store is in the user's database, with a table there."""

    def __init__(self, url: str, connect: Callable[[], Any], insert: str, number: int = SINGLE) -> None:
        self.app = app = App(url)
        self._number = number
        self._insert = insert
        self._mine = threading.local()  # each slot has a connection of its own, as from a pool
        self._connect = connect
        self.connection.execute("create table orders (id integer, total integer)")
        self.connection.commit()

        @app.task(name="ship")
        def ship(order: int) -> None: ...

        @app.task(name="charge")
        def charge(order: int) -> None:
            self.write(order)

        @app.task(name="charge-and-finish")
        def charge_and_finish(order: int) -> None:
            self.connection.execute(self._insert, (order, 1))
            current_job().finish(self.connection)
            self.connection.commit()

        self.ship, self.charge, self.charge_and_finish = ship, charge, charge_and_finish
        ship.enqueue(0)

    @property
    def connection(self) -> Any:
        """The connection of this thread."""
        if not hasattr(self._mine, "connection"):
            self._mine.connection = self._connect()
        return self._mine.connection

    def write(self, number: int) -> None:
        """Write a row."""
        self.connection.execute(self._insert, (number, 1))
        self.connection.commit()

    def together(self, number: int) -> None:
        """Write a row and enqueue its job in one transaction."""
        with self.app.transaction(self.connection):
            self.connection.execute(self._insert, (number, 1))
            self.ship.enqueue(number)
        self.connection.commit()

    def apart(self, number: int) -> None:
        """Write a row, then enqueue its job."""
        self.write(number)
        self.ship.enqueue(number)

    def enqueues(self, on: str) -> None:
        """Compare enqueues in a transaction and apart."""
        rows = {"the row alone": self.write, "one transaction": self.together, "two: the row, then enqueue()": self.apart}
        compare(
            f"a row and its job{on}",
            {name: partial(rate, self._number, partial(each, side, range(self._number))) for name, side in rows.items()},
            {"of two": "two: the row, then enqueue()"},
        )

    def finishes(self, on: str) -> None:
        """Compare jobs that write a row and finish in the same transaction with jobs that are settled after it."""

        def of(task: Any) -> float:
            task.enqueue_many([(number,) for number in range(self._number)])
            return drained(self.app, self._number)

        drained(self.app, 1)
        compare(
            f"jobs that write a row{on}, through 10 slots",
            {
                "settled after the commit": lambda: of(self.charge),
                "finish() in the transaction": lambda: of(self.charge_and_finish),
            },
            {"of settled after": "settled after the commit"},
        )


def _on_sqlite(where: Path) -> Shop:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(where / "shop.db", timeout=30, isolation_level="IMMEDIATE")
        connection.execute("pragma synchronous = normal")  # as the store's own connection
        return connection

    return Shop(f"sqlite:///{where}/shop.db", connect, "insert into orders values (?, ?)")


def _on_postgres(server: Any) -> Shop:
    import psycopg  # noqa: PLC0415 - the parts for SQLite need none

    return Shop(server.url, partial(psycopg.connect, server.url), "insert into orders values (%s, %s)", DURABLE)


def transaction(where: Path) -> None:
    """Enqueue in a transaction and apart, on SQLite."""
    _on_sqlite(where).enqueues("")


def finish(where: Path) -> None:
    """Finish against a plain settle, on SQLite."""
    _on_sqlite(where).finishes("")


def postgres_transaction(_: Path) -> None:
    """Enqueue in a transaction and apart, on PostgreSQL."""
    with served() as server:
        _on_postgres(server).enqueues(" on PostgreSQL")


def postgres_finish(_: Path) -> None:
    """Finish against a plain settle, on PostgreSQL."""
    with served() as server:
        _on_postgres(server).finishes(" on PostgreSQL")


PARTS = {part.__name__: part for part in (transaction, finish)}
ON_POSTGRES = {part.__name__: part for part in (postgres_transaction, postgres_finish)}
