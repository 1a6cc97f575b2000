"""How fast the Redis store is, beside a raw redis-py loop in the same run, and Sidekiq where it is installed.

make bench ARGS="redis_push redis_exchange"
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import any_store
from any_store import BODY, each, jobs
from harness import Table, rate
from laneway import App
from laneway.clock import now_micros
from laneway.core.job import Job
from laneway.ids import new_id
from laneway.store.redis import RedisStore
from raw_redis import AOF, RawRedis, served
from sidekiq_peer import Sidekiq, compare


def redis_push(where: Path) -> None:
    """Enqueue one by one and in bulk."""
    with served(where) as server:
        raw, store, app = RawRedis(server), RedisStore(server.url), App(server.url)

        @app.task
        def send_email(user_id: int, template: str = "welcome") -> None: ...

        def pushed(size: int, number: int, push: Callable[[Any], object], make: Callable[[], object]) -> Callable[[], float]:
            def measure() -> float:
                portions = [[make() for _ in range(size)] for _ in range(number // size)]
                return rate(number, lambda: each(push, portions))

            return measure

        def of_raw() -> tuple[str, int, bytes]:
            return new_id(), now_micros(), BODY

        def of_store() -> Job:
            return jobs(1)[0]

        line = store.wire.dial()
        line.until = time.monotonic() + 3600

        def pinged(work: float) -> Callable[[], float]:
            """A round trip that does nothing, each after some work of our own, seconds: no enqueue can be faster."""

            def ping(_: object) -> None:
                until = time.perf_counter() + work
                while time.perf_counter() < until:
                    pass
                line.ask(("PING",))

            return lambda: rate(5_000, lambda: each(ping, range(5_000)))

        peer = Sidekiq(server, where)
        ones = {
            "raw redis-py, ZADD and HSET, one round trip": pushed(1, 5_000, raw.push, of_raw),
            "raw redis-py, LPUSH": lambda: rate(5_000, lambda: each(raw.lpush, [BODY] * 5_000)),
            "store.push": pushed(1, 5_000, store.push, of_store),
            "task.enqueue, checked and encoded": lambda: rate(
                5_000, lambda: [send_email.enqueue(n, "bye") for n in range(5_000)]
            ),
            "PING on the same wire": pinged(0),
            "PING on the same wire, 10 µs of work before each": pinged(0.00001),
            "Sidekiq perform_async": lambda: peer.push("one", 5_000),
        }
        bulks = {
            "raw redis-py": pushed(1000, 50_000, raw.push, of_raw),
            "store.push": pushed(1000, 50_000, store.push, of_store),
            "task.enqueue_many": lambda: rate(50_000, lambda: send_email.enqueue_many((n, "bye") for n in range(50_000))),
            "Sidekiq push_bulk": lambda: peer.push("bulk", 50_000),
        }
        for title, rows in (("one by one", ones), ("1,000 at a time", bulks)):
            compare(f"enqueue on Redis, {title}, jobs per second", rows)
        line.close()
        store.close()
        app.close()


def redis_exchange(where: Path) -> None:
    """Claim and settle in batches, without persistence, and with a log that is flushed every second."""
    with served(where) as server, served(where / "aof", *AOF) as keeping:
        table = Table("claim and settle on Redis, jobs per second", "", "raw", "laneway", "ratio")
        rows = [(server, limit, number, "") for limit, number in ((1, 3_000), (10, 20_000), (100, 50_000))]
        for host, limit, number, how in [*rows, (keeping, 10, 20_000, ", appendonly"), (keeping, 100, 50_000, ", appendonly")]:
            store = RedisStore(host.url)
            any_store.exchange(table, f"batches of {limit}{how}", RawRedis(host), store, limit, number)
            store.close()


def redis_lanes(where: Path) -> None:
    """One hot lane, and a long lane in front of others."""
    with served(where) as server, served(where / "parked") as other:
        plain, parked = RedisStore(server.url), RedisStore(other.url)
        any_store.lanes(" on Redis", plain, parked)
        plain.close()
        parked.close()


def redis_later(where: Path) -> None:
    """A million jobs for later, and a million ready ones."""
    with served(where / "a") as first, served(where / "b") as second, served(where / "c") as third:
        stores = [RedisStore(server.url) for server in (first, second, third)]
        any_store.backlog(" on Redis", *stores)
        for store in stores:
            store.close()


def redis_collect(where: Path) -> None:
    """A collector's payloads: push them, and claim and settle their lanes."""
    with contextlib.ExitStack() as stack:
        any_store.collect(" on Redis", lambda name: RedisStore(stack.enter_context(served(where / name)).url))


def redis_memory(where: Path) -> None:
    """What waits, in bytes of the server's memory."""
    table = Table("memory of the Redis server, bytes each, 100,000 of them", "", "bytes")
    number = 100_000

    def weigh(name: str, push: Callable[[App], object]) -> None:
        with served(where / name.replace(" ", "-")) as server:
            app = App(server.url)
            push(app)  # what is there once: scripts, keys
            app.store.exchange("w", [], [], 0)
            server.client.flushall()
            before = server.used()
            push(app)
            table.row(name, (server.used() - before) / number)
            app.close()

    def of_jobs(app: App, **options: Any) -> None:
        task = app.tasks.get("send_email") or app.task(name="send_email")(_send_email)
        task.using(**options).enqueue_many((n, "welcome") for n in range(number))

    def of_lanes(app: App, lanes: int) -> None:
        collector: Any = app.declared.get("sync") or app.collector(name="sync")(_sync)
        collector.enqueue_many((f"order-{n % lanes}", n) for n in range(number))

    weigh("a waiting job", of_jobs)
    weigh("a scheduled job", lambda app: of_jobs(app, run_after=3600))
    weigh("a waiting lane of one payload", lambda app: of_lanes(app, number))
    weigh("a payload of one in 1,000 lanes", lambda app: of_lanes(app, 1000))


def _send_email(user_id: int, template: str) -> None: ...


def _sync(lanes: dict[str, list[int]]) -> None: ...


PARTS = {
    part.__name__: part for part in (redis_push, redis_exchange, redis_lanes, redis_later, redis_collect, redis_memory)
}  # fmt: skip
