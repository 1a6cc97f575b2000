"""The scheduler of a pool: admits jobs, keeps them in queues (lines), and counts what workers have done.

A job joins the queue that the policy chooses, if there is room. The jobs beyond one per worker are those that wait, and they are
at most `capacity`. So whether there is room does not depend on how fast a thread wakes up. If there is none, jobs wait outside,
first come, first served; the thread that ends a job lets the next one in.

The threads know the scheduler and not the pool: a pool without references is closed, its jobs are run, its threads end. The same
happens before the interpreter ends. In a forked child, which has no threads and none of its parent's jobs, a pool starts anew.
Before a fork the threads of an idle pool end, since a fork beside threads may deadlock; the next job starts them again.

Enters: jobs.  Leaves: their results, into their futures.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from laneway.errors import ConfigError, PoolClosed, QueueFull
from laneway.logs import log
from laneway.pool.dispatch import Dispatch
from laneway.pool.job import PoolJob
from laneway.pool.thread_queue import ThreadQueue

__all__ = ["Scheduler", "Admission", "WorkerQueue", "WorkerStats", "rest"]

AnyJob = PoolJob[Any]


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """The state of one worker of a pool. `stats["done"]` is the same as `stats.done`."""

    queued: int  #: jobs that wait for it; in a line with several workers, its share
    busy: bool  #: whether it runs a job
    done: int  #: jobs that it has run, failed ones too

    def __getitem__(self, name: str) -> int:
        figure: int = getattr(self, name)
        return figure


@dataclass(slots=True)
class Admission:
    """The gate before one line or several, and how much room there is behind it."""

    capacity: int
    waiting: int = 0  # jobs in these lines beyond one per worker
    outside: deque[AnyJob] = field(default_factory=deque[AnyJob])


class PoolThread:
    """One named thread, and the number of jobs that it has run."""

    def __init__(self, name: str, ended: Callable[[AnyJob, PoolThread], None], left: Callable[[AnyJob], None]) -> None:
        self.name = name
        self.busy = False
        self.done = 0
        self._ended = ended
        self._left = left

    def run(self, job: AnyJob) -> None:
        """Run a job; an error goes into its future. A caller that sees the result finds the worker free and the job counted."""
        if not _starts(job):
            self._left(job)
            return
        self.busy = True
        function, args, kwargs = job.take()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - any error belongs to the caller, and this thread goes on
            self._ended(job, self)
            _settle_future(job.set_exception, error)
            del job, function, args, kwargs  # the error's traceback has this frame, and the job has the error: no cycle
        else:
            self._ended(job, self)
            _settle_future(job.set_result, result)


class WorkerQueue(ThreadQueue[AnyJob]):
    """A line of the pool: its gate, its workers, and how many jobs wait or run here."""

    def __init__(self, workers: list[PoolThread], gate: Admission) -> None:
        by_name = {worker.name: worker for worker in workers}
        super().__init__(list(by_name), lambda name: by_name[name].run, _crashed)
        self.workers = workers
        self.gate = gate
        self.load = 0

    def stats(self) -> dict[str, WorkerStats]:
        """Return the state of each worker; waiting jobs are dealt evenly, since they wait for the next free worker."""
        each, more = divmod(max(self.load - self.size, 0), self.size)
        full = self.load >= self.size
        return {
            worker.name: WorkerStats(queued=each + (number < more), busy=full or worker.busy, done=worker.done)
            for number, worker in enumerate(self.workers)
        }


class Scheduler:
    """The lines of one pool and the gates before them."""

    def __init__(self, size: int, dispatch: Dispatch, capacity: int) -> None:
        self._dispatch = dispatch
        self._capacity = capacity
        self._sizes = list(dispatch.lines(size))
        if sum(self._sizes) != size or min(self._sizes) < 1:
            raise ConfigError(f"{type(dispatch).__name__}.lines({size}) must deal {size} workers, one or more to each line")
        self._closed = False
        self._rows: list[WorkerQueue] = []
        self.begin_anew()
        _schedulers.add(self)

    def begin_anew(self) -> None:
        """Start with only the settings, in a new pool or in a forked child."""
        for row in self._rows:
            row.close()  # a job that forked, and goes on in the child, is the last one of its thread there
        # Reentrant: a signal handler, or the garbage collector, may close a pool in a thread that is here right now.
        self._lock = threading.RLock()
        self._entering = 0  # submits that are here right now
        self._number = 0  # jobs that have joined a line
        names = iter(range(sum(self._sizes)))
        gate = Admission(self._capacity)
        self._rows = []
        for size in self._sizes:
            workers = [PoolThread(f"worker_{next(names)}", self._ended, self._left) for _ in range(size)]
            self._rows.append(WorkerQueue(workers, Admission(self._capacity) if self._dispatch.apart else gate))
        self._drained = threading.Event()
        if self._closed:
            self._drained.set()

    # -- coming in -------------------------------------------------------------------------------------------

    def enter(self, job: AnyJob, *, stay: bool) -> bool:
        """Let a job join a line. If there is no room return False, and it waits outside; or raise QueueFull, without `stay`."""
        with self._lock:
            if self._closed:
                raise PoolClosed
            self._entering += 1
            try:
                row = self._choose(job)
                gate = row.gate
                if not gate.outside and self._has_room(row):
                    self._join(job, row)
                    return True
                if not stay:
                    raise self._full(gate)
                gate.outside.append(job)
                job.gate = gate
                return False
            finally:
                self._entering -= 1
                if self._closed:
                    self._end_if_drained()

    def tell(self, job: AnyJob, let_in: Callable[[], object]) -> bool:
        """Call `let_in` when a job that waits outside is let in; return False if it is no longer outside."""
        with self._lock:
            if job.gate is None:
                return False
            job.let_in = let_in
            return True

    def give_up(self, job: AnyJob) -> QueueFull | None:
        """Remove a job that still waits outside; return the error to raise, or None if it has come in."""
        with self._lock:
            gate = job.gate
            if gate is None:
                return None
            self._leave(job, gate)
            return self._full(gate)

    def take_out(self, job: AnyJob) -> bool:
        """Remove a job that has not started, from wherever it waits; return False if a worker has it."""
        with self._lock:
            if job.gate is not None:
                self._leave(job, job.gate)
                if job.let_in is not None:
                    job.let_in()
                return True
            if job.row is None or not job.row.take_out(job):
                return False
            self._left(job)
            return True

    def _choose(self, job: AnyJob) -> WorkerQueue:
        chosen = self._dispatch.choose(self._number, [row.load for row in self._rows], job.topic)
        if not 0 <= chosen < len(self._rows):
            raise ConfigError(f"{type(self._dispatch).__name__} chose line {chosen}, and there are 0 to {len(self._rows) - 1}")
        return self._rows[chosen]

    def _has_room(self, row: WorkerQueue) -> bool:
        return row.load < row.size or row.gate.waiting < row.gate.capacity

    def _join(self, job: AnyJob, row: WorkerQueue) -> None:
        job.row = row
        # Counted first: a pool that is closed at this moment must not look empty.
        row.load += 1
        row.gate.waiting += row.load > row.size
        try:
            row.put(job)
        except BaseException:  # no thread can be started, or a signal handler raised
            if row.take_out(job):
                row.gate.waiting -= row.load > row.size
                row.load -= 1
            raise
        self._number += 1

    def _let_in(self, gate: Admission) -> None:
        """Let waiting jobs in, as far as there is room."""
        while gate.outside:
            job = gate.outside[0]
            try:
                row = self._choose(job)
                if not self._has_room(row):
                    return
                self._join(job, row)
            except Exception as error:  # noqa: BLE001 - a policy's mistake, or no thread can be started: the caller gets it
                _settle_future(job.set_exception, error)
            gate.outside.popleft()
            job.gate = None
            if job.let_in is not None:
                job.let_in()

    # -- going out -------------------------------------------------------------------------------------------

    def _leave(self, job: AnyJob, gate: Admission) -> None:
        gate.outside.remove(job)
        job.gate = None
        self._let_in(gate)  # the jobs behind it may be for another line
        self._end_if_drained()

    def _ended(self, job: AnyJob, worker: PoolThread) -> None:
        with self._lock:
            worker.busy = False
            worker.done += 1
            self._left(job)

    def _left(self, job: AnyJob) -> None:
        """Make room: a job has ended, or was cancelled."""
        row = job.row
        assert row is not None  # noqa: S101 - it had joined a queue
        with self._lock:
            row.gate.waiting -= row.load > row.size
            row.load -= 1
            if row.gate.outside:
                self._let_in(row.gate)
            if self._closed:
                self._end_if_drained()

    # -- coming to an end ------------------------------------------------------------------------------------

    def rest(self, deadline: float) -> list[threading.Thread]:
        """Let the threads of idle lines end, until others are needed; return those that end.

        A thread that has just run its last job has until the deadline to fall asleep.
        """
        if self.is_ours(threading.current_thread()):
            return []  # its own job forks
        while any(row.active and not row.load for row in self._rows) and time.monotonic() < deadline:
            time.sleep(0.001)
        if not self._lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return []
        ending: list[threading.Thread] = []
        try:
            for number, row in enumerate(self._rows):
                if row.threads and not row.load and not row.active:
                    self._rows[number] = WorkerQueue(row.workers, row.gate)
                    row.close()
                    ending += row.threads
        finally:
            self._lock.release()
        return ending

    def close(self) -> None:
        """Take nothing more. Jobs that were taken are run, then the threads end."""
        with self._lock:
            self._closed = True
            self._end_if_drained()

    def cancel_all(self) -> None:
        """Cancel all jobs that have not started."""
        with self._lock:
            waiting = {job: None for row in self._rows for job in (*row.gate.outside, *row.listed())}
        for job in waiting:
            job.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pool is closed, all jobs are over and all threads have ended; return False if that takes too long."""
        if self.is_ours(threading.current_thread()):
            raise RuntimeError("a job cannot wait for the end of the pool that runs it: it would wait for itself")
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._drained.wait(timeout):
            return False
        for thread in self._threads():
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads())

    def is_ours(self, thread: threading.Thread) -> bool:
        """Return whether a thread is one of the pool's workers."""
        return thread in self._threads()

    def _threads(self) -> list[threading.Thread]:
        return [thread for row in self._rows for thread in row.threads]

    def stats(self) -> dict[str, WorkerStats]:
        """Return the state of each worker, by name."""
        with self._lock:
            return {name: stats for row in self._rows for name, stats in row.stats().items()}

    def _full(self, gate: Admission) -> QueueFull:
        jobs = "1 job waits" if gate.waiting == 1 else f"{gate.waiting} jobs wait"
        what = f"{jobs} here, and more may not: wait for room, or give it more workers or capacity"
        return QueueFull(what, capacity=gate.capacity)

    def _end_if_drained(self) -> None:
        if self._closed and not self._entering and not any(row.load or row.gate.outside for row in self._rows):
            for row in self._rows:
                row.close()
            self._drained.set()


