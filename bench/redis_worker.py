"""How fast one worker on Redis is, beside a raw redis-py loop in the same run, and Sidekiq where it is installed.

make bench ARGS="redis_noop redis_idle"
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil

import any_store
from any_store import COMMAND, Noops, raw_drained
from harness import Table
from laneway import App
from raw_redis import AOF, RawRedis, served
from sidekiq_peer import Sidekiq, compare, tuned

SLOTS = 10
MANY = 20_000
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
        raw, ours, kept = RawRedis(server), Noops(server.url), Noops(keeping.url)
        peer = Sidekiq(server, where)
        compare(
            "no-op jobs on Redis through one worker with 10 slots, per second",
            {
                "raw redis-py loop, 10 at a time": lambda: raw_drained(raw, MANY, 10),
                "raw redis-py loop, 100 at a time": lambda: raw_drained(raw, MANY, 100),
                "plain": ours.of(ours.plain),
                "plain, appendonly everysec": kept.of(kept.plain),
                "async": ours.of(ours.on_loop),
                "one hot lane": ours.of(ours.in_lane, lanes=1, number=5_000),
                "1,000 lanes": ours.of(ours.in_lane, lanes=1_000),
                "Sidekiq, concurrency 10, with its log": lambda: peer.work(MANY, SLOTS, {}),
                "Sidekiq, concurrency 10, at its best": lambda: peer.work(MANY, SLOTS, tuned()),
            },
        )
        ours.close()
        kept.close()


def redis_queues(where: Path) -> None:
    """No-op jobs in one queue, and as many in fifty."""
    with served(where / "one") as first, served(where / "many") as second:
        any_store.queues(" on Redis", first.url, second.url)


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
