"""The tables' version.

An empty file gets the tables on first use. Tables of another version are never touched by accident: an older one is brought
forward by `migrate`, a newer one needs a newer Laneway.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from laneway.errors import SchemaError
from laneway.store.sqlite.books import Books, encode
from laneway.store.sqlite.sql import SQL

__all__ = ["VERSION", "ensure", "is_there", "migrate"]

VERSION = 2

#: From version n to n + 1, each in the same transaction as the new number.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: lambda connection: _make_tables(connection, "schema_statistics"),
}


def ensure(connection: sqlite3.Connection, name: str) -> None:
    """Make the tables if there are none, and raise SchemaError if they are of another version."""
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
    """Say whether the tables are there, by reading alone, and raise SchemaError if they are of another version."""
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
            MIGRATIONS[version](connection)
            connection.execute("update laneway_meta set version = ?", (version + 1,))
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _create(connection: sqlite3.Connection) -> None:
    _make_tables(connection, "schema")
    _make_tables(connection, "schema_statistics")
    connection.execute("insert into laneway_meta values (1, ?, ?, x'')", (VERSION, encode(Books())))


def _make_tables(connection: sqlite3.Connection, name: str) -> None:
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
