"""The PostgreSQL store's inspection side: queries and actions."""

from __future__ import annotations

import contextlib

from laneway.errors import StoreError
from laneway.store.findings import Finding, check_latency
from laneway.store.inspection import Filter, StoreInfo
from laneway.store.postgres import checks
from laneway.store.postgres.bell import is_reached
from laneway.store.postgres.connection import Broken, PostgresError
from laneway.store.postgres.statements import VERSION
from laneway.store.postgres.store import PostgresStore
from laneway.store.sql.actions import Action, Actions
from laneway.store.sql.queries import Queries

__all__ = ["PostgresInspect"]

_HELD_TWICE = "select queue, lane from {schema}.job where holds = 1 group by 1, 2 having count(*) > 1 order by 1, 2 limit 10"


class PostgresInspect(Queries, Actions):
    """Reads in transactions that only read; acts in turns."""

    _store: PostgresStore

    def _act(self, id_: str, action: Action) -> bool:
        return self._store.repeat(lambda: super(PostgresInspect, self)._act(id_, action))

    def _act_some(self, ids: list[str], action: Action, which: Filter) -> int:
        return self._store.repeat(lambda: super(PostgresInspect, self)._act_some(ids, action, which))

    def about(self) -> StoreInfo:
        """Return the size of the tables, and the server's connections. See `Inspect`."""
        with self._store.reading() as reading:
            [(version, size, clients, uptime)] = reading.rows("about", schema=self._store.schema)
        return StoreInfo(
            kind="PostgreSQL", version=version.split()[0], layout=VERSION, memory=size, clients=clients, uptime=uptime
        )

    def examine(self, deep: bool = False) -> list[Finding]:
        """Judge the server, its sessions and our tables; with `deep` also look for lanes that are held twice. See `Inspect`."""
        schema = self._store.schema
        with self._store.wire.lend() as line:
            findings = [Finding("layout", "ok", f"version {VERSION} of the tables"), *checks.examine(line, schema)]
            findings.append(check_latency(lambda: line.ask("select 1")))
            if deep:
                findings.append(checks.check_holders(line.ask(_HELD_TWICE.format(schema=schema))))
        if not any(finding.what == "replication" and finding.level == "problem" for finding in findings):  # no write would end
            findings.append(checks.check_notifications(self._is_reached(), passed=self._store.listen is not None))
        return findings

    def _is_reached(self) -> bool:
        """Return whether a notification reaches a session that listens as a worker does."""
        wire, schema = self._store.wire, self._store.schema
        try:
            with contextlib.closing(wire.dial(self._store.listen)) as line:
                line.ask(f"listen {schema}")
                return is_reached(wire, line, schema)
        except (Broken, PostgresError, StoreError):
            return False
