"""How fast one worker on Redis is, beside a raw redis-py loop in the same run, and Sidekiq where it is installed.

make bench ARGS="redis_noop redis_idle"
"""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import psutil

from harness import Table, alternate, percentile, rate
from laneway import App, Worker
from laneway.collector import Collector
from laneway.instant import now_micros
from laneway.job import new_id
from laneway.task import Task
from raw_redis import AOF, RawRedis, served
from sidekiq_peer import Sidekiq, compare

BODY = b'[[42,"welcome"],{}]'
SLOTS = 10
MANY = 20_000
QUEUES = 50
COMMAND = [sys.executable, "-m", "laneway", "worker"]
PROGRAM = """
import time
from laneway import App
app = App({url!r})

@app.task
def first() -> None:
    with open("ran", "a") as file:
        file.write(f"{{time.time()}}\\n")

@app.task
def plain() -> None: ...
"""


def drained(app: App, number: int = MANY, slots: int = SLOTS) -> float:
    """Let a worker run all that waits; return how many per second."""
    return rate(number, lambda: Worker(app, slots=slots).run(burst=True))


def redis_noop(where: Path) -> None:
    """Jobs that do nothing, through 10 slots; the raw loop claims and settles 10 or 100 at a time."""
    with served(where) as server, served(where / "aof", *AOF) as keeping:
        raw, app, kept = RawRedis(server), App(server.url), App(keeping.url)

        @app.task(name="plain")
        def plain(number: int, text: str) -> None: ...

        @kept.task(name="plain")
        def kept_plain(number: int, text: str) -> None: ...

        @app.task
        async def on_loop(number: int, text: str) -> None: ...

        @app.task(lane="lane")
        def in_lane(lane: int, text: str) -> None: ...

        def of_raw(limit: int) -> float:
            for _ in range(0, MANY, 1000):
                raw.push([(new_id(), now_micros(), BODY) for _ in range(1000)])
            return rate(MANY, lambda: raw.drain(limit, now_micros()))

        def of(app: App, task: Task[[int, str], Any, None], lanes: int = MANY, number: int = MANY) -> Callable[[], float]:
            def measure() -> float:
                task.enqueue_many((n % lanes, "welcome") for n in range(number))
                return drained(app, number)

            return measure

        peer = Sidekiq(server, where)
        compare(
            "no-op jobs on Redis through one worker with 10 slots, per second",
            {
                "raw redis-py loop, 10 at a time": lambda: of_raw(10),
                "raw redis-py loop, 100 at a time": lambda: of_raw(100),
                "plain": of(app, plain),
                "plain, appendonly everysec": of(kept, kept_plain),
                "async": of(app, on_loop),
                "one hot lane": of(app, in_lane, lanes=1, number=5_000),
                "1,000 lanes": of(app, in_lane, lanes=1_000),
                "Sidekiq, concurrency 10, as it comes": lambda: peer.work(MANY, SLOTS, quiet=False),
                "Sidekiq, concurrency 10, without its log": lambda: peer.work(MANY, SLOTS, quiet=True),
            },
        )
        assert sum(app.inspect.counts().values()) == 0
        app.close()
        kept.close()


