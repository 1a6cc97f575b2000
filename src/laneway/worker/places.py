"""Where jobs run: slots are threads, seats are on an event loop.

Both take claims and give `Settled` pairs back. Threads start as they are needed; the event loop starts with the
first async job. There are no futures
in between: handing over and ending a job costs a microsecond.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.board import Board
from laneway.job import Claim
from laneway.outcome import Settled
from laneway.worker.run import Runner

if TYPE_CHECKING:
    import asyncio

__all__ = ["Seats", "Slots"]

log = logging.getLogger("laneway")

#: How often the event loop says that it turns, seconds.
TURNS = 0.25

Crash = Callable[[BaseException], None]


class Slots:
    """Threads that run claims of plain tasks.

    Claims wait in one line; a thread takes the next when it has ended one, and goes to sleep when there is none. Who slept last
    is woken first. Jobs of microseconds are run by one thread: it is faster than ten that take turns on the interpreter.
    """

    def __init__(self, size: int, runner: Runner, ended: Callable[[Settled], None], crash: Crash) -> None:
        self._size = size
        self._runner = runner
        self._end = ended
        self._crash = crash
        self._line: deque[Claim] = deque()
        self._idle: list[threading.Lock] = []  # the locks that idle threads wait for
        self._threads: list[threading.Thread] = []
        self._wanted = size  # how many threads should be awake
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many claims wait for a thread."""
        return len(self._line)

    @property
    def active(self) -> int:
        """How many threads are awake."""
        return len(self._threads) - len(self._idle)

    def hand(self, claims: Sequence[Claim], *, short: bool, long_ones: int) -> None:
        """Put claims in line: for short jobs one thread is enough, besides those that run long ones; else each gets one."""
        self._line.extend(claims)
        self._wanted = min(1 + long_ones, self._size) if short else self._size
        for _ in range(max(self._wanted - self.active, 0) if short else len(claims)):
            self.wake()

    def take_back(self) -> list[Claim]:
        """Return the claims that no thread has taken."""
        back: list[Claim] = []
        with contextlib.suppress(IndexError):
            while True:
                back.append(self._line.popleft())
        return back

    def wake(self) -> bool:
        """Wake one more thread, a new one if all are awake; False if all are."""
        self._wanted = max(self._wanted, self.active + 1)
        try:
            self._idle.pop().release()
        except IndexError:
            if len(self._threads) >= self._size:
                return False
            thread = threading.Thread(target=self._work, name=f"laneway-slot-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def close(self, timeout: float) -> None:
        """Let idle threads end; who still runs a job does not."""
        self._closed = True
        while self._idle:
            self.wake()
        for thread in self._threads:
            thread.join(timeout)

    def _work(self) -> None:
        bed = threading.Lock()
        bed.acquire()
        line, run, end = self._line, self._runner.run, self._end
        try:
            while not self._closed:
                try:
                    claim = line.popleft()
                except IndexError:
                    self._rest(bed)
                    continue
                end(run(claim))
                if len(self._threads) - len(self._idle) > self._wanted:
                    self._idle.append(bed)  # the others are enough, and we would only be in their way
                    bed.acquire()
        except BaseException as error:  # noqa: BLE001 - our own mistake: jobs' errors are outcomes
            self._crash(error)

    def _rest(self, bed: threading.Lock) -> None:
        self._idle.append(bed)
        # Something may have come since we looked: then nobody was woken for it, unless it was us.
        if self._line or self._closed:
            try:
                self._idle.remove(bed)
            except ValueError:
                pass
            else:
                return
        bed.acquire()


class Seats:
    """An event loop in a thread of its own that runs claims of async tasks."""

    def __init__(self, size: int, runner: Runner, ended: Callable[[Settled], None], crash: Crash, board: Board) -> None:
        self._size = size
        self._runner = runner
        self._end = ended
        self._crash = crash
        self._board = board
        self._ticks = False  # the board hears that the loop turns
        self._waiting: deque[Claim] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by token
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def hand(self, claims: Sequence[Claim]) -> None:
        """Let claims run at once."""
        loop = self._loop or self._open()
        self._waiting.extend(claims)
        # An empty context, as in a thread: who hands over may itself run inside a job's.
        loop.call_soon_threadsafe(self._start, context=contextvars.Context())

    def cancel(self, token: int) -> None:
        """Cancel a claim's coroutine."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, token)

    def close(self, timeout: float) -> None:
        """End the loop; coroutines that still run are left where they are."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)
            self._loop = self._thread = None

    def _open(self) -> asyncio.AbstractEventLoop:
        import asyncio  # noqa: PLC0415 - a worker without async tasks never loads it

        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, args=(loop,), name="laneway-seats", daemon=True)
        self._thread.start()
        return loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio  # noqa: PLC0415

        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
                break
            except (SystemExit, KeyboardInterrupt) as error:
                # Of a task that a job made: asyncio lets them through after telling who awaits it.
                log.warning("%s in a task that a job started: the event loop goes on", type(error).__name__)
            except BaseException as error:  # noqa: BLE001 - our own mistake: jobs' errors are outcomes
                self._crash(error)
                return
        if not self._tasks:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _start(self) -> None:
        assert self._loop is not None  # noqa: S101 - it runs this
        while self._waiting and len(self._tasks) < self._size:
            claim = self._waiting.popleft()
            self._tasks[claim.token] = self._loop.create_task(self._run(claim))
        if not self._ticks:
            self._ticks = True
            self._tick(self._loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say now and then that the loop turns, as long as there is something on it."""
        self._ticks = bool(self._tasks)
        self._board.set_loop(time.monotonic_ns() // 1000 if self._ticks else 0)
        if self._ticks:
            loop.call_later(TURNS, self._tick, loop)

    async def _run(self, claim: Claim) -> None:
        try:
            self._end(await self._runner.arun(claim))
        except BaseException as error:  # noqa: BLE001 - as in Slots
            self._crash(error)
        finally:
            self._tasks.pop(claim.token, None)
            if self._waiting:
                self._start()

    def _cancel(self, token: int) -> None:
        if token in self._tasks:
            self._tasks[token].cancel()
