"""The SQLite store's inspection side: queries and actions."""

from __future__ import annotations

import sqlite3

from laneway.store.findings import Finding
from laneway.store.inspection import StoreInfo
from laneway.store.sql.actions import Actions
from laneway.store.sql.queries import Queries
from laneway.store.sqlite import checks
from laneway.store.sqlite.schema import VERSION
from laneway.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteInspect"]


class SQLiteInspect(Queries, Actions):
    """Reads through the reading connection; acts in transactions of its own."""

    _store: SQLiteStore

    def about(self) -> StoreInfo:
        """Return the size of the file, with its log. See `Inspect`."""
        path = self._store.database.path
        files = [] if path is None else [path, path.with_name(f"{path.name}-wal")]
        size = sum(file.stat().st_size for file in files if file.exists()) if files else None
        return StoreInfo(kind="SQLite", version=sqlite3.sqlite_version, layout=VERSION, memory=size, in_file=True)

    def examine(self, deep: bool = False) -> list[Finding]:
        """Judge the file, its disk and its settings; with `deep` also read all of it. See `Inspect`."""
        path = self._store.database.path
        with self._store.reading() as reading:
            findings = [checks.check_library(), *checks.check_database(reading.connection, in_file=path is not None)]
            if path is not None:
                findings += checks.check_file(path, reading.connection)
            if deep:
                findings.append(checks.check_integrity(reading.connection))
        return findings
