"""An outbox for tests: the user's database, an app whose store is elsewhere, and what is where."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import postgresbench
import redisbench
from laneway import App
from laneway.outbox.database import OutboxDatabase, open_database
from laneway.outbox.relay import Relay
from laneway.outbox.status import OutboxStatus, read_status
from laneway.outbox.tables import NAMES

__all__ = ["Box"]


class Box:
    """A user's database of a kind, with an outbox, and an app."""

    def __init__(self, kind: str, folder: Path, *, store: str | None = None, tables: bool = True, **options: Any) -> None:
        self.is_postgres = kind == "postgres"
        self.folder = folder
        if self.is_postgres:
            server = postgresbench.server()
            server.ask(f"drop table if exists orders, {', '.join(NAMES)}")
            self.address = self.url = server.url
        else:
            self.address = str(folder / "shop.db")
            self.url = f"sqlite:///{self.address}"
        self.ask("create table orders (id int)")
        self.app = App(store or redisbench.emptied().url, outbox=self.url, **options)
        assert self.app.outbox is not None
        self.database: OutboxDatabase = open_database(self.app.outbox)
        if tables:
            self.database.create()

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement of the user's, at once."""
        if self.is_postgres:
            return postgresbench.server().ask(sql.replace("?", "%s"), *values)
        connection = sqlite3.connect(self.address, isolation_level=None, timeout=30)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def connect(self) -> Any:
        """Return a connection of the user's."""
        if self.is_postgres:
            import psycopg  # noqa: PLC0415 - it may be missing

            return psycopg.connect(self.address)
        return sqlite3.connect(self.address, timeout=30)

    def relay(self, at_once: int = 1000) -> Relay:
        """Return a relay with a connection of its own."""
        assert self.app.outbox is not None
        return Relay(open_database(self.app.outbox), lambda: self.app.store, at_once=at_once)

    def carry(self) -> int:
        """Carry all rows that are there; return how many."""
        relay, number = self.relay(), 0
        while found := relay.step().carried:
            number += found
        relay.step()
        relay.release()
        relay.database.close()
        return number

    @property
    def status(self) -> OutboxStatus:
        """How the outbox stands."""
        return read_status(self.database)

    def lapse(self) -> None:
        """Let the lease of the relay that works be over."""
        self.ask("update laneway_outbox_meta set until = 0")

    def close(self) -> None:
        """Close all."""
        self.database.close()
        self.app.close()
