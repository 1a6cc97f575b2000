"""What is examined of a Redis or Valkey server: what its INFO and its settings mean for jobs.

Pure: facts come in, findings come out.

The warnings at the start (`opening`) and the one on the dashboard's overview come from here too.

Enters: the server's answers.  Leaves: findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from laneway.core.instant import SECOND
from laneway.store.findings import Finding, megabytes

__all__ = [
    "check_clients", "check_cluster", "check_eviction", "check_memory", "check_persistence", "check_replication",
    "check_slow_commands", "check_startup", "check_sync", "check_version", "makes_snapshots", "program_of", "read_info",
    "read_settings", "whole",
]  # fmt: skip

#: A server's INFO.
Info = Mapping[str, str]

#: The first version with all that the scripts use.
OLDEST = (6, 2)

#: A share of a limit that is near.
NEAR = 0.9
#: A replica that has not acknowledged for this long follows too slowly, seconds. It should do so each second.
REPLICA_LATE = 5
#: A command that takes longer keeps all clients waiting noticeably, microseconds. Those of the last hour are examined.
LONG, LATELY = 100_000, 3600


def read_info(texts: Iterable[bytes]) -> dict[str, str]:
    """Read answers to INFO."""
    lines = (line for text in texts for line in text.decode(errors="replace").splitlines() if ":" in line)
    return dict(line.split(":", 1) for line in lines)


def read_settings(answer: Sequence[bytes]) -> dict[str, str]:
    """Read an answer to CONFIG GET."""
    texts = [part.decode(errors="replace") for part in answer]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def makes_snapshots(settings: Mapping[str, str]) -> bool | None:
    """Return whether the server makes snapshots; None if it does not tell."""
    return None if (save := settings.get("save")) is None else bool(save)


def whole(text: str | None) -> int | None:
    """Return a whole number; None if the text is not one."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def program_of(info: Info) -> tuple[str, str]:
    """Return the program's name and its version."""
    version = info.get("valkey_version") or info.get("redis_version") or "of unknown version"
    return "Valkey" if "valkey_version" in info else "Redis", version


def check_startup(info: Info, saves: bool | None) -> list[Finding]:
    """Judge the settings by which jobs are lost or cannot be written. `saves`: it makes snapshots; None: not known."""
    replication = check_replication(info)
    return [check_eviction(info), replication if replication.level == "problem" else check_persistence(info, saves)]


def check_version(info: Info) -> Finding:
    """Judge the server's version. Valkey reports the one of Redis that it is compatible with."""
    name, version = program_of(info)
    if tuple(int(part) for part in re.findall(r"\d+", info.get("redis_version", "99"))[:2]) < OLDEST:
        return Finding(
            "version", "problem", f"it is {name} {version}, and Laneway needs Redis 6.2 or newer, or Valkey", "Upgrade the server"
        )
    return Finding("version", "ok", f"{name} {version}")


def check_eviction(info: Info) -> Finding:
    """Judge what the server does when its memory is full."""
    policy, evicted = info.get("maxmemory_policy", "noeviction"), whole(info.get("evicted_keys")) or 0
    if policy == "noeviction" and not evicted:
        return Finding("eviction", "ok", "noeviction: a full server refuses jobs and keeps those it has")
    if policy == "noeviction":
        lost = f"it has thrown {evicted:,} keys away since it started: jobs may be among them"
        return Finding("eviction", "warning", lost, "Look for jobs that are missing. Its maxmemory-policy is noeviction now")
    happened = f", {evicted:,} keys so far" if evicted else ""
    limited = bool(whole(info.get("maxmemory")))
    return Finding(
        "eviction", "problem" if limited else "warning",
        f"its maxmemory-policy is {policy}: when its memory is full, it throws jobs away{happened}", "Set it to noeviction",
    )  # fmt: skip


def check_replication(info: Info) -> Finding:
    """Judge the server's role, and how well its replicas follow."""
    if info.get("role") not in (None, "master"):
        return Finding(
            "replication", "problem", "it is a replica: it takes no writes, so nothing can be enqueued or run",
            "Use its primary's address",
        )  # fmt: skip
    replicas = [dict(part.split("=", 1) for part in text.split(",") if "=" in part) for text in _replicas(info)]
    late = [one for one in replicas if one.get("state") != "online" or (whole(one.get("lag")) or 0) > REPLICA_LATE]
    if late:
        names = ", ".join(f"{one.get('ip')}:{one.get('port')}" for one in late)
        return Finding(
            "replication", "warning", f"a replica does not keep up ({names}): if it takes over now, what it misses is lost",
            "Look at its log, its network and the load of the server",
        )  # fmt: skip
    return Finding("replication", "ok", f"a primary; replicas: {len(replicas)}")


