"""Where jobs run: slots are threads, seats are slots on an event loop.

Both take claims and return `Settled` pairs. Threads start as they are needed; the event loop starts with the first async job, or
lifespan.
There are no futures in between: handing over and ending a job costs a microsecond.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.core.job import Claim
from laneway.core.outcome import Settled
from laneway.pool.thread_queue import ThreadQueue
from laneway.worker.board import Board
from laneway.worker.event_loop import LoopThread
from laneway.worker.run import Runner

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopSlots", "ThreadSlots"]

#: How often the event loop reports that it turns, seconds.
TURNS = 0.25

Crash = Callable[[BaseException], None]


class ThreadSlots(ThreadQueue[Claim]):
    """Threads that run claims of plain tasks: a line of the pool, without its futures.

    It adds which threads should be awake: jobs of microseconds are run by one thread, which is faster than ten that take turns
    on the interpreter lock.
    """

    def __init__(self, size: int, runner: Runner, sink: Callable[[], Callable[[Settled], None]], crash: Crash) -> None:
        def begin(_: str) -> Callable[[Claim], None]:
            run, ended = runner.run, sink()  # called for every job: bound once
            return lambda claim: ended(run(claim))

        super().__init__([f"laneway-slot-{number}" for number in range(1, size + 1)], begin, crash)

    def hand(self, claims: Sequence[Claim], *, short: bool, long_ones: int) -> None:
        """Queue claims: for short jobs one thread is enough, besides those that run long ones; else each claim gets one."""
        self._items.extend(claims)
        self._wanted = min(1 + long_ones, self.size) if short else self.size
        for _ in range(max(self._wanted - self.active, 0) if short else len(claims)):
            self.wake()

    def close(self, timeout: float = 0.0) -> None:
        """Let idle threads end; threads that still run a job do not."""
        super().close()
        for thread in self.threads:
            thread.join(timeout)


class LoopSlots(LoopThread):
    """The event loop of a worker: it runs claims of async tasks."""

    def __init__(
        self, size: int, runner: Runner, ended: Callable[[Settled], None], crash: Crash, board: Board, kind: str = "asyncio"
    ) -> None:
        super().__init__(kind, crash)
        self._size = size
        self._runner = runner
        self._end = ended
        self._board = board
        self._ticks = False  # the loop reports to the board that it turns
        self._waiting: deque[Claim] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by token

    @property
    def is_free(self) -> bool:
        """Whether nothing of ours runs on the loop."""
        return super().is_free and not self._tasks

    def hand(self, claims: Sequence[Claim]) -> None:
        """Start claims at once."""
        loop = self._loop or self._open()
        self._waiting.extend(claims)
        # An empty context, as in a thread: the caller may itself run inside a job's context.
        loop.call_soon_threadsafe(self._start, context=contextvars.Context())

    def cancel(self, token: int) -> None:
        """Cancel a claim's coroutine."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, token)

    def _start(self) -> None:
        assert self._loop is not None  # noqa: S101 - it runs this
        while self._waiting and len(self._tasks) < self._size:
            claim = self._waiting.popleft()
            # A context of its own: the caller may be the job that has just ended.
            self._tasks[claim.token] = self._loop.create_task(self._run(claim), context=contextvars.Context())
        if not self._ticks:
            self._ticks = True
            self._tick(self._loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Report now and then that the loop turns, as long as it has tasks."""
        self._ticks = bool(self._tasks)
        self._board.set_loop(time.monotonic_ns() // 1000 if self._ticks else 0)
        if self._ticks:
            loop.call_later(TURNS, self._tick, loop)

    async def _run(self, claim: Claim) -> None:
        try:
            self._end(await self._runner.arun(claim))
        except BaseException as error:  # noqa: BLE001 - as in ThreadSlots
            self._crash(error)
        finally:
            self._tasks.pop(claim.token, None)
            if self._waiting:
                self._start()

    def _cancel(self, token: int) -> None:
        if token in self._tasks:
            self._tasks[token].cancel()
