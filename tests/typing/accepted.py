"""What type checkers accept, and what they infer. `test_typing.py` runs both over it; nobody imports it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from laneway import App, Draft, JobContext, JobHandle, LaneFailures, LaneHandle, Retry, Worker, current_job
from laneway.core.job import State
from laneway.desk.collector import Collector
from laneway.desk.task import Bound
from laneway.store.inspection import JobInfo

app = App("sqlite://", imports=["shop.mail"])


@dataclass
class Order:
    id: int
    version: int


@app.task
def add(a: int, b: int = 2, *, note: str = "") -> int:
    return a + b


@app.task(name="charge", queue="billing", lane="customer_id", retry=Retry(times=5), keep_result=3600)
async def charge(customer_id: int, cents: int) -> str:
    return f"{customer_id}: {cents}"


@app.task(priority=10)
def tags(*names: str, **values: int) -> None: ...


@app.task
async def ping() -> None: ...


# a plain call just runs it
assert_type(add(1), int)
assert_type(add(1, b=2, note="x"), int)
charging = assert_type(charge(1, 2), Coroutine[Any, Any, str])
pinging = assert_type(ping(), Coroutine[Any, Any, None])

# enqueue takes the task's parameters; the handle is of the job's result
assert_type(add.enqueue(1), JobHandle[int])
assert_type(add.enqueue(1, 2, note="x"), JobHandle[int])
assert_type(add.enqueue(a=1, b=2), JobHandle[int])
assert_type(charge.enqueue(1, cents=2), JobHandle[str])
assert_type(tags.enqueue("a", "b", c=1), JobHandle[None])
assert_type(ping.enqueue(), JobHandle[None])
assert_type(add.enqueue(1).result(timeout=1.5), int)
assert_type(charge.enqueue(1, 2).result(), str)
assert_type(add.enqueue(1).created, bool | None)
assert_type(add.enqueue(1).cancel(), bool)


async def from_an_event_loop() -> None:
    assert_type(await add.aenqueue(1), JobHandle[int])
    assert_type(await charge.using(run_after=60).aenqueue(1, 2), JobHandle[str])
    assert_type(await charge(1, 2), str)


# options
assert_type(add.using(run_after=60).enqueue(1), JobHandle[int])
assert_type(add.using(run_after=timedelta(minutes=1)).using(queue="vip").enqueue(1, note="x"), JobHandle[int])
assert_type(charge.using(run_after=datetime.now(UTC)).enqueue(1, 2), JobHandle[str])
add.using(queue="vip", priority=10, retry=Retry(times=0, backoff=1.5), id="mail-42").enqueue(42)
add.using(lane="user-42").enqueue(42)
add.using(lane=42).enqueue(42)

# many
assert_type(add.bind(1, note="x"), Bound)
assert_type(add.enqueue_many([(1,), (2, 3)], chunk=10), int)
assert_type(add.using(queue="vip").enqueue_many((n,) for n in range(3)), int)
assert_type(app.enqueue_many([add.bind(1), charge.using(run_after=1).bind(1, 2)]), int)


# collectors
def lane_of(a: int, b: int = 2) -> str:
    return f"{a}-{b}"


@app.collector
def gather(lanes: dict[str, list[int]]) -> int:
    return sum(map(sum, lanes.values()))


@app.collector(max_lanes=10, merge="last", debounce=5, retry=Retry(times=3))
async def gather_later(lanes: dict[str, list[Order]]) -> None: ...


@app.collector(lane=lambda order: order.id, score=lambda order: order.version, max_payloads=3)
def gather_orders(lanes: Mapping[str, Sequence[Order]]) -> None: ...


assert_type(gather, Collector[int, int])
assert_type(gather({"a": [1]}), int)
assert_type(gather.enqueue("a", 1, score=2), LaneHandle)
assert_type(gather.enqueue("a"), LaneHandle)
assert_type(gather.using(run_after=timedelta(minutes=1)).enqueue(7, 1), LaneHandle)
assert_type(gather.enqueue_many([("a", 1), ("b", 2, 0.5), "c"]), int)
gather_later.enqueue("a", Order(1, 2))
gather_orders.enqueue(Order(1, 2), score=3)
assert_type(gather_orders.enqueue_many([Order(1, 2)]), int)
assert_type(app.enqueue_many([gather.bind("a", 1), gather_orders.bind(Order(1, 2)), add.bind(1)]), int)
raised: Exception = LaneFailures({"a": ValueError("no"), "b": "in words"})
app.task(lane=lane_of, halt_on_death=True)(add.function)

# schedules
app.schedule(add.bind(1, note="x"), "0 3 * * *", name="add-1", timezone="Europe/Paris", catch_up="all")
app.schedule(ping, timedelta(minutes=5))
app.schedule(gather.bind("a"), "@hourly")
app.inspect.set_schedule("add-2", add.using(queue="slow").bind(2), "@hourly", by="ada")
assert_type(app.inspect.run_schedule("add-2"), JobHandle[Any])
assert_type(app.inspect.schedules()[0].next_at, datetime | None)

# by name
assert_type(app.enqueue("shop.mail.send", 42, check=False), JobHandle[Any])
assert_type(app.using(queue="mail", run_after=60).enqueue("shop.mail.send", 42), JobHandle[Any])
assert_type(app.job("id").state(), State)
assert_type(add.enqueue(1).info(), JobInfo)
assert_type(add.enqueue(1).info().as_dict(), dict[str, Any])


async def awaited() -> None:
    assert_type(await (await add.aenqueue(1)).aresult(timeout=5), int)
    assert_type(await app.aenqueue("shop.mail.send", 42), JobHandle[Any])
    assert_type(await app.job("id").astate(), State)


@app.middleware
def around_runs(job: JobContext) -> Iterator[None]:
    yield


@app.client_middleware
def around_enqueues(draft: Draft) -> Iterator[None]:
    yield


# lifespans: any generator of mappings or of nothing
@app.lifespan
def plain(worker: Worker) -> Iterator[Mapping[str, Any] | None]:
    yield {"slots": worker.slots}


@app.lifespan
def narrower() -> Generator[dict[str, int]]:
    yield {"db": 1}


@app.lifespan
async def on_the_loop() -> AsyncIterator[Mapping[str, Any]]:
    yield {}


@app.lifespan
async def nothing() -> AsyncGenerator[None]:
    yield


assert_type(narrower(), Generator[dict[str, int]])
assert_type(current_job().resources, Mapping[str, Any])
with app.testing("fake") as jobs, jobs.running(add) as running:
    assert_type(running, JobContext)
