"""The Redis store's inspection side: queries and actions."""

from __future__ import annotations

from laneway.errors import StoreError
from laneway.store.inspection import StoreInfo
from laneway.store.redis.actions import RedisActions
from laneway.store.redis.opening import VERSION

__all__ = ["RedisInspect", "read_info"]


class RedisInspect(RedisActions):
    """Reads the store and acts on it, in steps of its own."""

    def about(self) -> StoreInfo:
        """Return what the server reports about itself. See `Inspect`."""
        try:
            answers: list[bytes] = self._store.wire.ask_all([("INFO", part) for part in ("server", "memory", "clients")])
        except StoreError:
            answers = []
        lines = (line for answer in answers for line in answer.decode(errors="replace").splitlines() if ":" in line)
        return read_info(dict(line.split(":", 1) for line in lines))


def read_info(said: dict[str, str]) -> StoreInfo:
    """Read the server's INFO.

    >>> read_info({"redis_version": "7.2.4", "used_memory": "1024", "maxmemory": "0", "connected_clients": "3"}).memory
    1024
    """
    policy = said.get("maxmemory_policy", "noeviction")
    evicts = f"its maxmemory-policy is {policy}: when its memory is full, it throws jobs away" if policy != "noeviction" else ""
    return StoreInfo(
        kind="Valkey" if "valkey_version" in said else "Redis",
        version=said.get("valkey_version") or said.get("redis_version") or "of unknown version",
        layout=VERSION, memory=_whole(said.get("used_memory")), most=_whole(said.get("maxmemory")) or None,
        clients=_whole(said.get("connected_clients")), uptime=_whole(said.get("uptime_in_seconds")), warning=evicts,
    )  # fmt: skip


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
