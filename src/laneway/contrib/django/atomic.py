"""Enqueueing inside of `atomic()`: the job goes with the transaction.

| `LANEWAY["ATOMIC"]` | |
|---|---|
| `join` | the store is in the same database: the job is written in the transaction. Anywhere else it is an error |
| `outbox` | the store is elsewhere: a row for the job is written in the transaction, and workers hand it to the store |
| `commit` | the job is enqueued after the commit. A process that dies between the two loses it |
| not given | `join` in the same database, else an outbox if LANEWAY_OUTBOX names one there, else `commit` |

A savepoint that is rolled back takes its jobs along, in all ways. Django's transactions belong to threads: `aenqueue` takes part
in that of the plain code that called the event loop (`async_to_sync`), if there is one.

Enters: jobs, in an atomic block.  Leaves: rows in the transaction, or a push after its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import connections

from laneway.contrib.django.project import IN_MEMORY, ProjectApp, ProjectSettings, database_url
from laneway.core.job import Job
from laneway.desk.enqueue import Desk
from laneway.desk.transaction import Transaction
from laneway.errors import NoOutbox, NotSameDatabase
from laneway.store.contract import Store
from laneway.transactions.connection import UserConnection
from laneway.transactions.steps import Look, Steps

__all__ = ["AtomicBlock", "Surrounding"]


class Surrounding:
    """Finds the transaction of Django's that an enqueue is in."""

    def __init__(self, app: ProjectApp, chosen: ProjectSettings) -> None:
        self._app = app
        self._atomic = chosen.atomic
        self.elsewhere: Store | None = None  #: a store that was found to be in another database

    def __call__(self, store: Store) -> Transaction | None:
        """Return the transaction that this code is in."""
        connection = connections[self._app.alias]
        by_hand = connection.connection is not None and not connection.autocommit
        if not connection.in_atomic_block and not by_hand:
            return None
        return AtomicBlock(self._app.desk, store, connection, self)

    async def from_loop(self, store: Store) -> Transaction | None:
        """Return the transaction of the plain code that waits for this event loop."""
        if getattr(AsyncToSync.executors, "current", None) is None:  # there is none
            return self(store)
        return await sync_to_async(self)(store)

    def joins(self, store: Store) -> bool:
        """Return whether to write the job in the transaction."""
        return self._atomic != "commit" and self.elsewhere is not store

    def found_elsewhere(self, store: Store) -> bool:
        """Remember that a store is in another database; return whether it is enqueued to after the commit.

        Tests with a database in memory have no choice, whatever is set.
        """
        self.elsewhere = store
        return self._atomic is None or database_url(self._app.alias) == IN_MEMORY


class AtomicBlock(Transaction):
    """The jobs of one call go with a transaction of Django's."""

    def __init__(self, desk: Desk, store: Store, connection: Any, around: Surrounding) -> None:
        super().__init__(desk, lambda: store, connection)
        self._around = around

    async def apush(self, jobs: Sequence[Job]) -> list[str | None]:
        """Push jobs in the transaction, from an event loop: in the thread that has begun it."""
        return await sync_to_async(self.push)(jobs)

    def _push(self, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        store = self._store()
        if self._around.joins(store):
            try:
                return (yield from super()._push(jobs))
            except NotSameDatabase:
                if not self._around.found_elsewhere(store):
                    raise
            except NoOutbox:
                raise NoOutbox(f"the database of {self.connection} has no table laneway_outbox: run manage.py migrate") from None

        def wait(connection: UserConnection) -> None:
            connection.given.on_commit(lambda: store.push(jobs))

        yield Look(wait)
        return [""] * len(jobs)
