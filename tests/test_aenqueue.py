"""Enqueueing from an event loop: on the loop where that needs no waiting, else in a thread; many at once; and `app.ainspect`."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import redisbench
from laneway import App, Worker
from laneway.desk.async_inspection import AsyncInspection
from laneway.desk.gatherer import Gatherer
from laneway.desk.inspection import Inspection
from laneway.errors import BadOption, BulkError, StoreUnavailable, WrongQueue

EVERY_STORE = True


class Threads:
    """Counts the pushes that a thread had to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pushes: list[int] = []
        before = Gatherer._push_in_thread

        def push(gatherer: Gatherer, loop: Any, chunk: Any, jobs: Any, until: float) -> None:
            self.pushes.append(len(jobs))
            before(gatherer, loop, chunk, jobs, until)

        monkeypatch.setattr(Gatherer, "_push_in_thread", push)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def test_a_few_jobs_need_no_thread(app: App, threads: Threads) -> None:
    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some() -> list[str]:
        first = await send.aenqueue(0)  # opens the store
        one_by_one = [(await send.aenqueue(n)).id for n in range(1, 5)]
        together = await asyncio.gather(*(send.aenqueue(n) for n in range(5, 10)))
        return [first.id, *one_by_one, *(job.id for job in together)]

    ids = asyncio.run(some())

    assert threads.pushes == [1]
    assert [job.args for job in app.inspect.jobs()] == [[n] for n in range(10)]
    assert [job.id for job in app.inspect.jobs()] == ids


def test_many_jobs_go_to_a_thread(app: App, threads: Threads) -> None:
    @app.task(name="send")
    def send(number: int, text: str = "") -> None: ...

    async def some() -> None:
        await send.aenqueue(0)
        await asyncio.gather(*(send.aenqueue(n) for n in range(50)))
        await send.aenqueue(1, "x" * 50_000)

    asyncio.run(some())
    assert threads.pushes == [1, 50, 1]
    assert app.inspect.counts()["ready"] == 52


def test_what_is_unusual_is_done_as_well(app: App, threads: Threads) -> None:
    @app.task(name="send", unique=True)
    def send(number: int) -> None: ...

    @app.collector(name="orders")
    def orders(lanes: dict[str, list[int]]) -> None: ...

    async def some() -> None:
        await send.aenqueue(0)
        assert not (await send.aenqueue(0)).created
        mine = await send.using(id="mine", queue="new").aenqueue(1)
        assert (mine.id, mine.created) == ("mine", True)
        assert not (await send.using(id="mine").aenqueue(2)).created
        await orders.aenqueue("a", 1)
        await orders.aenqueue("a", 2)
        with pytest.raises(WrongQueue):
            await send.using(queue="orders").aenqueue(3)
        both = await asyncio.gather(
            send.using(queue="orders").aenqueue(4), send.using(queue="fine").aenqueue(5), return_exceptions=True
        )
        assert [type(one).__name__ for one in both] == ["WrongQueue", "JobHandle"]

    asyncio.run(some())
    assert sorted(str(job.args) for job in app.inspect.jobs()) == ["[0]", "[1]", "[5]", "[]"]


def test_a_caller_that_is_cancelled_withdraws_nothing(app: App) -> None:
    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some() -> None:
        await send.aenqueue(0)
        for number in range(1, 20):
            call = asyncio.ensure_future(send.aenqueue(number))
            for _ in range(number % 3):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await send.aenqueue(20)

    asyncio.run(some())
    seen = [job.args[0] for job in app.inspect.jobs() if job.args]
    assert seen == sorted(seen)
    assert {0, 20} <= set(seen)


def test_the_loop_goes_on_while_another_holds_the_lock(app: App, threads: Threads) -> None:
    if not app.url.startswith("sqlite"):
        pytest.skip("a server has no such lock")
    app = App(app.url) if app.url != "sqlite://" else app

    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some() -> int:
        await send.aenqueue(0)
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with app.store.turn():  # type: ignore[attr-defined] # a step of another thread
                held.set()
                assert go.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        await asyncio.to_thread(held.wait, 20)
        call = asyncio.ensure_future(send.aenqueue(1))
        turns = 0
        while not call.done():
            turns += 1
            if turns == 20:
                go.set()
            await asyncio.sleep(0.001)
        thread.join()
        await call
        return turns

    assert asyncio.run(some()) >= 20
    assert threads.pushes == [1, 1]
    assert app.inspect.counts()["ready"] == 2


@pytest.fixture
def frozen_app() -> Iterator[tuple[App, redisbench.Server]]:
    if why := redisbench.why_not():
        pytest.skip(why)
    server = redisbench.Server()
    try:
        yield App(server.url, enqueue_timeout=0.5), server
    finally:
        server.remove()


