"""A pool of named workers: bounded lines, topics, what it counts, and how it ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.errors import BadOption, ConfigError, EnqueueError
from laneway.pool import Dispatch, LeastBusyFirst, PoolClosed, QueueFull, RoundRobin, Shared, Topic, WorkerPool, WorkerStats
from workbench import DEADLINE, until, wait

FIBONACCI = [
    0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584, 4181, 6765, 10946, 17711, 28657, 46368,
    75025, 121393, 196418, 317811, 514229,
]  # fmt: skip

POLICIES: dict[str, Callable[[], Dispatch]] = {
    "shared": Shared,
    "least busy first": LeastBusyFirst,
    "round robin": RoundRobin,
    "topic": lambda: Topic({"even": 4, "odd": 6}),
}


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Held:
    """Jobs that run until they are let go, and say that they have begun."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Semaphore(0)
        self.names: list[str] = []

    def __call__(self) -> str:
        self.names.append(threading.current_thread().name)
        self.began.release()
        wait(self.go)
        return threading.current_thread().name

    def wait_for(self, number: int) -> None:
        for _ in range(number):
            assert self.began.acquire(timeout=DEADLINE), "no job began"


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    thread.join(DEADLINE)
    return not thread.is_alive()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_thirty_fibonacci_numbers_come_from_ten_workers(policy: Callable[[], Dispatch]) -> None:
    results: dict[int, int] = {}
    pool = WorkerPool(10, dispatch=policy())

    def compute(n: int) -> None:
        results[n] = fib(n)

    def produce() -> None:
        for n in range(30):
            pool.using(topic=["even", "odd"][n % 2]).submit(compute, n)
        pool.close()

    in_thread(produce)
    assert pool.wait(DEADLINE)

    assert results == dict(enumerate(FIBONACCI))
    assert list(pool.stats()) == [f"worker_{n}" for n in range(10)]
    assert sum(stats.done for stats in pool.stats().values()) == 30


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_ten_workers_run_ten_jobs_at_once_each_in_a_thread_of_its_name(policy: Callable[[], Dispatch]) -> None:
    held = Held()
    with WorkerPool(10, dispatch=policy()) as pool:
        futures = [pool.using(topic="even" if n < 4 else "odd").submit(held) for n in range(10)]
        held.wait_for(10)
        held.go.set()

    assert sorted(future.result() for future in futures) == [f"worker_{n}" for n in range(10)]


def test_round_robin_gives_jobs_to_one_worker_after_the_other() -> None:
    with WorkerPool(3, dispatch=RoundRobin()) as pool:
        assert list(pool.map(lambda _: threading.current_thread().name, range(6))) == ["worker_0", "worker_1", "worker_2"] * 2


def test_the_least_busy_worker_gets_the_next_job() -> None:
    first, others = Held(), Held()
    with WorkerPool(2, dispatch=LeastBusyFirst()) as pool:
        pool.submit(first)
        first.wait_for(1)
        for _ in range(3):
            assert pool.submit(threading.current_thread).result(DEADLINE).name == "worker_1"
        first.go.set()
        others.go.set()


# -- capacity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, 1, 5, None])
def test_as_many_jobs_may_wait_as_there_is_capacity(capacity: int | None) -> None:
    held = Held()
    with WorkerPool(2, capacity=capacity) as pool:
        for _ in range(2 + (2 if capacity is None else capacity)):
            pool.using(block=False).submit(held)
        with pytest.raises(QueueFull, match=r"jobs? waits? here") as caught:
            pool.using(block=False).submit(held)
        held.go.set()

    assert caught.value.capacity == pool.capacity
    assert isinstance(caught.value, EnqueueError)


def test_submit_waits_until_there_is_room_and_producers_are_served_in_order() -> None:
    first, second = Held(), Held()
    order: list[int] = []
    with WorkerPool(1, capacity=1) as pool:
        pool.submit(first)
        pool.submit(second)
        threads: list[threading.Thread] = []
        for number in range(3):
            threads.append(in_thread(partial(pool.submit, order.append, number)))
            until(lambda: outside(pool) == len(threads))
        assert order == []
        first.go.set()
        second.go.set()
        assert all(map(ended, threads))

    assert order == [0, 1, 2]


def test_nobody_overtakes_who_stands_outside() -> None:
    class ByTopic(Dispatch):
        def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:
            return int(topic or 0)

    held = Held()
    with WorkerPool(2, dispatch=ByTopic(), capacity=0) as pool:
        pool.using(topic="0").submit(held)
        threads = [in_thread(partial(pool.using(topic="0").submit, held))]
        until(lambda: outside(pool) == 1)
        with pytest.raises(QueueFull):
            pool.using(topic="1", block=False).submit(held)
        threads.append(in_thread(partial(pool.using(topic="1").submit, held)))
        until(lambda: outside(pool) == 2)
        assert held.names == ["worker_0"]
        held.go.set()
        assert all(map(ended, threads))

    assert sorted(held.names) == ["worker_0", "worker_0", "worker_1"]


