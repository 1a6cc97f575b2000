"""Enqueueing in the user's transaction: `with app.transaction(connection):`.

The jobs that this context enqueues go with the connection: they are there when the user commits, and never were after a rollback.
Nothing is begun or committed here. The block is a context variable: tasks of an event loop that are started inside take part,
other threads do not.

If the app has an outbox in the connection's database, the store is elsewhere: a row is written there for each job, and a relay
hands it to the store after the commit.

Enters: jobs.  Leaves: rows, written on the user's connection by the store, or for the outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from laneway.config import check_written_url, safe_url
from laneway.core.job import Job
from laneway.desk.offload import offload
from laneway.errors import BadOption, ConfigError, NotSameDatabase
from laneway.settings import Found
from laneway.store.contract import JoiningStore, Store, can_join
from laneway.transactions.steps import Aside, Look, Steps

if TYPE_CHECKING:
    from laneway.desk.enqueue import Desk
    from laneway.outbox.insert import Outbox
    from laneway.transactions.connection import UserConnection

__all__ = ["Transaction", "find_outbox", "joined"]

T = TypeVar("T")

#: The open blocks of this context, the innermost last.
_open: ContextVar[tuple[Transaction, ...]] = ContextVar("laneway_transactions", default=())


def find_outbox(found: Found, store: str) -> Outbox | None:
    """Return the outbox that a setting names, if any, for a store; or raise ConfigError."""
    if found.value is None:
        return None
    from laneway.outbox.insert import Outbox, OutboxURL  # noqa: PLC0415 - most apps have none

    if found.value == store:
        raise ConfigError(f"outbox={safe_url(store)!r} is the store itself: there jobs join your transactions without an outbox")
    made: list[OutboxURL] = []
    check_written_url(found, lambda url: made.append(OutboxURL(url)))
    return Outbox(made[0])


def joined(desk: object) -> Transaction | None:
    """Return the innermost block of a desk that this context is in."""
    for block in reversed(_open.get()):
        if block.desk is desk:
            return block
    return None


class Transaction:
    """The jobs of one desk go with a connection of the user's: a block, or one call."""

    def __init__(self, desk: Desk, store: Callable[[], Store], given: Any) -> None:
        self.desk = desk
        self.given = given  #: what the user gave
        from laneway.transactions.drivers import recognise  # noqa: PLC0415 - most programs need none

        self.connection: UserConnection = recognise(given)
        self._store = store
        self._pushed = self._ended = False
        self._collected: list[Sequence[Job]] | None = None
        self._before: tuple[Transaction, ...] = ()

    # -- the block -------------------------------------------------------------------------------------------

    def __enter__(self) -> None:
        self.connection.run(self._enter())
        self._begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(error)
        if self._has_committed():
            self._ring()

    async def __aenter__(self) -> None:
        await self.connection.arun(self._enter())
        self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(error)
        if self._has_committed():
            await offload(self._ring)

    def _ring(self) -> None:
        self._joining().ring()

    def _ring_after(self, connection: UserConnection) -> None:
        connection.after_commit(self._ring)

    def _enter(self) -> Steps[None]:
        if self.connection.has_mode:
            yield Look(_check_mode)
        if not self.desk.is_tested and self._outbox() is None:
            yield Aside(self._joining().open)

    def _outbox(self) -> Outbox | None:
        """Return the desk's outbox, if it is in a database of this kind. Which one that is, is asked when a job is pushed."""
        outbox = self.desk.outbox
        return outbox if outbox is not None and outbox.url.kind == self.connection.database else None

    def _joining(self) -> JoiningStore:
        store = self._store()
        if not can_join(store) or store.capabilities.transactions != self.connection.database:
            raise NotSameDatabase.of(self.connection, store)
        return store

    def _begin(self) -> None:
        self._before = _open.get()
        _open.set((*self._before, self))
        self._ended = False

    def _end(self, error: BaseException | None) -> None:
        reached = self in _open.get()
        _open.set(self._before)
        self._ended = True
        if not reached and not self._pushed and error is None:
            raise BadOption(
                "this app.transaction() block was opened in another context than the code inside of it, such as in a plain `def` "
                "dependency of FastAPI, which has a thread of its own: what you enqueued meanwhile, if anything, was no part of "
                "your transaction. Open the block in the function that enqueues"
            )

    def _has_committed(self) -> bool:
        """Return whether jobs may be there by now: then sleeping workers need not find them by themselves."""
        return self._pushed and not self.connection.in_transaction()

    # -- pushing ---------------------------------------------------------------------------------------------

    def collect(self, push: Callable[[list[T]], object], items: list[T]) -> list[Sequence[Job]]:
        """Return the jobs that a function pushes in this block, which are not pushed yet: on an event loop it cannot wait."""
        self._collected, before = [], _open.get()
        _open.set((*before, self))
        try:
            push(items)
            return self._collected
        finally:
            self._collected = None
            _open.set(before)

    def push(self, jobs: Sequence[Job]) -> list[str | None]:
        """Push jobs in the transaction; return for each None, the id of the job that prevented it, or "": not known yet."""
        if self._collected is not None:
            self._collected.append(jobs)
            return [None] * len(jobs)
        return self.connection.run(self._push(jobs))

    async def apush(self, jobs: Sequence[Job]) -> list[str | None]:
        """Push jobs in the transaction, from an event loop."""
        return await self.connection.arun(self._push(jobs))

    def _push(self, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        if self._ended:
            raise BadOption(
                "this code was started inside of an app.transaction() block that has ended: its connection may be in another "
                "transaction by now. Nothing was written: enqueue before the block ends, or start the code outside of it"
            )
        outbox = self._outbox()
        store = self._joining() if outbox is None else None
        yield Look(_check_mode)
        if outbox is not None and (yield from outbox.is_in(self.connection)):
            return (yield from outbox.insert(self.connection, jobs))
        store = store or self._joining()
        answers = yield from store.push_with(self.connection, jobs)
        if not self._pushed:
            self._pushed = True
            yield Look(self._ring_after)
        return answers


def _check_mode(connection: UserConnection) -> None:
    connection.check_mode()
