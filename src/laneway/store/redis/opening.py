"""Opening: checks whether the database is a usable store, and whether it is persistent.

An empty database gets the version on first use. A layout of another version is never touched by accident: an older one is brought
forward by `migrate`, a newer one needs a newer Laneway.
"""

from __future__ import annotations

from collections.abc import Callable

from laneway.errors import SchemaError, StoreError
from laneway.logs import log
from laneway.store.redis.checks import check_startup, check_version, makes_snapshots, read_info, read_settings
from laneway.store.redis.keys import SHARED_KEYS, STORE
from laneway.store.redis.wire import Complaint, Connection

__all__ = ["MIGRATIONS", "VERSION", "ensure", "suppress_startup_warnings", "migrate", "warn"]

VERSION = 1
_KEY = STORE + SHARED_KEYS["VERSION"]

#: From version n to n + 1: the message of `laneway migrate`, and the step.
MIGRATIONS: dict[int, tuple[str, Callable[[Connection], None]]] = {}
_EVERYTHING = ("", "")
_warned: dict[tuple[str, str], object] = {}


def ensure(line: Connection, name: str) -> None:
    """Write the version if there is none, and raise SchemaError if there is another."""
    found = _version(line, name)
    if found is None:
        line.ask(("SET", _KEY, str(VERSION), "NX"))
        found = _version(line, name)
    if found is not None and found < VERSION:
        raise SchemaError(
            f"{name} has a layout of version {found}, and this Laneway uses version {VERSION}. "
            "Stop all workers, make a backup, then run: laneway migrate",
            found=found, expected=VERSION,
        )  # fmt: skip
    if found is not None and found > VERSION:
        raise _newer(found, name)


def migrate(line: Connection, name: str) -> None:
    """Bring the layout to this version. Each step can be repeated, and its number is written when it is done."""
    found = _version(line, name)
    if found is None:
        ensure(line, name)
        return
    if found > VERSION:
        raise _newer(found, name)
    for version in range(found, VERSION):
        if version not in MIGRATIONS:
            raise SchemaError(f"{name} has a layout of version {version}, and there is no way from there to {VERSION}")
        MIGRATIONS[version][1](line)
        line.ask(("SET", _KEY, str(version + 1)))


def _version(line: Connection, name: str) -> int | None:
    try:
        found = line.ask(("GET", _KEY))
    except Complaint as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise SchemaError(f"{name} has a key {_KEY} that is not Laneway's: use another database") from error
    if found is None:
        return None
    if not found.isdigit():
        raise SchemaError(f"{name} has a key {_KEY} that is not Laneway's ({found[:40]!r}): use another database")
    return int(found)


def _newer(found: int, name: str) -> SchemaError:
    return SchemaError(
        f"{name} has a layout of version {found}, and this Laneway knows versions up to {VERSION}: upgrade Laneway here",
        found=found, expected=VERSION,
    )  # fmt: skip


def warn(line: Connection, name: str) -> None:
    """Log, once per process, settings that may lose jobs. A server that refuses INFO is not asked twice."""
    try:
        info = read_info(line.ask_all([("INFO", section) for section in ("server", "memory", "persistence", "replication")]))
    except Complaint:
        return  # not every user may use INFO
    if (version := check_version(info)).level == "problem":
        raise StoreError(f"{name}: {version}")
    for finding in check_startup(info, _saves(line) if info.get("aof_enabled") == "0" else None):
        if finding.level in ("warning", "problem"):
            _say(name, str(finding))


def suppress_startup_warnings() -> None:
    """Suppress these warnings in this process and its children; the supervisor logs them."""
    _warned[_EVERYTHING] = None


def _say(name: str, text: str) -> None:
    mine = object()
    if _EVERYTHING not in _warned and _warned.setdefault((name, text), mine) is mine:  # several threads may open it at once
        log.warning("%s: %s", name, text)


def _saves(line: Connection) -> bool | None:
    """Return whether snapshots are made; None if the server does not tell."""
    try:
        return makes_snapshots(read_settings(line.ask(("CONFIG", "GET", "save"))))
    except Complaint:
        return None