def _replicas(info: Info) -> list[str]:
    return [text for name, text in info.items() if re.fullmatch(r"slave\d+", name)]


def check_persistence(info: Info, saves: bool | None) -> Finding:
    """Judge whether the server keeps its data on disk. `saves`: it makes snapshots; None: not known."""
    failed = [name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(name, "ok") != "ok"]
    if failed:
        return Finding(
            "persistence", "problem", f"it could not write to its disk ({', '.join(failed)}): jobs are refused, or get lost",
            "See its log, and make room on its disk",
        )  # fmt: skip
    if info.get("aof_enabled") == "1":
        return Finding("persistence", "ok", "appendonly is on")
    if info.get("aof_enabled") is None or saves is None:
        return Finding("persistence", "note", "it does not tell whether it keeps anything on disk", "Make sure that it does")
    if saves:
        return Finding(
            "persistence", "note", "it makes snapshots alone: if its process is killed, all since the last one is lost",
            "Where that is too much, set appendonly yes",
        )  # fmt: skip
    return Finding(
        "persistence", "problem", "it keeps nothing on disk (no appendonly, no save): when it stops, all jobs are lost",
        "Set appendonly yes",
    )  # fmt: skip


def check_sync(appendfsync: str) -> Finding:
    """Judge when the log of writes reaches the disk."""
    match appendfsync:
        case "always":
            return Finding("sync", "ok", "appendfsync is always: what was accepted is on disk")
        case "everysec":
            text = "appendfsync is everysec: if the machine or the server's process dies, about the last second can be lost"
            return Finding("sync", "note", text, "Where that is too much, set appendfsync always")
        case _:
            text = f"appendfsync is {appendfsync}: the log reaches the disk at some time, and half a minute can be lost"
            return Finding("sync", "warning", text, "Set appendfsync everysec or always")


def check_memory(info: Info) -> Finding:
    """Judge how much memory is left."""
    used, most, machine = (whole(info.get(name)) or 0 for name in ("used_memory", "maxmemory", "total_system_memory"))
    text = f"{megabytes(used)} in use"
    if most and used >= most:
        full = f"{text} of {megabytes(most)}: it is full, and nothing can be enqueued"
        return Finding("memory", "problem", full, "Raise its maxmemory, or remove something")
    if most and used > NEAR * most:
        refused = f"{text} of {megabytes(most)}: when it is full, nothing can be enqueued"
        return Finding("memory", "warning", refused, "Raise its maxmemory, or let workers catch up")
    if most:
        return Finding("memory", "ok", f"{text} of {megabytes(most)}")
    if machine and used > NEAR / 2 * machine:  # while it saves, changed pages exist twice
        killed = f"{text} of the machine's {megabytes(machine)}, and it has no maxmemory: the kernel may kill it while it saves"
        return Finding("memory", "warning", killed, "Set maxmemory, and use a larger machine")
    advice = "Set maxmemory: then it refuses jobs before the kernel kills it"
    return Finding("memory", "note", f"{text}, and it has no limit (maxmemory)", advice)


def check_clients(info: Info, most: int | None) -> Finding:
    """Judge how many connections are left."""
    used = whole(info.get("connected_clients")) or 0
    most = whole(info.get("maxclients")) or most
    if most and used > NEAR * most:
        return Finding(
            "clients", "warning", f"{used:,} of {most:,} connections are in use: then it refuses further ones",
            "Raise its maxclients, or use fewer connections (laneway worker -c)",
        )  # fmt: skip
    return Finding("clients", "ok", f"{used:,} of {most:,} connections" if most else f"{used:,} connections")


def check_slow_commands(log: Sequence[Sequence[Any]], now: int) -> Finding:
    """Judge the slow log: entries of number, time in seconds, duration in microseconds, and the command. `now` is in seconds."""
    lately = [entry for entry in log if entry[2] > LONG and now - entry[1] < LATELY]
    if not lately:
        return Finding("slow", "ok", f"no command of the last hour in its slow log took more than {LONG // 1000} ms")
    worst = max(lately, key=lambda entry: entry[2])
    name = bytes(worst[3][0]).decode(errors="replace").upper()
    return Finding(
        "slow", "warning",
        f"{name} took {worst[2] / SECOND:.1f} s, {max(now - worst[1], 0):,} s ago: the server runs one command at a time, and "
        "all clients waited",
        "See SLOWLOG GET: scripts, KEYS and large deletes of other programs belong on another server",
    )  # fmt: skip


def check_cluster(info: Info) -> list[Finding]:
    """Judge cluster mode, where it is on."""
    if info.get("cluster_enabled") != "1":
        return []
    text = "it runs in cluster mode: Laneway does not follow its redirections, so queues on other nodes cannot be used"
    return [Finding("cluster", "warning", text, "Use a server that is not in a cluster")]
