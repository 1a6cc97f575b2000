"""The bell: wakes workers that wait for jobs.

One connection listens (LISTEN), and a thread of its own reads it all the time: the server keeps notifications for all listeners
until the slowest has read them. While a thread of this process sleeps, that connection holds the sleepers' lock in shared mode. A
client that has inserted or released jobs checks after its commit whether the lock is held, and notifies only then. A worker that
goes to sleep first takes the lock, and then looks for jobs once more. So either the client sees the sleeper, or the worker finds
the job, and no notification is sent without need.

A push checks the lock before it commits, and holds the lock of pushes until its commit. A worker may go to sleep in between: then
the push does not see the worker, and the worker's last look does not find the job. So the listener tries the lock of pushes: once
it was free, all pushes that did not see this worker have ended. If that took a moment, the threads look again.

Behind a pooler in transaction mode neither works. The bell notices this (a test notification does not arrive), and sleepers poll,
often at first and then less often. With `listen=` the connection goes past the pooler.

Enters: notifications.  Leaves: the end of a wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Callable

from laneway.errors import StoreError
from laneway.store.postgres.connection import Broken, PostgresConnection, PostgresError
from laneway.store.postgres.wire import PostgresWire

__all__ = ["PostgresBell", "is_reached"]

#: How often a sleeper looks for jobs by itself, seconds: jobs of users' transactions ring no bell.
LOOK_EVERY = 0.25
#: How often it looks where a server sends no notifications, seconds: at first, a second after the last work, and later.
POLLS = (0.005, 0.05, 0.25)
#: How long a test notification may take, seconds.
TEST_TAKES = 1.0
#: How long to wait before the lock of pushes is tried again, seconds; each time twice as long.
PUSH_TAKES = 0.001
#: How long to wait before the server is asked for a connection again, seconds.
TRY_AGAIN = 0.2


class PostgresBell:
    """Ends the waits of one store's threads."""

    def __init__(self, wire: PostgresWire, schema: str, listen: str | None) -> None:
        self._wire = wire
        self._schema = schema
        self._address = listen
        if listen is not None:
            wire.read(listen)  # or raise ConfigError
        self._reset()

    def _reset(self) -> None:
        self._beds: list[threading.Lock] = []  # one for each thread that waits
        self._generation = 0  # changes with each ring
        self._mine = threading.local()  # the rings that each thread has heard of
        self._listener: _Listener | None = None
        self._polls = False  # the server sends no notifications
        self._worked = 0.0  # when there was work, by the monotonic clock

    def wait(self, timeout: float) -> bool:
        """Sleep until a ring, a wake or the time is over (False)."""
        deadline = time.monotonic() + timeout
        bed = threading.Lock()
        bed.acquire()
        self._beds.append(bed)  # before checking for news: from now on others can wake this thread
        try:
            if self._is_news():
                return True
            if timeout <= 0:
                return False
            if not self._polls and self._announce():
                return True  # notifications arrive from now on; the caller looks for earlier jobs
            look = time.monotonic() + self._interval()
            if bed.acquire(timeout=max(min(deadline, look) - time.monotonic(), 0)):
                return self._is_news()
            return look < deadline
        finally:
            with contextlib.suppress(ValueError):
                self._beds.remove(bed)

    def wake(self) -> None:
        """End every wait of this bell, or the next one. Safe in signal handlers."""
        self._generation += 1
        for bed in tuple(self._beds):
            with contextlib.suppress(RuntimeError):
                bed.release()

    def heard(self, claims: bool) -> None:
        """Note whether an exchange brought claims: a busy worker needs no notifications."""
        if claims:
            self._worked = time.monotonic()
            if self._listener is not None:
                self._listener.sleeps = False

    def close(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()
        self.wake()

    def after_fork(self) -> None:
        """Forget the parent's connection and threads."""
        self._reset()

    def _is_news(self) -> bool:
        """Return whether something happened since this thread last asked."""
        before, self._mine.seen = getattr(self._mine, "seen", 0), self._generation
        return bool(before != self._generation)

    def _interval(self) -> float:
        """Return how long to sleep before the next look, seconds."""
        if not self._polls:
            return LOOK_EVERY
        idle = time.monotonic() - self._worked
        return POLLS[0] if idle < 1 else POLLS[1] if idle < 5 else POLLS[2]

    def _announce(self) -> bool:
        """Take the sleepers' lock; return False if this process holds it already."""
        listener = self._listener
        if listener is None or not listener.is_alive():
            listener = self._listener = _Listener(self._wire, self._schema, self._address, self.wake)
            listener.start()
        if listener.sleeps and listener.is_known.is_set():
            return False
        listener.sleeps = True
        listener.poke()
        known = listener.is_known.wait(2 * TEST_TAKES)
        if listener.cannot:
            self._polls = True
        return known or self._polls


class _Listener(threading.Thread):
    """The connection that listens."""

    def __init__(self, wire: PostgresWire, schema: str, address: str | None, ring: Callable[[], None]) -> None:
        super().__init__(name="laneway-bell", daemon=True)
        self.sleeps = False  #: a thread sleeps, or is about to
        self.cannot = False  #: no notification reaches this connection
        self.is_known = threading.Event()  #: the sleepers' lock is held; or listening has failed
        self._wire = wire
        self._schema = schema
        self._address = address
        self._ring = ring
        self._stops = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # Not closed by this thread, since others may be writing; nor at the end of the process, while this thread still reads.
        weakref.finalize(self, _close, self._read, self._write).atexit = False
        self._holds = False
        self._doubt = 0.0  # pushes may not have seen the lock: when to check again, seconds; 0: all of them have ended

    def poke(self) -> None:
        """Let the thread look at what has changed."""
        with contextlib.suppress(OSError):
            os.write(self._write, b"p")

    def stop(self) -> None:
        """End the thread."""
        self._stops = True
        self.poke()

    def run(self) -> None:
        """Listen, and connect again where that ends."""
        try:
            while not self._stops and not self.cannot:
                line: PostgresConnection | None = None
                try:
                    line = self._wire.dial(self._address)
                    self._listen(line)
                except (OSError, Broken, PostgresError, StoreError):
                    self.is_known.set()  # a waiting thread then asks the store, and gets the error itself
                    self._wake()
                    select.select([self._read], [], [], TRY_AGAIN)
                finally:
                    self._holds = False
                    if line is not None:
                        line.close()
                    if not self.cannot:
                        self.is_known.clear()
        finally:
            self.is_known.set()

    def _wake(self) -> None:
        self._ring()

    def _listen(self, line: PostgresConnection) -> None:
        line.ask(f"listen {self._schema}")
        if not is_reached(self._wire, line, self._schema):
            self.cannot = True
            self.is_known.set()
            return
        while not self._stops:
            self._lock(line)
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            poll.register(line.fileno(), select.POLLIN)
            found = {fd for fd, _ in poll.poll(self._doubt * 1000 or 30_000)}
            if self._read in found:
                os.read(self._read, 1000)
            if line.fileno() in found and line.notifications():
                self._wake()
            if self._doubt and self.sleeps:
                self._look(line)

    def _lock(self, line: PostgresConnection) -> None:
        """Hold the sleepers' lock while a thread sleeps."""
        if self.sleeps == self._holds:
            return
        line.until = time.monotonic() + self._wire.timeout
        verb = "pg_advisory_lock_shared" if self.sleeps else "pg_advisory_unlock_shared"
        line.ask(f"select {verb}(hashtextextended($1, 79))", (self._schema,))
        self._holds = not self._holds
        self._doubt = PUSH_TAKES if self._holds and not self._is_seen_by_all(line) else 0.0
        (self.is_known.set if self._holds else self.is_known.clear)()
        if line.notifications():
            self._wake()

    def _look(self, line: PostgresConnection) -> None:
        """Check whether all pushes that did not see the sleepers' lock have ended: their jobs are visible then."""
        line.until = time.monotonic() + self._wire.timeout
        if self._is_seen_by_all(line):
            self._doubt = 0.0
            self._wake()
        else:  # jobs of pushes that take even longer are found by polling, every LOOK_EVERY seconds
            self._doubt = self._doubt * 2 if self._doubt < LOOK_EVERY else 0.0
            if line.notifications():  # they may have arrived with the answer
                self._wake()

    def _is_seen_by_all(self, line: PostgresConnection) -> bool:
        """Return whether no push is open. Later pushes see the sleepers' lock, and do not wait for this check."""
        lock = "hashtextextended($1, 85)"
        return bool(line.ask(f"select pg_try_advisory_lock({lock}) and pg_advisory_unlock({lock})", (self._schema,))[0][0])


def is_reached(wire: PostgresWire, line: PostgresConnection, schema: str) -> bool:
    """Return whether notifications of other sessions reach one that listens."""
    with wire.lend() as other:
        other.ask("select pg_notify($1, '')", (schema,))
    until = time.monotonic() + TEST_TAKES
    while not line.notifications():
        left = until - time.monotonic()
        if left <= 0:
            return False
        select.select([line.fileno()], [], [], left)
    return True


def _close(*pipe: int) -> None:
    for end in pipe:
        os.close(end)
