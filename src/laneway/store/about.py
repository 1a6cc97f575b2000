"""What a store reports about itself."""

from __future__ import annotations

from laneway.core.plain import Plain

__all__ = ["StoreInfo"]


class StoreInfo(Plain, frozen=True, kw_only=True):
    """What a store reports about itself: its program, its size, its connections."""

    kind: str  #: SQLite, Redis, Valkey, PostgreSQL
    version: str  #: the program's
    layout: int  #: the version of Laneway's tables or keys
    memory: int | None = None  #: bytes: a server's memory, or a file's size
    most: int | None = None  #: bytes it may have; None: not limited
    in_file: bool = False  #: `memory` is a file's size
    clients: int | None = None  #: connections
    uptime: float | None = None  #: seconds
    warning: str = ""  #: a setting of the server that may lose jobs
