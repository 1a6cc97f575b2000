"""Connections of ours to a user's PostgreSQL server."""

from __future__ import annotations

from laneway.errors import SchemaError, StoreError
from laneway.outbox.database import OutboxURL, no_tables
from laneway.store.postgres.connection import PostgresError
from laneway.store.postgres.wire import PostgresWire

__all__ = ["OutboxWire"]


class OutboxWire(PostgresWire):
    """A wire whose messages are about the outbox."""

    def __init__(self, url: OutboxURL) -> None:
        self._outbox = url
        super().__init__(url.driver_url(), connections=1, timeout=url.timeout)

    def __str__(self) -> str:
        return str(self._outbox)

    def translate(self, error: Exception, *, sent: bool = True) -> StoreError:
        """Return an error that says what happened; for missing tables, how to make them."""
        found = super().translate(error, sent=sent)
        if isinstance(found, SchemaError) and isinstance(error, PostgresError):
            return no_tables(self._outbox, error.said)
        if isinstance(error, PostgresError) and error.code == "42703":
            return no_tables(self._outbox, error.said)
        return found
