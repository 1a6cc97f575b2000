"""About the store: what it is, how large, and who is connected, as far as it says.

Enters: an app.  Leaves: facts for a page.  Called by: `overview`. Blocks.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec import Struct

from laneway.app import App
from laneway.errors import LanewayError
from laneway.store import version_of
from laneway.store.sqlite import SQLiteStore

__all__ = ["About", "about", "read_info"]


class About(Struct, frozen=True, kw_only=True):
    """A store."""

    kind: str  #: SQLite, Redis, Valkey
    version: str  #: the program's
    layout: int  #: the version of our tables or keys
    memory: int | None = None  #: bytes: of a server its memory, of a file its size
    most: int | None = None  #: bytes it may have; None: not limited
    in_file: bool = False  #: `memory` is a file's size
    clients: int | None = None  #: connections
    uptime: float | None = None  #: seconds
    warning: str = ""  #: what may cost jobs


def about(app: App) -> About:
    """Return what a store says of itself."""
    layout = version_of(app.url)
    store: Any = app.store
    if isinstance(store, SQLiteStore):
        path = store.database.path
        size = None if path is None else sum(one.stat().st_size for one in (path, _log_of(path)) if one.exists())
        return About(kind="SQLite", version=sqlite3.sqlite_version, layout=layout, memory=size, in_file=True)
    return read_info(_ask_server(store), layout)


def _log_of(path: Any) -> Any:
    return path.with_name(f"{path.name}-wal")


def _ask_server(store: Any) -> dict[str, str]:
    """Ask a Redis server; one that does not tell has nothing to show."""
    try:
        answers: list[bytes] = store.wire.ask_all([("INFO", part) for part in ("server", "memory", "clients")])
    except LanewayError:
        return {}
    lines = (line for answer in answers for line in answer.decode(errors="replace").splitlines() if ":" in line)
    return dict(line.split(":", 1) for line in lines)


def read_info(said: dict[str, str], layout: int) -> About:
    """Read what a Redis server says.

    >>> read_info({"redis_version": "7.2.4", "used_memory": "1024", "maxmemory": "0", "connected_clients": "3"}, 1).memory
    1024
    """
    policy = said.get("maxmemory_policy", "noeviction")
    evicts = f"its maxmemory-policy is {policy}: when its memory is full, it throws jobs away" if policy != "noeviction" else ""
    return About(
        kind="Valkey" if "valkey_version" in said else "Redis",
        version=said.get("valkey_version") or said.get("redis_version") or "of unknown version",
        layout=layout, memory=_whole(said.get("used_memory")), most=_whole(said.get("maxmemory")) or None,
        clients=_whole(said.get("connected_clients")), uptime=_whole(said.get("uptime_in_seconds")), warning=evicts,
    )  # fmt: skip


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
