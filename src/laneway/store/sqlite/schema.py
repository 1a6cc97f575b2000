"""The tables' version.

An empty file gets the tables on first use. Tables of another version are never touched by accident: an older one is brought
forward by `migrate`, a newer one needs a newer Laneway.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from laneway.errors import SchemaError
from laneway.store.sql.port import Queue
from laneway.store.sql.rows import DEAD
from laneway.store.sqlite.books import IN_BOOKS, Books, encode
from laneway.store.sqlite.statements import SQL

__all__ = ["MIGRATIONS", "VERSION", "ensure", "is_there", "migrate"]

VERSION = 6


def ensure(connection: sqlite3.Connection, name: str) -> None:
    """Create the tables if there are none, and raise SchemaError if they are of another version."""
    found = _version(connection, name)
    if found is None:
        migrate(connection, name)
    elif found < VERSION:
        raise SchemaError(
            f"{name} has tables of version {found}, and this Laneway uses version {VERSION}. "
            "Stop all workers, make a backup, then run: laneway migrate",
            found=found, expected=VERSION,
        )  # fmt: skip
    elif found > VERSION:
        raise _newer(found, name)


def is_there(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the tables exist, by reading alone; raise SchemaError if they are of another version."""
    if _version(connection, name) is None:
        return False
    ensure(connection, name)
    return True


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring the tables to this version, all or nothing."""
    connection.execute("begin immediate")
    try:
        found = _version(connection, name)
        if found is None:
            _create(connection)
            found = VERSION
        if found > VERSION:
            raise _newer(found, name)
        for version in range(found, VERSION):
            if version not in MIGRATIONS:
                raise SchemaError(f"{name} has tables of version {version}, and there is no way from there to {VERSION}")
            MIGRATIONS[version][1](connection)
            connection.execute("update laneway_meta set version = ?", (version + 1,))
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _create(connection: sqlite3.Connection) -> None:
    _run(connection, "schema")
    _run(connection, "schema_statistics")
    connection.execute("insert into laneway_meta values (1, ?, ?, x'')", (VERSION, encode(Books())))


def _to_version_3(connection: sqlite3.Connection) -> None:
    _run(connection, "to_version_3")
    [(counted,)] = connection.execute("select books from laneway_meta").fetchall()
    old: dict[str, Any] = msgspec.json.decode(counted)  # by the names of its fields
    old["queues"] = [Queue(*queue) for queue in old.get("queues", [])]
    books = Books(**old)
    books.kept_dead = sum(queue.counts[DEAD] for queue in books.queues)
    rows = [(queue.name, encode(queue)) for queue in books.queues[IN_BOOKS:]]
    del books.queues[IN_BOOKS:]
    connection.executemany("insert into laneway_queue (name, counted) values (?, ?)", rows)
    connection.execute("update laneway_meta set books = ?", (encode(books),))


def _run(connection: sqlite3.Connection, name: str) -> None:
    for statement in SQL[name].split(";"):
        if statement.strip():
            connection.execute(statement)


def _version(connection: sqlite3.Connection, name: str) -> int | None:
    """Return the tables' version, or None if there are no tables."""
    if not connection.execute("select 1 from sqlite_schema where name = 'laneway_meta'").fetchone():
        return None
    try:
        row = connection.execute("select version from laneway_meta").fetchone()
    except sqlite3.OperationalError as error:
        raise SchemaError(f"{name} has a table laneway_meta that is not Laneway's ({error}): use another file") from error
    if not row:
        raise SchemaError(
            f"{name} has tables without a version: they were not made by Laneway, or not finished. Use another file"
        )
    return int(row[0])


def _newer(found: int, name: str) -> SchemaError:
    return SchemaError(
        f"{name} has tables of version {found}, and this Laneway knows versions up to {VERSION}: upgrade Laneway here",
        found=found, expected=VERSION,
    )  # fmt: skip


#: From version n to n + 1, each in the same transaction as the new number; and the message of `laneway migrate`.
MIGRATIONS: dict[int, tuple[str, Callable[[sqlite3.Connection], None]]] = {
    1: ("add the tables of statistics", partial(_run, name="schema_statistics")),
    2: ("number the states of jobs anew; give each queue beyond the first sixteen a row of its own", _to_version_3),
    3: (
        "keep finished jobs with their results, and schedules in the store; let payloads have headers",
        partial(_run, name="to_version_4"),
    ),
    4: ("let unique keys last until the end of their jobs", partial(_run, name="to_version_5")),
    5: ("remember what was taken of outboxes", partial(_run, name="to_version_6")),
}
