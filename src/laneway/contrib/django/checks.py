"""System checks: what `manage.py check` and every start say about the settings."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's name
from django.db import connections

from laneway.config import safe_url
from laneway.contrib.django.project import ProjectSettings, database_url, project_app, read_settings
from laneway.errors import ConfigError
from laneway.store import backend_of, check_url

__all__ = ["check_settings"]


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check the setting `LANEWAY`."""
    try:
        chosen, app = read_settings(), project_app()
    except (ConfigError, ValueError) as error:
        return [Error(str(error), id="laneway.E001")]
    alias = chosen.database
    joins = app.is_inside or _is_same_database(app.url, alias)
    if chosen.atomic == "join" and not joins:
        return [
            Error(
                f'LANEWAY["ATOMIC"] is "join", and the store {safe_url(app.url)} is not in the database "{alias}": an enqueue in '
                "atomic() would fail",
                hint="Leave out URL, and the jobs are in that database; or set ATOMIC to outbox, or commit.",
                id="laneway.E002",
            )
        ]
    if chosen.atomic == "outbox" and joins:
        return [
            Error(
                f'LANEWAY["ATOMIC"] is "outbox", and the store is in the database "{alias}": there jobs join transactions',
                hint="Leave out ATOMIC; or name a store elsewhere with URL.",
                id="laneway.E002",
            )
        ]
    if chosen.atomic is None and not joins and app.outbox is None:
        return [
            Warning(
                f'the store {safe_url(app.url)} is not in the database "{alias}": inside of atomic() jobs are enqueued after the '
                "commit, and a process that dies between the two loses them",
                hint='Leave out URL, and the jobs are in that database; or let rows there become jobs, LANEWAY["ATOMIC"] = '
                '"outbox"; or say that this is fine: LANEWAY["ATOMIC"] = "commit".',
                id="laneway.W001",
            )
        ]
    return _check_sqlite(chosen) if chosen.atomic != "commit" and (joins or app.outbox is not None) else []


def _check_sqlite(chosen: ProjectSettings) -> list[CheckMessage]:
    """Warn of transactions that read first: SQLite refuses their first write if another connection has written meanwhile."""
    connection = connections[chosen.database]
    mode = connection.settings_dict.get("OPTIONS", {}).get("transaction_mode") or ""
    if connection.vendor != "sqlite" or mode.upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return []
    return [
        Warning(
            f'transactions of the database "{chosen.database}" begin without a lock: one that reads before it enqueues fails '
            '("database is locked") if a worker has written meanwhile, however long it waits',
            hint=f'Set DATABASES["{chosen.database}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE"}}.',
            id="laneway.W002",
        )
    ]


def _is_same_database(url: str, alias: str) -> bool:
    """Return whether a store is in a database of Django's, as far as the settings say."""
    try:
        theirs = database_url(alias)
    except ConfigError:
        return False
    if url == theirs:
        return True
    store = check_url(url)
    return backend_of(store.scheme).is_same_database(store, check_url(theirs))
