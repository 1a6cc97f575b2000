"""What type checkers refuse: the marked lines and no others. `test_typing.py` runs both over it; nobody imports it."""

from __future__ import annotations

from laneway import App, JobHandle, Retry

app = App("sqlite://", imports="shop.mail")  # a string is an iterable of strings: only the program can refuse it
App(b"sqlite://")  # flagged
App("sqlite://", import_=["shop.mail"])  # flagged


@app.task
def add(a: int, b: int = 2, *, note: str = "") -> int:
    return a + b


@app.task(queue="billing")
async def charge(customer_id: int, cents: int) -> str:
    return f"{customer_id}: {cents}"


# the task's arguments
add.enqueue("1")  # flagged
add.enqueue()  # flagged
add.enqueue(1, 2, 3)  # flagged
add.enqueue(1, unknown=2)  # flagged
add.enqueue(1, note=2)  # flagged
charge.enqueue(1, "2")  # flagged
add.using(queue="vip").enqueue("1")  # flagged
add.using(queue="vip").using(priority=1).enqueue()  # flagged
add.bind("1")  # flagged
add.using(queue="vip").bind(1, 2, 3)  # flagged
add("1")  # flagged


async def from_an_event_loop() -> None:
    await add.aenqueue("1")  # flagged
    await charge.using(run_after=1).aenqueue(1)  # flagged


# what comes back
wrong_result: JobHandle[str] = add.enqueue(1)  # flagged
wrong_value: int = charge.enqueue(1, 2).result()  # flagged
add.enqueue(1).result(timeout="soon")  # flagged

# options of one enqueue
add.using(quene="vip")  # flagged
add.using(queue=1)  # flagged
add.using(priority="high")  # flagged
add.using(run_after="soon")  # flagged
add.using(lane=1.5)  # flagged
add.using(retry=5)  # flagged
add.using(id=42)  # flagged
add.using("vip")  # flagged


# options of a task
app.task(quene="billing")  # flagged
app.task(keep_result="an hour")  # flagged
app.task(retry=3)  # flagged
app.task(lane=42)  # flagged
app.task("billing")  # flagged
Retry(times="five")  # flagged
Retry(backoff="long")  # flagged
Retry(on=[ValueError])  # flagged


# collectors
@app.collector
def gather(lanes: dict[str, list[int]]) -> None: ...


@app.collector(lane=lambda text: text[:1])
def gather_text(lanes: dict[str, list[str]]) -> None: ...


gather.enqueue("a", "1")  # flagged
gather.enqueue()  # flagged
gather.enqueue(1.5, 1)  # flagged
gather.enqueue("a", 1, score="high")  # flagged
gather.using(queue="vip")  # flagged
gather({"a": ["1"]})  # flagged
gather_text.enqueue(1)  # flagged
gather_text.enqueue("a", "b")  # flagged
gather_text.enqueue_many([1])  # flagged
app.collector(queue="x")  # flagged
app.collector(max_lanes="ten")  # flagged
app.collector(lambda lanes: lanes + 1)  # flagged

# many
add.enqueue_many([1, 2])  # flagged
add.enqueue_many([(1,)], chunk="all")  # flagged
app.enqueue_many([add])  # flagged
app.enqueue(add, 1)  # flagged

# lifespans
app.lifespan(lambda: 7)  # flagged
app.lifespan(lambda: iter([["db"]]))  # flagged

# schedules
app.schedule(add.bind("1"), "@daily")  # flagged
app.schedule("add", "@daily")  # flagged
app.schedule(gather, "@daily")  # flagged
app.schedule(add, 60)  # flagged
app.inspect.set_schedule("a", add.bind(1), None)  # flagged
