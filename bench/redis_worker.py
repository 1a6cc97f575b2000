"""How fast one worker on Redis is, beside a raw redis-py loop in the same run, and Sidekiq where it is installed.

make bench ARGS="redis_noop redis_idle"
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import any_store
from any_store import BODY, COMMAND, drained
from harness import Table, alternate, rate
from laneway import App
from laneway.clock import now_micros
from laneway.desk.task import Task
from laneway.ids import new_id
from raw_redis import AOF, RawRedis, served
from sidekiq_peer import Sidekiq, compare, tuned

SLOTS = 10
MANY = 20_000
QUEUES = 50
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
                "Sidekiq, concurrency 10, with its log": lambda: peer.work(MANY, SLOTS, {}),
                "Sidekiq, concurrency 10, at its best": lambda: peer.work(MANY, SLOTS, tuned()),
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
    """2,000 jobs that wait 50 ms, on 25 slots."""
    with served(where) as server:
        any_store.waiting(" on Redis", server.url)


def redis_idle(where: Path) -> None:
    """From enqueue to start in an idle worker of another process; and how late a scheduled job starts."""
    with served(where) as server:
        any_store.idle(" on Redis", server.url)


def redis_collectors(where: Path) -> None:
    """No-op runs of collectors through 5 slots."""
    with served(where / "alone") as first, served(where / "beside") as second:
        any_store.collectors(" on Redis", first.url, second.url)


def redis_fleet(where: Path) -> None:
    """What `laneway worker` costs on Redis: its start, its memory, and what it does when there is nothing to do."""
    with served(where) as server:
        (where / "app.py").write_text(PROGRAM.format(url=server.url))
        app = App(server.url)
        any_store.first_job(" on Redis", app, where)
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
