"""The bell: wakes workers that wait for jobs.

A queue's bell is a list with one entry at most. Who brings work that somebody must hear of puts it there, in the same step; who
waits is blocked on the bells of its queues (BLPOP) on a connection of its own, and one of them gets the entry. So one job wakes
one worker and not all. Nothing is missed: the entry stays until somebody takes it (it fades after ten seconds), and an exchange
that leaves due work rings again, so that an entry taken by somebody who has no room is no loss. What is lost all the same, with a
worker that is killed in this very moment, is found when the others look, every second.

Waiting is done with poll() here: BLPOP's own time-out comes up to 100 ms late. A wait that ends without an entry gives up its
place in the line (CLIENT UNBLOCK), so that no entry comes to somebody who does not wait.

Enters: rings of the scripts.  Leaves: the end of a wait.  Called by: the store.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterable

from laneway import shield
from laneway.errors import StoreError
from laneway.store.redis.keys import SHARED_KEYS, STORE, queue_key
from laneway.store.redis.wire import Complaint, Line, Wire

__all__ = ["Bell"]

#: How often a waiting worker looks for itself: no ring need ever come.
LOOK_EVERY = 1.0
NEWS = STORE + SHARED_KEYS["NEWS"]

_inherited: list[object] = []  # connections of our parent


class Bell:
    """Listens for the queues that this store claims from."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queues: tuple[str, ...] = ()
        self._line: Line | None = None
        self._reset()

    def _reset(self) -> None:
        self._news = threading.Condition()
        self._generation = 0  # how often it rang
        self.rung = False  # since somebody looked here
        self._attended = False  # a thread waits at the socket
        self._mine = threading.local()  # what each thread has heard of
        self._client = 0
        self._self: tuple[int, int] | None = None  # a pipe to ourselves

    def listen(self, queues: Iterable[str]) -> None:
        """Listen for these queues from now on."""
        self._queues = tuple(dict.fromkeys(queues))

    def wait(self, timeout: float) -> bool:
        """Sleep until a ring, a wake or the time is over (False). Several threads may wait: each hears of everything."""
        self._pipe()  # before we look for news: who wakes us from now on can
        deadline = time.monotonic() + timeout
        look = time.monotonic() + LOOK_EVERY
        if timeout <= 0:
            return self.rang()
        while True:
            left = min(deadline, look) - time.monotonic()
            if left <= 0:
                return look < deadline
            with self._news:
                if self._is_news():
                    return True
                # One thread attends to the socket, the others hear from it.
                attends = not self._attended
                if attends:
                    self._attended = True
                else:
                    self._news.wait(left)
            if attends:
                self._attend(left)
            with self._news:
                if self._is_news():
                    return True

    def rang(self) -> bool:
        """Say whether it rang since this thread last heard of it, without waiting."""
        if any(answer is not None for answer in self._wire.ask_all([("LPOP", key) for key in self._keys()])):
            self.rung = True
            self._tell()
        with self._news:
            return self._is_news()

    def wake(self) -> None:
        """End every wait of this bell. Also for signal handlers: the lock inside may be taken twice by one thread."""
        self._tell()
        if self._self is not None:
            with contextlib.suppress(BlockingIOError):  # full: it was woken and did not look yet
                os.write(self._self[1], b"w")

    def close(self) -> None:
        """Stop listening."""
        with self._news:
            line, self._line = self._line, None
            pipe, self._self = (None, self._self) if self._attended else (self._self, None)
        if line is not None:
            line.close()
        if pipe is not None:
            for fd in pipe:
                os.close(fd)

    def after_fork(self) -> None:
        """Forget what belongs to the parent; its connection is not ours to hang up."""
        _inherited.append(self._line)
        self._line = None
        pipe = self._self
        self._reset()  # another thread of the parent may have held a lock
        for fd in pipe or ():
            os.close(fd)

    # -- at the socket ---------------------------------------------------------------------------------------

    def _attend(self, left: float) -> None:
        """Look after the socket for a while, and tell the others."""
        rung = True  # whoever cannot listen looks: that will say what is wrong
        shield.up()
        try:
            rung = self._ring_within(left)
        except (OSError, Complaint, StoreError):
            self._hang_up()
            self._doze(min(left, 0.1))
        except BaseException:
            self._hang_up()
            raise
        finally:
            with self._news:
                self._attended = False
                self._generation += rung
                self.rung = self.rung or rung
                self._news.notify_all()  # of the ring, or that the place at the socket is free
            shield.down()

    def _ring_within(self, left: float) -> bool:
        line = self._line
        if line is None or not line.is_quiet():
            self._hang_up()
            line = self._dial()
        line.send_command(("BLPOP", *self._keys(), 0))
        if self._poll(line, left):
            return self._rang(line.read())
        # Nobody rang. Leave the line, and hear whether somebody rang just now. What we sent may not even have arrived.
        deadline = time.monotonic() + self._wire.timeout
        while not self._wire.ask(("CLIENT", "UNBLOCK", self._client)) and line.is_quiet():
            if time.monotonic() > deadline:
                raise TimeoutError("the server knows nothing of this connection, and nobody said that it has ended")
            time.sleep(0.0002)
        return self._rang(line.read())

    @staticmethod
    def _rang(answer: object) -> bool:
        if isinstance(answer, Complaint):
            raise answer
        return answer is not None

    def _poll(self, line: Line, left: float) -> bool:
        """Wait for the socket or a wake; say whether it was the socket."""
        reader = self._pipe()[0]
        poll = select.poll()
        poll.register(line.fileno(), select.POLLIN)
        poll.register(reader, select.POLLIN)
        # poll() counts milliseconds and may end one early.
        found = {fd for fd, _ in poll.poll(left * 1000)}
        if reader in found:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 1000)
        return line.fileno() in found

    def _doze(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._pipe()[0], select.POLLIN)
        poll.poll(seconds * 1000)

    def _dial(self) -> Line:
        line = self._wire.dial()
        try:
            self._client = int(line.ask(("CLIENT", "ID")))
        except BaseException:
            line.close()
            raise
        self._line = line
        return line

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _pipe(self) -> tuple[int, int]:
        if self._self is None:
            self._self = os.pipe()
            for fd in self._self:
                os.set_blocking(fd, False)
        return self._self

    def _keys(self) -> list[str]:
        return [NEWS, *(queue_key(queue, "BELL") for queue in self._queues)]

    def _tell(self) -> None:
        with self._news:
            self._generation += 1
            self._news.notify_all()

    def _is_news(self) -> bool:
        """Say whether something happened since this thread last asked."""
        before, self._mine.seen = getattr(self._mine, "seen", 0), self._generation
        return bool(before != self._generation)
