"""The PostgreSQL store."""

from laneway.store.postgres.inspection import PostgresInspect
from laneway.store.postgres.store import PostgresStore

__all__ = ["PostgresInspect", "PostgresStore"]
