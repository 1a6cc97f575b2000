"""Jobs that an event loop enqueues in one turn share round trips to the store.

Enters: jobs, one by one.  Leaves: chunks of jobs, and an answer for each job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from laneway.core.job import Job
from laneway.errors import StoreError, StoreUnavailable, WrongQueue
from laneway.store.contract import Store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

__all__ = ["Gatherer"]

#: The most jobs and bytes of arguments in a chunk: so it locks no store for long, and no server refuses it for its size.
MOST_AT_ONCE = 1000
BYTES_AT_ONCE = 4_000_000


class _Call:
    """An `aenqueue` that waits for the store."""

    __slots__ = ("at", "future", "job")

    def __init__(self, job: Job, future: Future[str | None]) -> None:
        self.job = job
        self.future = future
        self.at = time.monotonic()


class Gatherer:
    """Gathers the jobs that one event loop enqueues, and pushes them in order, a chunk at a time, in a thread of its own.

    A chunk has jobs, or payloads of one collector. So the rest of a refused chunk can be pushed again without duplicates: jobs
    are known by their ids, and the payloads of a chunk are refused all together.

    A call fails if it got no answer in `enqueue_timeout` seconds. As long as the store keeps answering, a turn that enqueues more
    than the store can take in that time is still worked off.
    """

    def __init__(self, store: Store) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - as asyncio

        self.store = store
        self._waiting: dict[str | None, deque[_Call]] = {}  # by their collector; jobs by None
        self._pushing = False
        self._lately = 0.0  # when the store last answered, or was first asked: no call times out before its wait begins here
        # The loop's own threads may all be busy with the program's work.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="laneway-aenqueue")

    def push(self, loop: AbstractEventLoop, job: Job) -> Future[str | None]:
        """Push a job together with the other jobs of this turn of the loop."""
        call = _Call(job, loop.create_future())
        self._waiting.setdefault(None if job.gather is None else job.queue, deque()).append(call)
        if not self._pushing:
            self._pushing = True
            loop.call_soon(self._begin, loop)
        return call.future

    def _begin(self, loop: AbstractEventLoop) -> None:
        """Start the time-outs: the loop's turn is over, and its length is not the store's fault."""
        self._lately = time.monotonic()
        self._start(loop)

    def _start(self, loop: AbstractEventLoop) -> None:
        chunk = self._cut()
        until = max(chunk[0].at, self._lately) + self.store.enqueue_timeout
        try:
            pushed = loop.run_in_executor(self._thread, self._push, [call.job for call in chunk], until)
        except RuntimeError as error:  # the interpreter is being shut down
            pushed = loop.create_future()
            pushed.set_exception(error)
        pushed.add_done_callback(lambda done: self._finish(loop, chunk, done))

    def _cut(self) -> list[_Call]:
        """Take the next chunk of waiting calls, from the kind that has waited longest."""
        group, calls = min(self._waiting.items(), key=lambda item: item[1][0].at)
        chunk: list[_Call] = []
        size = 0
        while calls and len(chunk) < MOST_AT_ONCE and (not chunk or size + len(calls[0].job.body) <= BYTES_AT_ONCE):
            if chunk and calls[0].at - chunk[0].at > self.store.enqueue_timeout / 4:
                break  # the first call's deadline is the chunk's
            chunk.append(calls.popleft())
            size += len(chunk[-1].job.body)
        if not calls:
            del self._waiting[group]
        return chunk

    def _push(self, jobs: Sequence[Job], until: float) -> list[str | Exception | None]:
        """Push jobs together, and return an answer or an error for each. A job that the store refuses fails alone."""
        answers: list[str | Exception | None] = [None] * len(jobs)
        left = list(range(len(jobs)))
        while left:
            try:
                found: Sequence[str | Exception | None] = self._ask([jobs[n] for n in left], until)
                served = left
            except WrongQueue as error:  # nothing was written: push the others again
                served = [n for n in left if jobs[n].queue == error.queue] or left
                found = [error] * len(served)
            except Exception as error:  # noqa: BLE001 - each caller gets its own
                if len(left) > 1 and not isinstance(error, StoreError):
                    # One of the jobs cannot be sent. The error does not say which, and nothing was written.
                    found = [answer for n in left for answer in self._push([jobs[n]], until)]
                else:
                    found = [error] * len(left)
                served = left
            for n, answer in zip(served, found, strict=True):
                answers[n] = answer
            left = sorted(set(left) - set(served))
        return answers

    def _ask(self, jobs: Sequence[Job], until: float) -> list[str | None]:
        seconds = until - time.monotonic()
        if seconds <= 0:
            raise StoreUnavailable(
                "the store did not answer the calls before this one in time. Nothing was written: try again.", written=False
            )
        return self.store.push(jobs, timeout=seconds)

    def _finish(self, loop: AbstractEventLoop, chunk: list[_Call], done: Future[list[str | Exception | None]]) -> None:
        cancelled = done.cancelled()
        error = None if cancelled else done.exception()
        answers = [error] * len(chunk) if cancelled or error is not None else done.result()
        if not any(isinstance(answer, StoreUnavailable) for answer in answers):
            self._lately = time.monotonic()
        if self._waiting:
            self._start(loop)
        else:
            self._pushing = False
        for call, answer in zip(chunk, answers, strict=True):
            if call.future.done():
                continue  # the caller was cancelled, but its job is in the store
            if cancelled:
                call.future.cancel()
            elif isinstance(answer, BaseException):
                call.future.set_exception(answer)
            else:
                call.future.set_result(answer)