def redis_queues(where: Path) -> None:
    """The same number of no-op jobs in one queue, and in fifty."""
    with served(where / "one") as first, served(where / "many") as second:
        alone, apart = App(first.url), App(second.url)

        def one(number: int) -> None: ...

        single = alone.task(name="one")(one)
        many = [apart.task(name=f"task-{n}", queue=f"queue-{n}")(one) for n in range(QUEUES)]

        def in_one() -> float:
            single.enqueue_many((n,) for n in range(MANY))
            return drained(alone)

        def in_many() -> float:
            for task in many:
                task.enqueue_many((n,) for n in range(MANY // QUEUES))
            return drained(apart)

        base, figure = alternate(in_one, in_many)
        table = Table("no-op jobs on Redis over queues, per second", "", "jobs/s", "ratio")
        table.row("one queue", base)
        table.row(f"{QUEUES} queues", figure, figure / base)
        alone.close()
        apart.close()


def redis_waiting(where: Path) -> None:
    """2,000 jobs that wait 50 ms, on 25 slots: 4 seconds is ideal."""
    with served(where) as server:
        table = Table("2,000 jobs of 50 ms on 25 slots on Redis, seconds (ideal 4.00)", "", "seconds", "of ideal")
        app = App(server.url)

        @app.task
        def plain() -> None:
            time.sleep(0.05)

        @app.task
        async def on_loop() -> None:
            await asyncio.sleep(0.05)

        for name, task in (("plain", plain), ("async", on_loop)):

            def seconds(task: object = task) -> float:
                task.enqueue_many(() for _ in range(2_000))  # type: ignore[attr-defined]
                return 2_000 / drained(app, 2_000, slots=25)

            spent = alternate(seconds, rounds=3)[0]
            table.row(name, spent, spent / 4)
        app.close()


def _serve(url: str, started: SimpleQueue[float]) -> None:
    app = App(url)

    @app.task(name="note")
    def note() -> None:
        started.put(time.time())

    @app.task(name="anote")
    async def anote() -> None:
        started.put(time.time())

    app.on_start(lambda: started.put(0.0))
    Worker(app).run()


def redis_idle(where: Path) -> None:
    """From enqueue to start in an idle worker of another process; and how late a scheduled job starts."""
    with served(where) as server:
        table = Table("an idle worker on Redis in another process, milliseconds", "", "p50", "p99", "most")
        context = multiprocessing.get_context("spawn")
        started = context.SimpleQueue()
        worker = context.Process(target=_serve, args=(server.url, started), daemon=True)
        worker.start()
        started.get()
        app = App(server.url)

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


def redis_collectors(where: Path) -> None:
    """No-op runs of collectors through 5 slots, alone and beside lanes that wait for later."""
    with served(where / "alone") as first, served(where / "beside") as second:
        alone, beside = _Collectors(first.url), _Collectors(second.url)
        beside.ten.using(run_after=3600).enqueue_many((f"later-{number}", number) for number in range(100_000))
        rows = [
            ("20,000 lanes of one payload, max_lanes=1", alone.work(alone.one, MANY), 1),
            ("20,000 lanes of one payload, max_lanes=10", alone.work(alone.ten, MANY), 1),
            ("the same beside 100,000 lanes that wait", beside.work(beside.ten, MANY), 1),
            ("20,000 payloads over 1,000 lanes, max_lanes=10", alone.work(alone.ten, 1000), MANY // 1000),
            ("20,000 payloads in one lane", alone.work(alone.one, 1), MANY),
        ]
        figures = alternate(*(work for _, work, _ in rows))
        table = Table("collectors on Redis through one worker with 5 slots, per second", "", "lanes/s", "payloads/s")
        for (name, _, gathered), figure in zip(rows, figures, strict=True):
            table.row(name, figure / gathered, figure)
        print(f"    beside 100,000 waiting lanes: {figures[2] / figures[1]:.2f} of what it is without them")
        assert sum(alone.app.inspect.counts().values()) == 0
        assert beside.app.inspect.counts()["scheduled"] == 100_000
        for bench in (alone, beside):
            bench.app.close()


class _Collectors:
    """A store and two collectors that do nothing."""

    def __init__(self, url: str) -> None:
        self.app = App(url)

        @self.app.collector(name="one", max_lanes=1)
        def one(lanes: dict[str, list[int]]) -> None: ...

        @self.app.collector(name="ten", max_lanes=10)
        def ten(lanes: dict[str, list[int]]) -> None: ...

        self.one, self.ten = one, ten

    def work(self, collector: Collector[int, None], lanes: int) -> Callable[[], float]:
        """Enqueue many payloads over some lanes, and return how fast they run."""

        def measure() -> float:
            collector.enqueue_many((f"order-{number % lanes}", number) for number in range(MANY))
            return drained(self.app, slots=5)

        return measure


def redis_fleet(where: Path) -> None:
    """What `laneway worker` costs on Redis: its start, its memory, and what it does when there is nothing to do."""
    with served(where) as server:
        (where / "app.py").write_text(PROGRAM.format(url=server.url))
        app = App(server.url)
        took: list[float] = []
        for _ in range(10):
            app.enqueue("app.first")
            began = time.time()
            subprocess.run([*COMMAND, "--burst"], cwd=where, stderr=subprocess.DEVNULL, check=True)
            took.append(float((where / "ran").read_text().split()[-1]) - began)
        table = Table("from exec to the first job on Redis, milliseconds", "", "p50", "most")
        table.row("laneway worker", percentile(took, 0.5) * 1000, max(took) * 1000)
        for _ in range(2000):
            app.enqueue("app.plain")
        fleet = subprocess.Popen(COMMAND, cwd=where, stderr=subprocess.DEVNULL)
        try:
            while sum(app.inspect.counts().values()):
                time.sleep(0.05)
            time.sleep(1.0)
            supervisor = psutil.Process(fleet.pid)
            everyone = [supervisor, *supervisor.children(recursive=True)]
            worker = next(process for process in everyone[1:] if "worker" in process.cmdline()[0])
            before = [_spent(worker), sum(map(_spent, everyone)), _spent(psutil.Process(server.process.pid))]
            time.sleep(10.0)
            after = [_spent(worker), sum(map(_spent, everyone)), _spent(psutil.Process(server.process.pid))]
            shares = [(end - start) * 10 for start, end in zip(before, after, strict=True)]
            table = Table("an idle fleet of one worker on Redis", "", "RSS MiB", "PSS MiB", "CPU %")
            memory = [process.memory_full_info() for process in everyone]
            table.row("the worker", worker.memory_info().rss / 2**20, worker.memory_full_info().pss / 2**20, shares[0])
            table.row("the whole fleet", "", sum(each.pss for each in memory) / 2**20, shares[1])
            table.row("the server, for it", "", "", shares[2])
        finally:
            fleet.terminate()
            fleet.wait()
        app.close()


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


PARTS = {
    part.__name__: part
    for part in (redis_noop, redis_queues, redis_waiting, redis_idle, redis_collectors, redis_fleet)
}  # fmt: skip
