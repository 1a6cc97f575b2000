"""A pool beside an event loop: coroutines wait, the loop never does."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar, assert_type

import pytest

from laneway.errors import BadArguments
from laneway.pool import PoolClosed, QueueFull, Topic, WorkerPool
from workbench import DEADLINE, SOON, until, wait

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine with a deadline."""

    async def in_time() -> T:
        async with asyncio.timeout(DEADLINE):
            return await coroutine

    return asyncio.run(in_time())


async def turns(condition: Any) -> None:
    """Let the loop turn until something holds."""
    while not condition():
        await asyncio.sleep(0.001)


class Held:
    """A job that runs until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        self.began.set()
        wait(self.go)
        return "held"


def test_a_coroutine_awaits_the_result_of_a_call_in_a_worker() -> None:
    async def main() -> None:
        async with WorkerPool(2) as pool:
            assert assert_type(await pool.run(int, "12", base=8), int) == 10
            assert await pool.run(threading.current_thread) is not threading.current_thread()
            with pytest.raises(ValueError, match="invalid literal"):
                await pool.run(int, "x")

    run(main())


def test_a_full_pool_makes_coroutines_wait_and_not_the_loop() -> None:
    async def main() -> list[int]:
        held = Held()
        async with WorkerPool(1, capacity=1) as pool:
            first = await pool.asubmit(held)
            calls = [asyncio.create_task(pool.run(abs, -number)) for number in range(50)]
            for _ in range(100):  # the loop turns
                await asyncio.sleep(0)
            assert not any(call.done() for call in calls)
            assert pool.stats()["worker_0"].queued == 1
            held.go.set()
            assert await first == "held"
            return await asyncio.gather(*calls)

    assert run(main()) == list(range(50))


def test_asubmit_returns_when_the_job_has_come_in() -> None:
    async def main() -> None:
        held = Held()
        async with WorkerPool(1, capacity=0) as pool:
            first = await pool.asubmit(held)
            producer = asyncio.create_task(pool.asubmit(abs, -1))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not producer.done()
            held.go.set()
            second = await producer
            assert (await first, await second) == ("held", 1)

    run(main())


def test_the_loops_own_way_to_an_executor_works_and_never_blocks_the_loop() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        held = Held()
        async with WorkerPool(1, capacity=1) as pool:
            first = loop.run_in_executor(pool, held)
            calls = [loop.run_in_executor(pool, abs, -number) for number in range(20)]
            await turns(held.began.is_set)
            held.go.set()
            assert await first == "held"
            return list(await asyncio.gather(*calls))

    assert run(main()) == list(range(20))


def test_a_way_in_with_a_topic_is_an_executor_for_the_loop() -> None:
    async def main() -> str:
        async with WorkerPool(2, dispatch=Topic(["mail", "img"])) as pool:
            thread = await asyncio.get_running_loop().run_in_executor(pool.using(topic="img"), threading.current_thread)
            return thread.name

    assert run(main()) == "worker_1"


@pytest.mark.parametrize("options", [{"block": False}, {"timeout": 0.02}, {"timeout": 0}])
def test_a_coroutine_is_told_that_the_pool_is_full(options: Any) -> None:
    async def main() -> None:
        held, ran = Held(), list[int]()
        async with WorkerPool(1, capacity=0) as pool:
            first = await pool.asubmit(held)
            with pytest.raises(QueueFull):
                await pool.using(**options).run(ran.append, 1)
            with pytest.raises(QueueFull):
                await pool.using(**options).asubmit(ran.append, 2)
            with pytest.raises(QueueFull):
                await asyncio.get_running_loop().run_in_executor(pool.using(**options), ran.append, 3)
            held.go.set()
            await first
            await pool.using(**options).run(ran.append, 4)
        assert ran == [4]

    run(main())


@pytest.mark.parametrize("capacity", [0, 1])
def test_a_coroutine_that_is_cancelled_takes_its_job_back(capacity: int) -> None:
    async def main() -> None:
        held, ran = Held(), list[int]()
        async with WorkerPool(1, capacity=capacity) as pool:
            first = await pool.asubmit(held)
            call = asyncio.create_task(pool.run(ran.append, 1))
            for _ in range(10):
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await turns(lambda: pool.stats()["worker_0"].queued == 0)
            held.go.set()
            await first
        assert ran == []

    run(main())


def test_context_variables_are_taken_along_and_not_brought_back() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    def rename() -> str:
        before = name.get()
        name.set("worker")
        return before

    async def main() -> None:
        name.set("caller")
        async with WorkerPool(1) as pool:
            assert await pool.run(rename) == "caller"
            assert await pool.run(rename) == "caller"
            assert name.get() == "caller"
            assert await asyncio.get_running_loop().run_in_executor(pool, name.get) == "nobody"

    run(main())


def test_a_function_that_raises_stop_iteration_fails_its_coroutine() -> None:
    async def main() -> None:
        async with WorkerPool(1) as pool:
            with pytest.raises(RuntimeError, match="StopIteration"):
                await pool.run(next, iter(()))

    run(main())


def test_leaving_the_block_waits_for_all_jobs_while_the_loop_turns() -> None:
    async def main() -> None:
        held = Held()
        async with WorkerPool(1) as pool:
            future = pool.submit(held)
            asyncio.get_running_loop().call_later(0.02, held.go.set)  # happens only if the loop turns
        assert future.result(0) == "held"
        with pytest.raises(PoolClosed):
            await pool.run(abs, 1)

    run(main())


def test_a_job_may_call_back_into_the_loop_that_waits_for_room() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def answer(number: int) -> int:
            return number

        def ask(number: int) -> int:
            return asyncio.run_coroutine_threadsafe(answer(number), loop).result(DEADLINE)

        async with WorkerPool(1, capacity=0) as pool:
            assert await asyncio.gather(*(pool.run(ask, number) for number in range(20))) == list(range(20))

    run(main())


def test_a_loop_that_has_ended_harms_no_worker() -> None:
    held = Held()
    tasks: list[asyncio.Task[Any]] = []
    pool = WorkerPool(1, capacity=0)

    async def main() -> None:
        pool.submit(held)
        tasks.append(asyncio.ensure_future(pool.asubmit(abs, 1)))
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    held.go.set()

    until(lambda: pool.stats()["worker_0"].done == 2)
    assert pool.submit(abs, -3).result(DEADLINE) == 3
    pool.shutdown()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_backpressure_is_quick_to_end() -> None:
    async def main() -> float:
        async with WorkerPool(4, capacity=0) as pool:
            start = time.perf_counter()
            await asyncio.gather(*(pool.run(time.sleep, 0.001) for _ in range(400)))
            return time.perf_counter() - start

    assert run(main()) < SOON


# -- what is no plain function -----------------------------------------------------------------------------------


async def fetch(number: int = 0) -> int:
    return number


async def pages() -> AsyncIterator[int]:
    yield 1


class Client:
    async def get(self) -> int:
        return 1

    async def __call__(self) -> int:
        return 1


ASYNC: dict[str, Callable[..., Any]] = {
    "fetch": fetch, "pages": pages, "get": Client().get, "Client": Client(), "fetch, partial": functools.partial(fetch, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ASYNC)
def test_what_is_async_is_refused_and_told_where_it_belongs(name: str) -> None:
    fn = ASYNC[name]
    with WorkerPool(1) as pool:
        said = rf"{name.partition(',')[0]} is async, .* pool.submit\(asyncio.run, {name.partition(',')[0]}\(\.\.\.\)\)"
        with pytest.raises(BadArguments, match=said):
            pool.submit(fn)
        with pytest.raises(BadArguments, match=said):
            pool.map(fn, [1])
        for call in (pool.run, pool.asubmit):
            with pytest.raises(BadArguments, match=said):
                run(call(fn))
        assert pool.stats()["worker_0"].done == 0


def test_a_coroutine_itself_is_refused_and_a_loop_in_a_thread_takes_it() -> None:
    with WorkerPool(1) as pool:
        begun = fetch(7)
        with pytest.raises(BadArguments, match="fetch is async"):
            pool.submit(begun)  # type: ignore[arg-type]
        assert pool.submit(asyncio.run, begun).result(DEADLINE) == 7
