"""The bell: wakes workers that wait for jobs.

A queue's bell is a list with one entry at most. A script that brings work for a waiting worker puts it there, in the same step.
A waiting worker is blocked on the bells of its queues (BLPOP) on a connection of its own, and one of them gets the entry. So
one job wakes one worker and not all. No work is missed: the entry stays until a worker takes it (it expires after ten seconds),
and an exchange that leaves due work rings again, so that an entry taken by a worker without room does no harm. If a
worker is killed just after it took the entry, the others find the job: they look every second.

The thread waits in poll(), because BLPOP's own time-out comes up to 100 ms late. A wait that ends without an entry unblocks its
connection (CLIENT UNBLOCK), so that no entry goes to a worker that does not wait.

Each waiting thread has an ear: a connection, and a pair of sockets by which other threads wake it. As in the pool there is no
lock, and an ear is in exactly one list: a wait that is ended by a signal handler's exception closes its ear, or forgets it.

Enters: rings of the scripts.  Leaves: the end of a wait.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
import time
import weakref
from collections.abc import Iterable

from laneway import shield
from laneway.errors import StoreError
from laneway.store.redis.keys import SHARED_KEYS, STORE, queue_key
from laneway.store.redis.wire import Complaint, Connection, Wire

__all__ = ["RedisBell"]

#: How often a waiting worker looks by itself, seconds: no ring may ever come.
LOOK_EVERY = 1.0
NEWS = STORE + SHARED_KEYS["NEWS"]

_inherited: list[object] = []  # connections of the parent process


class _Ear:
    """The connection and sockets of one waiting thread."""

    def __init__(self) -> None:
        self.line: Connection | None = None
        self.client = ""  #: the server's id of the connection
        self.is_closed = False
        self._sleeper, self._waker = socket.socketpair()
        self._sleeper.setblocking(False)
        self._waker.setblocking(False)

    def wake(self) -> None:
        """End its current sleep, or the next one. Safe in signal handlers."""
        with contextlib.suppress(OSError):  # full: it was woken and has not looked yet. Or closed
            self._waker.send(b"w")

    def sleep(self, seconds: float, line: Connection | None = None) -> bool:
        """Wait for the server or a wake; return whether it was the server."""
        poll = select.poll()
        poll.register(self._sleeper, select.POLLIN)
        if line is not None:
            poll.register(line.fileno(), select.POLLIN)
        # poll() counts milliseconds and may end one early.
        found = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._sleeper.fileno() in found:
            with contextlib.suppress(BlockingIOError):
                self._sleeper.recv(1000)
        return line is not None and line.fileno() in found

    def hang_up(self) -> None:
        """Close the connection."""
        line, self.line = self.line, None
        if line is not None:
            line.close()

    def close(self) -> None:
        """Close everything."""
        self.is_closed = True
        self.hang_up()
        self._sleeper.close()
        self._waker.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # its __init__ did not finish
            self.close()


class RedisBell:
    """Listens for the queues that this store claims from."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queues: tuple[str, ...] = ()
        self._reset()

    def _reset(self) -> None:
        self.ears: list[_Ear] = []  #: those not in use
        self._listening: dict[weakref.ref[_Ear], None] = {}  # those of waiting threads
        self._numbers = itertools.count(1)
        self._generation = 0  # changes with each ring
        self.rung = False  # since the last look
        self._mine = threading.local()  # the number of rings that each thread has seen

    def listen(self, queues: Iterable[str]) -> None:
        """Listen for these queues from now on."""
        self._queues = tuple(dict.fromkeys(queues))

    def wait(self, timeout: float) -> bool:
        """Sleep until a ring, a wake or the time is over (False). Several threads may wait: every ring wakes each of them."""
        deadline = time.monotonic() + timeout
        look = time.monotonic() + LOOK_EVERY
        if timeout <= 0:
            return self.rang()
        mine: list[_Ear] = []
        shield.up()
        try:
            self._borrow(mine)  # before checking for news: from now on other threads can wake this one
            while not self._is_news():
                left = min(deadline, look) - time.monotonic()
                if left <= 0:
                    return look < deadline
                self._attend(mine[0], left)
            return True
        except BaseException:
            for ear in mine:
                ear.hang_up()  # it may still get answers to earlier commands
            raise
        finally:
            self._give_back(mine)
            shield.down()

    def rang(self) -> bool:
        """Return, without waiting, whether it rang since this thread last looked."""
        if any(answer is not None for answer in self._wire.ask_all([("LPOP", key) for key in self._keys()])):
            self._ring()
        return self._is_news()

    def wake(self, heard: _Ear | None = None) -> None:
        """End every wait of this bell. Safe in signal handlers. The thread whose ear `heard` it is awake."""
        self._generation = next(self._numbers)
        for ear in self._heard_by():
            if ear is not heard:
                ear.wake()

    def _heard_by(self) -> list[_Ear]:
        """Return the ears of the waiting threads; those of waits that were ended by an exception are forgotten."""
        found: list[_Ear] = []
        for reference in tuple(self._listening):
            ear = reference()
            if ear is None:
                self._listening.pop(reference, None)
            else:
                found.append(ear)
        return found

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(IndexError):
            while True:
                self.ears.pop().close()
        for ear in self._heard_by():
            ear.is_closed = True  # the thread that uses it closes it
        self.wake()

    def after_fork(self) -> None:
        """Forget the parent's connections; this process must not close them."""
        _inherited.extend((*self.ears, *self._heard_by()))
        self._reset()

    # -- at the socket ---------------------------------------------------------------------------------------

    def _borrow(self, to: list[_Ear]) -> None:
        try:
            to.append(self.ears.pop())
        except IndexError:
            to.append(_Ear())
        self._listening[weakref.ref(to[0])] = None

    def _give_back(self, lent: list[_Ear]) -> None:
        """Take an ear back; one that was marked closed meanwhile is closed now."""
        for ear in lent:
            self._listening.pop(weakref.ref(ear), None)
            if ear.is_closed:
                ear.close()
                lent.clear()
        if lent:
            self.ears.append(lent.pop())

    def _ring(self, heard: _Ear | None = None) -> None:
        self.rung = True
        self.wake(heard)

    def _attend(self, ear: _Ear, left: float) -> None:
        """Listen for a while, and pass a ring on to the other threads."""
        rung = True  # a thread that cannot listen returns, and its next exchange raises the error
        try:
            rung = self._ring_within(ear, left)
        except (OSError, Complaint, StoreError):
            ear.hang_up()
            ear.sleep(min(left, 0.1))
        if rung:
            self._ring(ear)

    def _ring_within(self, ear: _Ear, left: float) -> bool:
        line = ear.line
        if line is None or not line.is_quiet():
            ear.hang_up()
            ear.line = line = self._wire.dial()
            ear.client = str(int(line.ask(("CLIENT", "ID"))))
        line.wait_until(time.monotonic() + self._wire.timeout)
        line.send_command(("BLPOP", *self._keys(), "0"))
        if ear.sleep(left, line):
            return self._rang(line)
        # No ring. Unblock the connection, and check for a ring that came just now. The BLPOP may not even have arrived.
        deadline = time.monotonic() + self._wire.timeout
        while not self._wire.ask(("CLIENT", "UNBLOCK", ear.client)) and line.is_quiet():
            if time.monotonic() > deadline:
                raise TimeoutError("the server does not know this connection, and did not report its end")
            time.sleep(0.0002)
        return self._rang(line)

    def _rang(self, line: Connection) -> bool:
        line.until = time.monotonic() + self._wire.timeout
        answer = line.read()
        if isinstance(answer, Complaint):
            raise answer
        return answer is not None

    def _keys(self) -> list[str]:
        return [NEWS, *(queue_key(queue, "BELL") for queue in self._queues)]

    def _is_news(self) -> bool:
        """Return whether something happened since this thread last asked."""
        before, self._mine.seen = getattr(self._mine, "seen", 0), self._generation
        return bool(before != self._generation)