def test_a_server_that_does_not_answer_stops_no_loop(frozen_app: tuple[App, redisbench.Server], threads: Threads) -> None:
    app, server = frozen_app

    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some() -> tuple[int, float]:
        await send.aenqueue(0)
        with server.frozen():
            begun = time.monotonic()
            call = asyncio.ensure_future(send.aenqueue(1))
            turns = 0
            while not call.done():
                turns += 1
                await asyncio.sleep(0.01)
            took = time.monotonic() - begun
            with pytest.raises(StoreUnavailable, match="did not answer in time") as caught:
                await call
            assert caught.value.written is None
        await send.aenqueue(2)
        return turns, took

    turns, took = asyncio.run(some())
    assert turns >= 5
    assert took < 5
    assert threads.pushes == [1, 1]  # after an error a thread asks first
    assert [job.args for job in app.inspect.jobs()] in ([[0], [2]], [[0], [1], [2]])


def test_a_late_answer_wakes_the_loop(frozen_app: tuple[App, redisbench.Server], threads: Threads) -> None:
    app, server = frozen_app
    app = App(server.url, enqueue_timeout=20)

    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some() -> None:
        await send.aenqueue(0)
        with server.frozen():
            call = asyncio.ensure_future(send.aenqueue(1))
            await asyncio.sleep(0.1)
            assert not call.done()
        assert (await asyncio.wait_for(call, 20)).created
        assert (await send.aenqueue(2)).created

    asyncio.run(some())
    assert threads.pushes == [1]
    assert [job.args for job in app.inspect.jobs()] == [[0], [1], [2]]


# -- many at once ------------------------------------------------------------------------------------------------


async def rows(number: int) -> AsyncIterator[tuple[int]]:
    for n in range(number):
        await asyncio.sleep(0)
        yield (n,)


def test_many_jobs_from_an_event_loop(app: App) -> None:
    @app.task(name="send")
    def send(number: int) -> None: ...

    @app.collector(name="orders")
    def orders(lanes: dict[str, list[int]]) -> None: ...

    @app.collector(name="keyed", lane=lambda number: number % 3)
    def keyed(lanes: dict[str, list[int]]) -> None: ...

    async def some() -> list[int]:
        return [
            await send.aenqueue_many(rows(25), chunk=10),
            await send.using(queue="vip").aenqueue_many([(1,), (2,)]),
            await app.aenqueue_many(send.bind(n) for n in range(3)),
            await orders.aenqueue_many([("a", 1), ("b", 2)]),
            await keyed.aenqueue_many(n for n in range(6)),
            await send.aenqueue_many([]),
        ]

    assert asyncio.run(some()) == [25, 2, 3, 2, 6, 0]
    assert [job.args for job in app.inspect.jobs(queue="default", limit=25)] == [[n] for n in range(25)]
    assert {queue.name: sum(queue.counts.values()) for queue in app.inspect.queues()} == {
        "default": 28, "keyed": 3, "orders": 2, "vip": 2,
    }  # fmt: skip


def test_many_jobs_one_of_which_is_wrong(app: App) -> None:
    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some(chunk: Any) -> None:
        await send.aenqueue_many([(1,), (2,), (3,), ("x",), (5,)], chunk=chunk)

    with pytest.raises(BulkError, match="2 were accepted before") as caught:
        asyncio.run(some(2))
    assert caught.value.accepted == 2
    with pytest.raises(BadOption, match="chunk=0"):
        asyncio.run(some(0))


def test_client_middlewares_see_the_callers_context(app: App) -> None:
    user = contextvars.ContextVar[str]("user")
    seen: list[str] = []

    @app.client_middleware
    def note(draft: Any) -> Iterator[None]:
        seen.append(user.get())
        yield

    @app.task(name="send")
    def send(number: int) -> None: ...

    async def some() -> None:
        user.set("ada")
        await send.aenqueue(1)
        await send.aenqueue(2)
        await send.aenqueue_many([(3,)])

    asyncio.run(some())
    assert seen == ["ada"] * 3


# -- ainspect ----------------------------------------------------------------------------------------------------


def test_every_method_of_inspect_can_be_awaited() -> None:
    methods = {name for name, _ in inspect.getmembers(Inspection, inspect.isfunction) if not name.startswith("_")}
    assert {name for name in vars(AsyncInspection) if not name.startswith("_")} == methods
    for name in methods:
        assert inspect.iscoroutinefunction(getattr(AsyncInspection, name))


def test_inspect_from_an_event_loop(app: App) -> None:
    @app.task(name="send", keep_result=60)
    def send(number: int) -> int:
        return number

    async def some() -> None:
        job = await send.aenqueue(1)
        assert (await app.ainspect.counts())["ready"] == 1
        assert [found.id for found in await app.ainspect.jobs(state="ready", task="send")] == [job.id]
        await app.ainspect.pause("default", by="ada")
        assert [queue.paused_by for queue in await app.ainspect.queues()] == ["ada"]
        await app.ainspect.resume("default")
        assert await app.ainspect.cancel_all(task="send") == 1
        assert await app.ainspect.job(job.id) is None
        later = await send.aenqueue(2)
        await asyncio.to_thread(lambda: Worker(app, 1).run(burst=True))
        found = await app.ainspect.job(later.id)
        assert found is not None
        assert found.state == "done"

    asyncio.run(some())
