"""The pool: lends out connections, up to a limit.

It has no lock. A signal handler that enqueues would wait for the lock of the call that it interrupted, and a handler's exception
between two lines of code can leave a lock taken for ever. Each step is one atomic operation of a list, and a connection is in
exactly one list: the pool's or its borrower's. A borrower that fails closes the connection that it still has, since answers may
still be on their way.

A connection counts against the limit from the moment it is made until it is closed, or forgotten: the pool has only weak
references, so a call that was ended before it could clean up leaves nothing behind.

Enters: connections that are given back.  Leaves: connections.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from laneway.errors import StoreUnavailable

__all__ = ["PooledConnection", "Pool"]

#: How often a thread that waits for a connection checks whether one was forgotten, seconds: nothing can wake it for that.
LOOK_EVERY = 0.02


class PooledConnection(Protocol):
    """A connection to a server, as the pool sees it."""

    is_open: bool
    is_closed: bool
    thread: int  #: the thread that last took it from the pool

    def is_quiet(self) -> bool:
        """Return whether nothing has come."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


AnyConnection = TypeVar("AnyConnection", bound=PooledConnection)


class Pool(Generic[AnyConnection]):
    """The connections of one store in this process."""

    def __init__(self, name: str, most: int, make: Callable[[], AnyConnection]) -> None:
        self._name = name
        self._new = make
        self.most = most  #: the most connections
        self.idle: list[AnyConnection] = []  #: those not in use
        self._made: list[weakref.ref[AnyConnection]] = []  # all of them, in order
        self._waiting: list[threading.Lock] = []  # one for each thread that waits

    def __len__(self) -> int:
        """The number of connections there are, idle ones included."""
        return sum(self._counts(reference) for reference in tuple(self._made))

    def lend(self, to: list[AnyConnection], until: float) -> AnyConnection:
        """Put a connection into the borrower's list and return it. If it is not `is_open`, the borrower must open it first."""
        while True:
            try:
                to.append(self.idle.pop())
            except IndexError:
                self._make(to, until)
            connection = to[0]
            connection.thread = threading.get_ident()
            if not connection.is_open or connection.is_quiet():
                return connection
            connection.close()  # it was cut while it was idle
            to.clear()

    def lend_idle(self, to: list[AnyConnection]) -> AnyConnection | None:
        """Put an open connection into the borrower's list and return it, without waiting; None: none is idle."""
        with contextlib.suppress(IndexError):
            to.append(self.idle.pop())
            if to[0].is_open and to[0].is_quiet():
                to[0].thread = threading.get_ident()
                return to[0]
            to.pop().close()  # it was cut while it was idle
        return None

    def give(self, connections: list[AnyConnection]) -> None:
        """Take a connection back from its borrower's list. All its commands have been answered."""
        self.idle.append(connections.pop())
        if self._waiting:
            self.tell()

    def tell(self) -> None:
        """Wake a waiting thread, if there is one: a connection is free, or may be made."""
        with contextlib.suppress(IndexError):
            self._waiting.pop(0).release()

    def reserve(self, most: int) -> None:
        """Set the most connections at a time."""
        self.most = most
        for _ in range(len(self._waiting)):
            self.tell()

    def close(self) -> None:
        """Close all connections that are not in use."""
        with contextlib.suppress(IndexError):
            while True:
                self.idle.pop().close()

    def _make(self, to: list[AnyConnection], until: float) -> None:
        """Make a connection as soon as the limit allows it, or take one that was given back meanwhile."""
        begun = time.monotonic()
        while True:
            if len(self) < self.most and self._make_connection(to):
                return
            self._check(begun, until)
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)  # before the check: a borrower returns its connection first, then notifies
            try:
                if not self.idle:
                    turn.acquire(timeout=min(max(until - time.monotonic(), 0), LOOK_EVERY))
            finally:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)
            with contextlib.suppress(IndexError):
                to.append(self.idle.pop())
                return

    def _make_connection(self, to: list[AnyConnection]) -> bool:
        """Make a connection; return False, without it, if as many as the limit were made before it."""
        to.append(self._new())
        mine = weakref.ref(to[0])
        self._made.append(mine)
        before = 0
        for reference in tuple(self._made):
            if reference is mine:
                break
            if self._counts(reference):
                before += 1
            else:
                self._forget(reference)
        if before < self.most:
            return True
        to.clear()
        self._forget(mine)
        return False

    @staticmethod
    def _counts(reference: weakref.ref[AnyConnection]) -> bool:
        connection = reference()
        return connection is not None and not connection.is_closed

    def _forget(self, reference: weakref.ref[AnyConnection]) -> None:
        with contextlib.suppress(ValueError):
            self._made.remove(reference)

    def _check(self, begun: float, until: float) -> None:
        """Raise StoreUnavailable if there is no point in waiting any longer."""
        connections = [
            connection for reference in tuple(self._made) if (connection := reference()) is not None and not connection.is_closed
        ]
        me = threading.get_ident()
        if len(connections) >= self.most and not self.idle and all(connection.thread == me for connection in connections):
            raise StoreUnavailable(
                f"{self._name}: all {self.most} connections of this process are in use by this thread itself, which was "
                "interrupted in the middle of a call (by a signal handler, or by __del__), or has begun one that it has not "
                "finished. Nothing was written: allow more (connections=).",
                connections=self.most,
                written=False,
            )
        if time.monotonic() >= until:
            raise StoreUnavailable(
                f"{self._name}: all {self.most} connections of this process were in use for {until - begun:.2g} s. "
                "Nothing was written: allow more (connections=), or use fewer threads.",
                connections=self.most,
                written=False,
            )
