"""The SQLite store's inspection side: look, find and act."""

from __future__ import annotations

from laneway.store.sqlite.act import Acting
from laneway.store.sqlite.look import Looking

__all__ = ["SQLiteInspect"]


class SQLiteInspect(Looking, Acting):
    """Looks at the store through its reading connection; acts in turns of its own."""
