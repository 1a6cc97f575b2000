"""Receipts: what a job writes into the user's database, once.

A receipt is a row in the user's transaction, with a key that every run of the job makes alike: so it is there if and only if what
was written with it is. The unique index lets one run in. A second one that comes meanwhile waits for the first one's transaction
to end; one that comes later, however late, finds the receipt.

The store takes no part in it, so it may be of any kind, and elsewhere.

Enters: a key, and a connection of the user's.  Leaves: whether this run is the first.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from types import TracebackType
from typing import Any

from laneway.core.job import Claim
from laneway.errors import BadOption, NoReceipts
from laneway.transactions.connection import UserConnection, complaint
from laneway.transactions.drivers import recognise
from laneway.transactions.steps import Ask, Look, Steps

__all__ = ["KEPT_DAYS", "TABLE", "Once"]

#: The user makes the table, with these statements: Laneway creates nothing in a transaction that is not its own.
TABLE = (
    "create table laneway_receipt (key text primary key, at bigint not null)",
    "create index laneway_receipt_at on laneway_receipt (at)",
)
#: Five days more than dead jobs are kept by default: one that is replayed on its last day finds its receipt.
KEPT_DAYS = 35
#: One of EACH receipts also removes old ones, at most MOST: ten times as many as are written.
EACH = 100
MOST = 1000

_INSERT = "insert into laneway_receipt (key, at) values (?, ?) on conflict (key) do nothing returning key"
_TRIM = "delete from laneway_receipt where key in (select key from laneway_receipt where at < ? order by at limit ?{})"
_TRIMS = {
    "sqlite": _TRIM.format(""),
    "postgresql": _TRIM.format(" for update skip locked"),  # what another transaction is removing is left to it
}


class Once:
    """`with current_job().once(connection) as first:`, or `async with`: `first` is False if a run has done it before."""

    def __init__(self, claim: Claim, given: Any, name: str) -> None:
        if claim.collects:
            raise BadOption(
                "once() is for tasks, and this is a collector: its payloads come in other groups when a run is repeated. Let "
                "what you write be the same twice (insert … on conflict do update), or enqueue a task for each payload"
            )
        self._key = _key(claim, name)
        self._connection: UserConnection = recognise(given)

    def __enter__(self) -> bool:
        return self._connection.run(self._write())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the receipt to the transaction: it goes with a rollback, and stays with a commit."""

    async def __aenter__(self) -> bool:
        return await self._connection.arun(self._write())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the receipt to the transaction, as `__exit__` does."""

    def _write(self) -> Steps[bool]:
        trim = _TRIMS.get(self._connection.database)
        if trim is None:
            raise BadOption(f"{self._connection} leads to {self._connection.database}: receipts need SQLite or PostgreSQL")
        yield Look(_check_mode)
        now = time.time_ns() // 1000
        try:
            written = yield Ask(_INSERT, (self._key, now))
        except Exception as error:
            if _is_missing(error):
                raise NoReceipts.of(self._connection, TABLE) from error
            raise
        if written and int(self._key, 16) % EACH == 0:
            yield Ask(trim, (now - KEPT_DAYS * 86_400_000_000, MOST))
        return bool(written)


def _key(claim: Claim, name: str) -> str:
    """Return the key of a job's receipt. An id may be used again for a later job: that has another time of arrival."""
    unit = claim.unit
    return blake2b(f"{unit.id}\0{unit.enqueued}\0{name}".encode(), digest_size=16).hexdigest()


def _check_mode(connection: UserConnection) -> None:
    connection.check_mode("its receipt")


def _is_missing(error: BaseException) -> bool:
    """Return whether an error of a driver says that there is no such table."""
    code, said = complaint(error)
    return code == "42P01" or "no such table: laneway_receipt" in said
