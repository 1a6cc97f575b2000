"""Django's database connections around runs: recycled as around requests, and never shared with the process that has forked.

Enters: runs, and the start of a process.  Leaves: nothing.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["forget_inherited", "with_own_async_connections", "with_own_connections"]


def with_own_connections(_: object) -> Iterator[None]:
    """Recycle the thread's database connections around a run, as Django does around a request."""
    reset_queries()
    _recycle()
    try:
        yield
    finally:
        _recycle()


def _recycle() -> None:
    """Close what is broken or too old. A connection in an atomic block is a test's, whose jobs run where they are enqueued."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


async def with_own_async_connections(_: object) -> AsyncIterator[None]:
    """Give an async run a thread of its own for what it asks of the database, as Django does for a request, and close its
    connections: the thread ends with the run."""
    async with ThreadSensitiveContext() as context:
        try:
            yield
        finally:
            if context in SyncToAsync.context_to_thread_executor:  # else it asked nothing, and has no thread
                await sync_to_async(connections.close_all)()


_made_in: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # connections and pools: the process that made them
#: What was inherited over a fork. Never closed here: closing would end the parent's session.
_inherited: list[object] = []


def _note_process(connection: BaseDatabaseWrapper, **_: object) -> None:
    _made_in[connection] = os.getpid()
    if pool := getattr(connection, "pool", None):  # of PostgreSQL, with the option `pool`
        _made_in.setdefault(pool, os.getpid())


connection_created.connect(_note_process)


def forget_inherited() -> Iterator[None]:
    """Let a worker, or an isolated run, connect anew: what it has inherited belongs to its parent."""
    for connection in connections.all():
        if connection.connection is not None and _made_in.get(connection) != os.getpid() and not _is_copied(connection):
            _inherited.append(connection.connection)
            connection.connection = None
        # Django has no call that forgets a pool without closing it.
        pools: dict[str, object] = getattr(connection, "_connection_pools", {})
        pool = pools.get(connection.alias)
        if pool is not None and _made_in.get(pool) != os.getpid():
            _inherited.append(pools.pop(connection.alias))
    yield


def _is_copied(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a connection is to a database in memory, which the fork has copied: `manage.py test --parallel` has them."""
    return connection.vendor == "sqlite" and bool(getattr(connection, "is_in_memory_db", bool)())
