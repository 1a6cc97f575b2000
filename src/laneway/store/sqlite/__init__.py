"""The embedded store: jobs and lanes in an SQLite file. The default; nothing to install."""

from __future__ import annotations

from laneway.store.sqlite.inspection import SQLiteInspect
from laneway.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteInspect", "SQLiteStore"]
