"""Which database a user's connection leads to: so that what belongs together is never spread over two of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from laneway.transactions.steps import Ask, InSQLite, Steps

if TYPE_CHECKING:
    import sqlite3

    from laneway.transactions.connection import UserConnection

__all__ = ["POSTGRES", "identity"]

#: Answers with a cluster, its start (a copy of a cluster has the same number), and a database in it.
POSTGRES = (
    "select concat_ws('/', system_identifier, extract(epoch from pg_postmaster_start_time()), "
    "(select oid from pg_database where datname = current_database())) from pg_control_system()"
)


def identity(connection: UserConnection) -> Steps[str | None]:
    """Return a text that is the same for all connections to one database, and for no other; None: it cannot be shared."""
    if connection.database == "sqlite":
        found: str | None = yield InSQLite(_file)
        return found
    if connection.database == "postgresql":
        [(found,)] = yield Ask(POSTGRES)
        return found
    return None


def _file(connection: sqlite3.Connection) -> str | None:
    """Return the device and inode of the main file; None: in memory, or deleted."""
    cursor = connection.cursor()
    cursor.row_factory = None
    factory, connection.text_factory = connection.text_factory, os.fsdecode
    try:
        paths = {name: path for _, name, path in cursor.execute("pragma database_list")}
    finally:
        connection.text_factory = factory
    try:
        found = os.stat(paths["main"])
    except OSError:
        return None
    return f"{found.st_dev}/{found.st_ino}"
