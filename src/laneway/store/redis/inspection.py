"""The Redis store's inspection side: queries and actions."""

from __future__ import annotations

from typing import Any

from laneway.errors import StoreError
from laneway.store.findings import Finding, check_latency
from laneway.store.inspection import StoreInfo
from laneway.store.redis import checks
from laneway.store.redis.actions import RedisActions
from laneway.store.redis.checks import check_eviction, program_of, read_info, read_settings, whole
from laneway.store.redis.opening import VERSION
from laneway.store.redis.wire import Command

__all__ = ["RedisInspect", "store_info"]

#: The settings that are examined. Each is asked for by itself: servers before 7.0 take only one.
SETTINGS = ("save", "appendfsync", "maxclients")
#: How many entries of the slow log are examined.
SLOWEST = 128


class RedisInspect(RedisActions):
    """Reads the store and acts on it, in steps of its own."""

    def about(self) -> StoreInfo:
        """Return what the server reports about itself. See `Inspect`."""
        try:
            answers: list[bytes] = self._store.wire.ask_all([("INFO", part) for part in ("server", "memory", "clients")])
        except StoreError:
            answers = []
        return store_info(read_info(answers))

    def examine(self, deep: bool = False) -> list[Finding]:  # noqa: ARG002 - nothing here takes long
        """Judge the server's settings and its load. See `Inspect`."""
        asked: list[Command] = [("TIME",), ("INFO",), ("SLOWLOG", "GET", str(SLOWEST))]
        asked += [("CONFIG", "GET", name) for name in SETTINGS]
        answers: list[Any] = self._store.wire.ask_all(asked, patient=True)
        refused = sorted({str(command[0]) for command, said in zip(asked, answers, strict=True) if isinstance(said, StoreError)})
        now, told, slow, *given = [None if isinstance(answer, StoreError) else answer for answer in answers]
        settings = {name: value for answer in given if answer for name, value in read_settings(answer).items()}
        latency = check_latency(lambda: self._store.wire.ask(("TIME",)))
        findings = [Finding("layout", "ok", f"version {VERSION} of the keys"), latency]
        if told is not None:
            findings += self._judge(read_info([told]), settings)
        if now is not None and slow is not None:
            findings.append(checks.check_slow_commands(slow, int(now[0])))
        if refused:
            text = f"this user may not call {', '.join(refused)}, so not everything could be examined"
            findings.append(Finding("rights", "note", text, "Run laneway doctor as a user who may"))
        return findings

    def _judge(self, info: dict[str, str], settings: dict[str, str]) -> list[Finding]:
        findings = [
            checks.check_version(info), check_eviction(info), checks.check_replication(info),
            checks.check_persistence(info, checks.makes_snapshots(settings)), checks.check_memory(info),
            checks.check_clients(info, whole(settings.get("maxclients"))), *checks.check_cluster(info),
        ]  # fmt: skip
        if info.get("aof_enabled") == "1" and "appendfsync" in settings:
            findings.append(checks.check_sync(settings["appendfsync"]))
        return findings


def store_info(info: dict[str, str]) -> StoreInfo:
    """Return what the server's INFO says about it.

    >>> store_info({"redis_version": "7.2.4", "used_memory": "1024", "maxmemory": "0", "connected_clients": "3"}).memory
    1024
    """
    kind, version = program_of(info)
    eviction = check_eviction(info)
    return StoreInfo(
        kind=kind, version=version, layout=VERSION, memory=whole(info.get("used_memory")),
        most=whole(info.get("maxmemory")) or None, clients=whole(info.get("connected_clients")),
        uptime=whole(info.get("uptime_in_seconds")), warning="" if eviction.level == "ok" else eviction.found,
    )  # fmt: skip