def test_who_stood_behind_one_that_gives_up_may_come_in() -> None:
    class ByTopic(Dispatch):
        def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:
            return int(topic or 0)

    held = Held()
    with WorkerPool(2, dispatch=ByTopic(), capacity=0) as pool:
        pool.using(topic="0").submit(held)

        def give_up() -> None:
            with pytest.raises(QueueFull):
                pool.using(topic="0", timeout=0.1).submit(held)

        first = in_thread(give_up)
        until(lambda: outside(pool) == 1 or not first.is_alive())
        second = in_thread(partial(pool.using(topic="1").submit, held))
        assert ended(first)
        assert ended(second)  # though worker_0 is still busy
        held.go.set()

    assert sorted(held.names) == ["worker_0", "worker_1"]


def test_who_waits_only_so_long_is_told_that_it_is_full_and_nothing_runs() -> None:
    held, ran = Held(), list[int]()
    with WorkerPool(1, capacity=0) as pool:
        pool.submit(held)
        start = time.monotonic()
        with pytest.raises(QueueFull):
            pool.using(timeout=0.05).submit(ran.append, 1)
        assert time.monotonic() - start >= 0.05
        with pytest.raises(QueueFull):
            pool.using(timeout=0).submit(ran.append, 2)
        held.go.set()
        pool.using(timeout=DEADLINE).submit(ran.append, 3)

    assert ran == [3]


def test_a_place_is_free_as_soon_as_the_result_is_known() -> None:
    with WorkerPool(1, capacity=0) as pool:
        for number in range(200):
            assert pool.using(block=False).submit(abs, -number).result() == number
            assert pool.stats() == {"worker_0": WorkerStats(queued=0, busy=False, done=number + 1)}


def test_a_full_topic_blocks_only_itself() -> None:
    mail = Held()
    with WorkerPool(2, dispatch=Topic(["mail", "img"]), capacity=1) as pool:
        for _ in range(2):
            pool.using(topic="mail").submit(mail)
        stuck = in_thread(lambda: pool.using(topic="mail").submit(mail))
        until(lambda: outside(pool) == 1)
        for number in range(50):
            assert pool.using(topic="img").submit(abs, number).result(DEADLINE) == number
        assert stuck.is_alive()
        mail.go.set()
        assert ended(stuck)

    assert mail.names == ["worker_0"] * 3


@settings(max_examples=15)
@given(st.sampled_from(sorted(POLICIES)), st.integers(0, 12), st.integers(1, 4), st.integers(1, 60))
def test_many_producers_get_each_job_run_once_and_never_more_wait_than_may(
    policy: str, capacity: int, producers: int, jobs: int
) -> None:
    ran: list[tuple[int, int]] = []
    seen: list[int] = []
    topics = ["even", "odd"]
    with WorkerPool(10, dispatch=POLICIES[policy](), capacity=capacity) as pool:

        def work(job: tuple[int, int]) -> None:
            ran.append(job)
            stats = list(pool.stats().values())
            groups = [stats[:4], stats[4:]] if policy == "topic" else [stats]
            seen.extend(sum(worker.queued for worker in group) for group in groups)

        def produce(producer: int) -> None:
            for n in range(jobs):
                pool.using(topic=topics[n % 2]).submit(work, (producer, n))

        threads = [in_thread(partial(produce, producer)) for producer in range(producers)]
        assert all(map(ended, threads))

    assert Counter(ran) == Counter((producer, n) for producer in range(producers) for n in range(jobs))
    assert max(seen) <= capacity


# -- from within -------------------------------------------------------------------------------------------------


def test_a_job_may_submit_to_its_own_full_pool() -> None:
    ran: list[int] = []

    def work(depth: int) -> None:
        ran.append(depth)
        if depth:
            pool.submit(work, depth - 1)
            pool.submit(work, depth - 1)

    pool = WorkerPool(2, capacity=0)
    pool.submit(work, 6)
    until(lambda: len(ran) == 2**7 - 1)
    pool.shutdown()

    assert Counter(ran) == {depth: 2 ** (6 - depth) for depth in range(7)}


def test_a_job_that_may_wait_only_so_long_is_told_that_its_pool_is_full() -> None:
    with WorkerPool(1, capacity=0) as pool:

        def work() -> str:
            with pytest.raises(QueueFull):
                pool.using(timeout=0.01).submit(abs, 1)
            with pytest.raises(QueueFull):
                pool.using(block=False).submit(abs, 1)
            return "told"

        assert pool.submit(work).result(DEADLINE) == "told"


def test_a_job_cannot_wait_for_the_end_of_its_own_pool() -> None:
    with WorkerPool(1) as pool, pytest.raises(RuntimeError, match="wait for itself"):
        pool.submit(pool.shutdown).result(DEADLINE)


