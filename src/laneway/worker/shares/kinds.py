"""Kinds: which tasks and queues of this worker are CPU-bound (they compute), and which are I/O-bound (they wait).

A task's declaration counts (`kind="cpu"` or `"io"`). Async tasks wait. The kinds of other tasks are learned from their runs
(`learn`), once a second, beginning with what other workers have learned before.

Enters: runs that have ended.  Leaves: the queues and tasks that compute, or wait.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping

from laneway.core.outcome import Settled
from laneway.desk.task_base import TaskBase
from laneway.worker.shares.learn import Kind, Learner, Seen, kind_of_queue

__all__ = ["Kinds"]

#: How often kinds are learned, seconds.
EVERY = 1.0
#: The part of earlier runs that counts after each second.
FADES = 0.9


class Kinds:
    """The kinds of this worker's tasks and queues."""

    def __init__(self, declared: Mapping[str, TaskBase]) -> None:
        self.io: set[str] = set()  #: queues whose jobs wait
        self.cpu: set[str] = set()  #: queues whose jobs compute
        self.computing: set[str] = set()  #: tasks that compute
        self.busy = 0.0  #: how much this process used of its available core, in the last second
        self._given: dict[str, Kind] = {name: "io" for name, task in declared.items() if task.is_async}
        self._given |= {name: task.kind for name, task in declared.items() if task.kind is not None}
        self._learner = Learner()
        self._ended: deque[tuple[str, float, float, float]] = deque(maxlen=10_000)  # task, seconds, CPU seconds: its own, of all
        self._runs: dict[str, dict[str, float]] = {}  # queue → task → runs, lately; to begin with, as declared
        for name, task in declared.items():
            self._runs.setdefault(task.queue, {})[name] = 1.0
        self._next, self._last = 0.0, time.monotonic()
        self._clocks = _Clocks()
        self._conclude()

    def begin_with(self, known: Mapping[str, Seen]) -> None:
        """Take over what other workers have learned before."""
        self._learner = Learner(known)
        self._conclude()

    def ran(self, task: str, seconds: float, cpu: float, around: float) -> None:
        """Note a run that ended in this thread: wall and CPU seconds, and those of the process. From any thread."""
        self._ended.append((task, seconds, cpu, around))

    def settled(self, settled: Iterable[Settled]) -> None:
        """Note the tasks of these runs."""
        for item in settled:
            claim = item.claim
            tasks = self._runs.get(claim.queue)
            if tasks is None:
                tasks = self._runs[claim.queue] = {}
            tasks[claim.task] = tasks.get(claim.task, 0.0) + 1

    def learn(self, now: float, running: Iterable[str]) -> None:
        """Weigh the measurements, if a second is over. `running`: the tasks that run now."""
        if now < self._next:
            return
        elapsed, self._last = min(now - self._last, 10 * EVERY), now
        self._next = now + EVERY
        busy, speed = self._clocks.read(now)
        self.busy = busy / max(speed, 0.1)  # where other processes take the cores, low use does not mean little work
        while self._ended:
            self._learner.ran(*self._ended.popleft())
        self._learner.second(busy, running, speed, elapsed)
        self._conclude()
        for tasks in self._runs.values():
            for task in tasks:
                tasks[task] *= FADES

    def news(self) -> dict[str, Seen]:
        """Return the measurements since the last call: to be added to what is stored."""
        return self._learner.news()

    def _conclude(self) -> None:
        kinds: dict[str, Kind] = {**self._learner.kinds, **self._given}
        self.computing = {task for task, kind in kinds.items() if kind == "cpu"}
        queues = {queue: kind_of_queue(queue, tasks, kinds) for queue, tasks in self._runs.items()}
        self.io = {queue for queue, kind in queues.items() if kind == "io"}
        self.cpu = {queue for queue, kind in queues.items() if kind == "cpu"}


class _Clocks:
    """How long this process ran, and how long it waited because other processes had the cores."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._cpu = time.process_time()
        self._threads = _schedule()

    def read(self, now: float) -> tuple[float, float]:
        """Return the CPU seconds per second since the last call, and the part of the time that it could run when it wanted to."""
        cpu, threads = time.process_time(), _schedule()
        busy = (cpu - self._cpu) / max(now - self._at, 0.001)
        ran, waited = (sum([times[n] - self._threads.get(id_, (0, 0))[n] for id_, times in threads.items()]) for n in (0, 1))
        self._at, self._cpu, self._threads = now, cpu, threads
        return busy, ran / (ran + waited) if ran > 0 and waited >= 0 else 1.0


def _schedule() -> dict[str, tuple[int, int]]:
    """Return how long each thread of this process ran, and how long it waited for a core; nothing if the kernel does not say."""
    threads: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(OSError):  # there is no such folder
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError, ValueError), open(f"/proc/self/task/{thread}/schedstat") as file:  # it has ended
                ran, waited, _ = file.read().split()
                threads[thread] = int(ran), int(waited)
    return threads
