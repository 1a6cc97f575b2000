"""Random lives of a pool beside a model of it: who waits, who runs, who is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from laneway.pool import Dispatch, LeastBusyFirst, QueueFull, RoundRobin, Shared, Topic, WorkerPool
from workbench import DEADLINE, wait

TOPICS = ["a", "b"]


class Held:
    """A job that runs until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()
        self.runs = 0
        self.worker = ""
        self.future: Future[None]

    def __call__(self) -> None:
        self.runs += 1
        self.worker = threading.current_thread().name
        self.began.set()
        wait(self.go)


@dataclass
class ModelLine:
    """Workers by their names, and jobs in order."""

    workers: list[str]
    running: list[Held] = field(default_factory=list[Held])
    waiting: list[Held] = field(default_factory=list[Held])

    @property
    def load(self) -> int:
        return len(self.running) + len(self.waiting)

    @property
    def is_busy(self) -> bool:
        return len(self.running) == len(self.workers)


def shared(_: list[ModelLine], __: int, ___: str) -> int:
    return 0


def least_busy(lines: list[ModelLine], _: int, __: str) -> int:
    return min((line.load, number) for number, line in enumerate(lines))[1]


def round_robin(lines: list[ModelLine], accepted: int, _: str) -> int:
    return accepted % len(lines)


def by_topic(_: list[ModelLine], __: int, topic: str) -> int:
    return TOPICS.index(topic)


Choice = Callable[[list[ModelLine], int, str], int]

#: policy, the workers at each line, and the same choice in other words
KINDS: dict[str, tuple[Dispatch, list[int], Choice]] = {
    "shared": (Shared(), [3], shared),
    "least busy first": (LeastBusyFirst(), [1, 1, 1], least_busy),
    "round robin": (RoundRobin(), [1, 1, 1], round_robin),
    "topic": (Topic({"a": 2, "b": 1}), [2, 1], by_topic),
}


class PoolMachine(RuleBasedStateMachine):
    """Submits without waiting, lets jobs go, cancels; after each step pool and model agree."""

    kind = "shared"

    @initialize(capacity=st.integers(0, 3))
    def open(self, capacity: int) -> None:
        policy, sizes, self.choose = KINDS[self.kind]
        names = iter(["worker_0", "worker_1", "worker_2"])
        self.lines = [ModelLine([next(names) for _ in range(size)]) for size in sizes]
        self.capacity = capacity
        self.accepted = 0
        self.ended: list[Held] = []
        self.cancelled: list[Held] = []
        self.pool = WorkerPool(3, dispatch=policy, capacity=capacity)

    def has_room(self, line: ModelLine) -> bool:
        group = [line] if self.kind == "topic" else self.lines
        return not line.is_busy or sum(len(each.waiting) for each in group) < self.capacity

    @rule(topic=st.sampled_from(TOPICS))
    def submit(self, topic: str) -> None:
        job = Held()
        line = self.lines[self.choose(self.lines, self.accepted, topic)]
        if not self.has_room(line):
            with pytest.raises(QueueFull):
                self.pool.using(block=False, topic=topic).submit(job)
            return
        job.future = self.pool.using(block=False, topic=topic).submit(job)
        self.accepted += 1
        (line.waiting if line.is_busy else line.running).append(job)

    @precondition(lambda self: any(line.running for line in self.lines))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        line = data.draw(st.sampled_from([line for line in self.lines if line.running]))
        job = data.draw(st.sampled_from(line.running))
        job.go.set()
        job.future.result(DEADLINE)
        line.running.remove(job)
        self.ended.append(job)
        if line.waiting:
            line.running.append(line.waiting.pop(0))

    @precondition(lambda self: any(line.waiting for line in self.lines))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        line = data.draw(st.sampled_from([line for line in self.lines if line.waiting]))
        job = data.draw(st.sampled_from(line.waiting))
        assert job.future.cancel()
        line.waiting.remove(job)
        self.cancelled.append(job)

    @invariant()
    def pool_and_model_agree(self) -> None:
        self.those_run_that_should()
        self.it_counts_right()

    def those_run_that_should(self) -> None:
        for line in self.lines:
            for job in line.running:
                wait(job.began)
                assert job.worker in line.workers
            assert len({job.worker for job in line.running}) == len(line.running)
            assert not any(job.began.is_set() for job in line.waiting)

    def it_counts_right(self) -> None:
        stats = self.pool.stats()
        for line in self.lines:
            assert sum(stats[name].queued for name in line.workers) == len(line.waiting)
            assert {name for name in line.workers if stats[name].busy} == {job.worker for job in line.running}
        assert sum(worker.done for worker in stats.values()) == len(self.ended)

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        rest = [job for line in self.lines for job in (*line.running, *line.waiting)]
        for job in rest:
            job.go.set()
        self.pool.close()
        assert self.pool.wait(DEADLINE)
        assert [job.runs for job in (*self.ended, *rest)] == [1] * (self.accepted - len(self.cancelled))
        assert [job.runs for job in self.cancelled] == [0] * len(self.cancelled)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_does_what_its_model_does(kind: str) -> None:
    machine = type("Machine", (PoolMachine,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25))