def _starts(job: AnyJob) -> bool:
    try:
        return job.set_running_or_notify_cancel()
    except RuntimeError:
        return False  # other code has put a result into this future


def _settle_future(settle: Callable[[Any], None], value: object) -> None:
    """Settle a future. An error in its callbacks must not end the thread."""
    try:
        settle(value)
    except BaseException:  # noqa: BLE001 - it is the caller's code
        log.exception("a callback of a future failed, or other code has settled it")


def _crashed(error: BaseException) -> None:
    log.critical("a worker of a pool ended by an internal error", exc_info=error)


_schedulers: weakref.WeakSet[Scheduler] = weakref.WeakSet()

#: How long a fork waits for idle threads to end, seconds.
REST = 0.5


def rest() -> None:
    """End the threads of idle pools, so that a fork has none of them. Does not wait for running jobs."""
    deadline = time.monotonic() + REST
    for thread in [thread for scheduler in list(_schedulers) for thread in scheduler.rest(deadline)]:
        thread.join(max(deadline - time.monotonic(), 0))


def _at_exit() -> None:
    for scheduler in list(_schedulers):
        scheduler.close()
    for scheduler in list(_schedulers):
        scheduler.wait()


def _after_fork() -> None:
    for scheduler in list(_schedulers):
        scheduler.begin_anew()


# Runs before the interpreter waits for its threads, as for the standard library's own pools; Python has no public name for that.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=rest, after_in_child=_after_fork)
