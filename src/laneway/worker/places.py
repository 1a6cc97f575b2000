"""Where jobs run: slots are threads, seats are on an event loop.

Both take claims and give `Settled` pairs back. Threads start as they are needed; the event loop starts with the
first async job. The hand-over is a plain queue: no futures, no locks of ours.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.job import Claim
from laneway.outcome import Settled
from laneway.worker.run import Runner
from laneway.worker.settle import Outbox

if TYPE_CHECKING:
    import asyncio

__all__ = ["Seats", "Slots"]

Crash = Callable[[BaseException], None]


class Slots:
    """Threads that run claims of plain tasks."""

    def __init__(self, size: int, runner: Runner, ended: Callable[[Settled], None], crash: Crash) -> None:
        self._size = size
        self._runner = runner
        self._end = ended
        self._crash = crash
        self._waiting: queue.SimpleQueue[Claim | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._taken = 0  # claims handed over, and
        self._ended = 0  # those that ended; counted by one thread and many, so the difference is a guess
        self._count = threading.Lock()

    def hand(self, claims: Sequence[Claim]) -> None:
        """Let claims run as soon as a thread is free."""
        self._taken += len(claims)
        wanted = min(self._taken - self._ended, self._size)
        while len(self._threads) < wanted:
            thread = threading.Thread(target=self._work, name=f"laneway-slot-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for claim in claims:
            self._waiting.put(claim)

    def _work(self) -> None:
        get, run, end = self._waiting.get, self._runner.run, self._end
        try:
            while (claim := get()) is not None:
                settled = run(claim)
                with self._count:
                    self._ended += 1
                end(settled)
        except BaseException as error:  # noqa: BLE001 - our own mistake: jobs' errors are outcomes
            self._crash(error)

    def close(self, timeout: float) -> None:
        """Let idle threads end; who still runs a job does not."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout)
        self._threads = []


class Seats:
    """An event loop in a thread of its own that runs claims of async tasks."""

    def __init__(self, runner: Runner, outbox: Outbox, crash: Crash) -> None:
        self._runner = runner
        self._outbox = outbox
        self._crash = crash
        self._waiting: deque[Claim] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by token
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def hand(self, claims: Sequence[Claim]) -> None:
        """Let claims run at once."""
        loop = self._loop or self._open()
        self._waiting.extend(claims)
        loop.call_soon_threadsafe(self._start)

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
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - our own mistake: jobs' errors are outcomes
            self._crash(error)
            return
        if not self._tasks:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _start(self) -> None:
        assert self._loop is not None  # noqa: S101 - it runs this
        while self._waiting:
            claim = self._waiting.popleft()
            self._tasks[claim.token] = self._loop.create_task(self._run(claim))

    async def _run(self, claim: Claim) -> None:
        try:
            self._outbox.put(await self._runner.arun(claim))
        except BaseException as error:  # noqa: BLE001 - as in Slots
            self._crash(error)
        finally:
            self._tasks.pop(claim.token, None)

    def _cancel(self, token: int) -> None:
        if token in self._tasks:
            self._tasks[token].cancel()
