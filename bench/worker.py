"""How fast one worker is, beside a raw sqlite3 loop in the same run.

make bench ARGS="worker"          all parts
make bench ARGS="worker noop"     some: noop waiting latency late
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from harness import Table, alternate, percentile, rate
from laneway import App, Worker
from laneway.instant import now_micros
from laneway.job import new_id
from raw import Raw

BODY = b'[[42,"welcome"],{}]'
SLOTS = 10


def noop(where: Path) -> None:
    """Jobs that do nothing, through 10 slots; the raw loop claims and settles 10 at a time."""
    table = Table("no-op jobs through one worker with 10 slots, per second", "", "jobs/s", "of raw")
    raw = Raw(where / "raw.db")
    app = App(f"sqlite:///{where / 'jobs.db'}")

    @app.task
    def plain(number: int, text: str) -> None: ...

    @app.task
    async def on_loop(number: int, text: str) -> None: ...

    @app.task(lane="lane")
    def in_lane(lane: int, text: str) -> None: ...

    def of_raw() -> float:
        raw.push([(new_id(), now_micros(), BODY) for _ in range(20_000)])
        return rate(20_000, lambda: raw.drain(SLOTS, now_micros()))

    def of_plain() -> float:
        plain.enqueue_many((n, "welcome") for n in range(20_000))
        return rate(20_000, lambda: Worker(app, slots=SLOTS).run(burst=True))

    def of_async() -> float:
        on_loop.enqueue_many((n, "welcome") for n in range(20_000))
        return rate(20_000, lambda: Worker(app, slots=SLOTS).run(burst=True))

    def of_lane() -> float:
        in_lane.enqueue_many((7, "welcome") for _ in range(5_000))
        return rate(5_000, lambda: Worker(app, slots=SLOTS).run(burst=True))

    def of_lanes() -> float:
        in_lane.enqueue_many((n % 1000, "welcome") for n in range(20_000))
        return rate(20_000, lambda: Worker(app, slots=SLOTS).run(burst=True))

    base, *figures = alternate(of_raw, of_plain, of_async, of_lane, of_lanes)
    table.row("raw sqlite3 loop, 10 at a time", base)
    for name, figure in zip(("plain", "async", "one hot lane", "1,000 lanes"), figures, strict=True):
        table.row(name, figure, figure / base)
    assert sum(app.inspect.counts().values()) == 0
    app.close()


def waiting(where: Path) -> None:
    """2,000 jobs that wait 50 ms, on 25 slots: 4 seconds is ideal."""
    table = Table("2,000 jobs of 50 ms on 25 slots, seconds (ideal 4.00)", "", "seconds", "of ideal")
    app = App(f"sqlite:///{where / 'jobs.db'}")

    @app.task
    def plain() -> None:
        time.sleep(0.05)

    @app.task
    async def on_loop() -> None:
        await asyncio.sleep(0.05)

    for name, task in (("plain", plain), ("async", on_loop)):

        def seconds(task: object = task) -> float:
            task.enqueue_many(() for _ in range(2_000))  # type: ignore[attr-defined]
            return 2_000 / rate(2_000, lambda: Worker(app, slots=25).run(burst=True))

        spent = alternate(seconds, rounds=3)[0]
        table.row(name, spent, spent / 4)
    app.close()


def _serve(path: Path, started: SimpleQueue[float]) -> None:
    app = App(f"sqlite:///{path}")

    @app.task(name="note")
    def note() -> None:
        started.put(time.time())

    @app.task(name="anote")
    async def anote() -> None:
        started.put(time.time())

    app.on_start(lambda: started.put(0.0))
    Worker(app).run()


def idle(where: Path) -> None:
    """From enqueue to start in an idle worker of another process; and how late a scheduled job starts."""
    table = Table("an idle worker in another process, milliseconds", "", "p50", "p99", "most")
    path = where / "jobs.db"
    context = multiprocessing.get_context("spawn")
    started = context.SimpleQueue()
    worker = context.Process(target=_serve, args=(path, started), daemon=True)
    worker.start()
    started.get()
    app = App(f"sqlite:///{path}")

    @app.task(name="note")
    def note() -> None: ...

    @app.task(name="anote")
    async def anote() -> None: ...

    for name, task in (("enqueue to start, plain", note), ("enqueue to start, async", anote)):
        spent: list[float] = []
        for _ in range(500):
            time.sleep(0.005)
            before = time.time()
            task.enqueue()
            spent.append((started.get() - before) * 1000)
        table.row(name, percentile(spent, 0.5), percentile(spent, 0.99), max(spent))
    late: list[float] = []
    for _ in range(200):
        due = time.time() + 0.03
        note.using(run_after=0.03).enqueue()
        late.append((started.get() - due) * 1000)
    table.row("a scheduled job, after it was due", percentile(late, 0.5), percentile(late, 0.99), max(late))
    worker.terminate()
    worker.join()
    app.close()


PARTS = {part.__name__: part for part in (noop, waiting, idle)}