# -- what must not end a worker -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, IndexError])
def test_no_exception_of_a_job_ends_its_worker(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("of the job")

    with WorkerPool(1) as pool:
        thread = pool.submit(threading.get_ident).result()
        failed = pool.submit(fail)
        assert isinstance(failed.exception(DEADLINE), error)
        assert pool.submit(threading.get_ident).result(DEADLINE) == thread

    assert pool.stats()["worker_0"].done == 3


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_no_exception_of_a_callback_ends_a_worker(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    held = Held()

    def fail(_: object) -> None:
        raise error("of the callback")

    with WorkerPool(1) as pool:
        future = pool.submit(held)
        future.add_done_callback(fail)
        held.go.set()
        assert future.result(DEADLINE) == "worker_0"
        assert pool.submit(abs, -1).result(DEADLINE) == 1

    assert "of the callback" in caplog.text


def test_a_future_that_somebody_else_has_settled_does_not_end_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    with WorkerPool(1) as pool:
        running = pool.submit(held)
        waiting: Future[Any] = pool.submit(held)
        held.wait_for(1)
        running.set_result("not yours")
        waiting.set_result("nor this one")
        held.go.set()
        assert pool.submit(abs, -1).result(DEADLINE) == 1

    assert held.names == ["worker_0"]
    assert "settled" in caplog.text


# -- counting and ending -----------------------------------------------------------------------------------------


def test_stats_tell_of_each_worker_what_waits_what_runs_and_what_is_done() -> None:
    held = Held()
    with WorkerPool(2, dispatch=RoundRobin(), capacity=3) as pool:
        pool.submit(abs, 1).result()
        for _ in range(4):
            pool.submit(held)
        held.wait_for(2)
        assert pool.stats() == {
            "worker_0": WorkerStats(queued=1, busy=True, done=1),
            "worker_1": WorkerStats(queued=1, busy=True, done=0),
        }
        assert pool.stats()["worker_0"]["queued"] == 1
        held.go.set()

    assert [(stats.queued, stats.busy, stats.done) for stats in pool.stats().values()] == [(0, False, 3), (0, False, 2)]


def test_what_waits_in_a_shared_line_is_counted_once() -> None:
    held = Held()
    with WorkerPool(3, capacity=5) as pool:
        for _ in range(8):
            pool.submit(held)
        assert [stats.queued for stats in pool.stats().values()] == [2, 2, 1]
        held.go.set()


def test_a_closed_pool_runs_what_it_has_and_takes_nothing_more() -> None:
    held, ran = Held(), list[int]()
    pool = WorkerPool(1, capacity=1)
    pool.submit(held)
    pool.submit(ran.append, 1)
    late = in_thread(lambda: pool.submit(ran.append, 2))
    until(lambda: outside(pool) == 1)

    pool.close()

    with pytest.raises(PoolClosed, match="closed"):
        pool.submit(ran.append, 3)
    assert not pool.wait(0.01)
    held.go.set()
    assert pool.wait(DEADLINE)
    assert ended(late)
    assert ran == [1, 2]


def test_closing_and_waiting_may_be_done_again() -> None:
    pool = WorkerPool(2)
    for _ in range(2):
        pool.close()
        pool.shutdown()
        assert pool.wait()


def test_a_pool_that_is_waited_for_ends_when_somebody_closes_it() -> None:
    pool = WorkerPool(2)
    assert not pool.wait(0.01)

    waiting = in_thread(pool.wait)
    pool.close()

    assert ended(waiting)


# -- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 2.5, "3"])
def test_a_size_that_is_no_number_of_workers_is_an_error(size: Any) -> None:
    with pytest.raises(ConfigError, match="one worker or more"):
        WorkerPool(size)


@pytest.mark.parametrize("capacity", [-1, 1.5, "3"])
def test_a_capacity_that_is_no_number_of_jobs_is_an_error(capacity: Any) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        WorkerPool(1, capacity=capacity)


@pytest.mark.parametrize("dispatch", [RoundRobin, "shared"])
def test_a_policy_is_an_object(dispatch: Any) -> None:
    with pytest.raises(ConfigError, match=r"dispatch=LeastBusyFirst\(\)"):
        WorkerPool(1, dispatch=dispatch)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"blok": False}, 'Did you mean "block"'),
        ({"block": 1}, "block"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "1"}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"topic": 7}, "topic"),
    ],
)
def test_an_option_that_is_unknown_or_wrong_is_an_error(options: Any, said: str) -> None:
    with WorkerPool(1) as pool, pytest.raises(BadOption, match=said):
        pool.using(**options)


def outside(pool: WorkerPool) -> int:
    """How many jobs stand outside; users need not know."""
    gates = {id(row.gate): row.gate for row in pool._scheduler._rows}
    return sum(len(gate.outside) for gate in gates.values())
