"""Jobs that an event loop enqueues in one turn share round trips to the store.

A few jobs are pushed on the loop itself, if the store can do that without waiting: a thread would cost more than the push. SQLite
writes at once if its lock is free. A server's answer is polled for a moment, as every enqueue does, and then the loop waits for
it. Many jobs, and all that would have to wait, are pushed in a thread.

Enters: jobs, one by one.  Leaves: chunks of jobs, and an answer for each job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from laneway.core.job import Job
from laneway.errors import StoreBusy, StoreError, StoreUnavailable, WrongQueue
from laneway.store.contract import PipelinedStore, Store, is_pipelined

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

__all__ = ["Gatherer"]

#: An answer or an error for each job.
_Answers = Sequence[str | BaseException | None]

#: The most jobs and bytes of arguments in a chunk: so it locks no store for long, and no server refuses it for its size.
MOST_AT_ONCE = 1000
BYTES_AT_ONCE = 4_000_000
#: The most jobs and bytes that are pushed on the loop: more would keep it from its other work.
FEW = 10
FEW_BYTES = 20_000


class _Call:
    """An `aenqueue` that waits for the store."""

    __slots__ = ("at", "future", "job")

    def __init__(self, job: Job, future: Future[str | None]) -> None:
        self.job = job
        self.future = future
        self.at = time.monotonic()


class Gatherer:
    """Gathers the jobs that one event loop enqueues, and pushes them in order, a chunk at a time.

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
        self._answered = False  # the store is open, and can be asked without a thread
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
        jobs = [call.job for call in chunk]
        if not self._answered or len(jobs) > FEW or sum([len(job.body) for job in jobs]) > FEW_BYTES:
            self._push_in_thread(loop, chunk, jobs, until)
        elif is_pipelined(self.store):
            self._send(self.store, loop, chunk, jobs, until)
        else:
            self._hear(loop, chunk, jobs, until, partial(self.store.push, jobs, timeout=0))

    def _send(self, store: PipelinedStore, loop: AbstractEventLoop, chunk: list[_Call], jobs: list[Job], until: float) -> None:
        """Send jobs to a server, and let the loop wait for the answer if it does not come at once."""
        try:
            sent = store.send_push(jobs, until - time.monotonic())
        except Exception as error:  # noqa: BLE001 - a thread finds out which of the jobs cannot be sent
            sent = None
            if isinstance(error, StoreError):
                self._finish(loop, chunk, [error] * len(chunk))
                return
        if sent is None:
            self._push_in_thread(loop, chunk, jobs, until)
        elif sent.comes_at_once():
            self._hear(loop, chunk, jobs, until, sent.hear)
        else:
            descriptor = sent.fileno()

            def come() -> None:
                timer.cancel()
                loop.remove_reader(descriptor)
                self._hear(loop, chunk, jobs, until, sent.hear)

            def be_late() -> None:
                loop.remove_reader(descriptor)
                self._finish(loop, chunk, [sent.give_up()] * len(chunk))

            timer = loop.call_later(max(until - time.monotonic(), 0), be_late)
            loop.add_reader(descriptor, come)

    def _hear(
        self, loop: AbstractEventLoop, chunk: list[_Call], jobs: list[Job], until: float, hear: Callable[[], _Answers | None]
    ) -> None:
        """Take the answers of a push; if nothing was pushed, a thread does it."""
        answers: _Answers | None = None
        try:
            answers = hear()
        except Exception as error:  # noqa: BLE001 - as above
            if isinstance(error, StoreError) and not isinstance(error, StoreBusy | WrongQueue):
                answers = [error] * len(chunk)
        if answers is None:
            self._push_in_thread(loop, chunk, jobs, until)
        else:
            self._finish(loop, chunk, answers)

    def _push_in_thread(self, loop: AbstractEventLoop, chunk: list[_Call], jobs: list[Job], until: float) -> None:
        try:
            pushed = loop.run_in_executor(self._thread, self._push, jobs, until)
        except RuntimeError as error:  # the interpreter is being shut down
            pushed = loop.create_future()
            pushed.set_exception(error)
        pushed.add_done_callback(lambda done: self._finish_thread(loop, chunk, done))

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

    def _finish_thread(self, loop: AbstractEventLoop, chunk: list[_Call], done: Future[list[str | Exception | None]]) -> None:
        if done.cancelled():
            self._finish(loop, chunk, [None] * len(chunk), cancelled=True)
        elif (error := done.exception()) is not None:
            self._finish(loop, chunk, [error] * len(chunk))
        else:
            self._finish(loop, chunk, done.result())

    def _finish(
        self,
        loop: AbstractEventLoop,
        chunk: list[_Call],
        answers: Sequence[str | BaseException | None],
        *,
        cancelled: bool = False,
    ) -> None:
        self._answered = not cancelled and not any(isinstance(answer, BaseException) for answer in answers)
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
