"""How fast the Redis store is, beside a raw redis-py loop in the same run, and Sidekiq where it is installed.

make bench ARGS="redis_push redis_exchange"
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Table, alternate, rate
from laneway import App
from laneway.instant import now_micros
from laneway.job import Claim, Gather, Job, lane_id, new_id
from laneway.outcome import Done, Each, Settled
from laneway.store.contract import Want
from laneway.store.redis import RedisStore
from raw_redis import AOF, RawRedis, served
from sidekiq_peer import Sidekiq, compare

BODY = b'[[42,"welcome"],{}]'
DONE = Done()
EVERYTHING = [Want("default", 1000)]


def jobs(number: int, lane: str | None = None, delay: int = 0) -> list[Job]:
    """Make jobs."""
    return [Job(new_id(), "app.send_email", "default", BODY, lane, 0, delay) for _ in range(number)]


def fill(store: RedisStore, number: int, lane: str | None = None, delay: int = 0) -> None:
    """Push many."""
    for _ in range(0, number, 1000):
        store.push(jobs(1000, lane, delay))


def drain(store: RedisStore, limit: int, most: int = 10**9) -> int:
    """Claim and settle until nothing is left; return how many."""
    claims: list[Claim] = []
    number = 0
    while number < most:
        claims = store.exchange("w", [Settled(claim, DONE, 1, 2) for claim in claims], EVERYTHING, limit).claims
        number += len(claims)
        if not claims:
            return number
    store.exchange("w", [Settled(claim, DONE, 1, 2) for claim in claims], [], 0)
    return number


def _each(act: Callable[[Any], object], items: list[Any]) -> None:
    for item in items:
        act(item)


def redis_push(where: Path) -> None:
    """Enqueue one by one and in bulk."""
    with served(where) as server:
        raw, store, app = RawRedis(server), RedisStore(server.url), App(server.url)

        @app.task
        def send_email(user_id: int, template: str = "welcome") -> None: ...

        def pushed(size: int, number: int, push: Callable[[Any], object], make: Callable[[], object]) -> Callable[[], float]:
            def measure() -> float:
                portions = [[make() for _ in range(size)] for _ in range(number // size)]
                return rate(number, lambda: _each(push, portions))

            return measure

        def of_raw() -> tuple[str, int, bytes]:
            return new_id(), now_micros(), BODY

        def of_store() -> Job:
            return jobs(1)[0]

        peer = Sidekiq(server, where)
        ones = {
            "raw redis-py, ZADD and HSET, one round trip": pushed(1, 5_000, raw.push, of_raw),
            "raw redis-py, LPUSH": lambda: rate(5_000, lambda: _each(raw.lpush, [BODY] * 5_000)),
            "store.push": pushed(1, 5_000, store.push, of_store),
            "task.enqueue, checked and encoded": lambda: rate(
                5_000, lambda: [send_email.enqueue(n, "bye") for n in range(5_000)]
            ),
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
        store.close()
        app.close()


def redis_exchange(where: Path) -> None:
    """Claim and settle in batches, without persistence, and with a log that is flushed every second."""
    with served(where) as server, served(where / "aof", *AOF) as keeping:
        table = Table("claim and settle on Redis, jobs per second", "", "raw", "laneway", "ratio")
        rows = [(server, limit, number, "") for limit, number in ((1, 3_000), (10, 20_000), (100, 50_000))]
        for host, limit, number, how in [*rows, (keeping, 10, 20_000, ", appendonly"), (keeping, 100, 50_000, ", appendonly")]:
            raw, store = RawRedis(host), RedisStore(host.url)

            def by_raw(limit: int = limit, number: int = number, raw: RawRedis = raw) -> float:
                for _ in range(0, number, 1000):
                    raw.push([(new_id(), now_micros(), BODY) for _ in range(1000)])
                return rate(number, lambda: raw.drain(limit, now_micros()))

            def by_store(limit: int = limit, number: int = number, store: RedisStore = store) -> float:
                fill(store, number)
                return rate(number, lambda: drain(store, limit))

            theirs, ours = alternate(by_raw, by_store)
            table.row(f"batches of {limit}{how}", theirs, ours, ours / theirs)
            store.close()


def redis_lanes(where: Path) -> None:
    """One hot lane, and a long lane in front of others."""
    with served(where) as server, served(where / "parked") as other:
        table = Table("lanes on Redis, jobs per second", "", "laneway", "ratio")
        plain, parked = RedisStore(server.url), RedisStore(other.url)

        def hot() -> float:
            fill(plain, 5_000, lane="hot")
            return rate(5_000, lambda: drain(plain, 10))

        table.row("one hot lane", alternate(hot)[0])
        fill(parked, 100_000, lane="long")
        held = parked.exchange("holder", [], EVERYTHING, 1).claims
        spent = rate(100_000, lambda: [parked.exchange("w", [], EVERYTHING, 1) for _ in range(100)])
        table.row("parking 100,000 jobs of a held lane, once", spent)

        def alone() -> float:
            fill(plain, 20_000)
            return rate(20_000, lambda: drain(plain, 100))

        def behind() -> float:
            fill(parked, 20_000)
            return rate(20_000, lambda: drain(parked, 100))

        free, blocked = alternate(alone, behind)
        table.row("others, nothing in front", free)
        table.row("others, 100,000 parked in front", blocked, blocked / free)
        assert len(held) == 1
        plain.close()
        parked.close()


def redis_later(where: Path) -> None:
    """A million jobs for later, and a million ready ones."""
    with served(where / "a") as first, served(where / "b") as second, served(where / "c") as third:
        table = Table("backlog on Redis, jobs per second in batches of 100", "", "laneway", "ratio")
        small, scheduled, ready = (RedisStore(server.url) for server in (first, second, third))
        fill(scheduled, 1_000_000, delay=3600 * 1_000_000)
        fill(ready, 1_000_000)

        def of_small() -> float:
            fill(small, 10_000)
            return rate(10_000, lambda: drain(small, 100, most=10_000))

        def of_scheduled() -> float:
            fill(scheduled, 10_000)
            return rate(10_000, lambda: drain(scheduled, 100, most=10_000))

        def of_ready() -> float:
            return rate(10_000, lambda: drain(ready, 100, most=10_000))

        base, with_later, with_ready = alternate(of_small, of_scheduled, of_ready)
        table.row("10,000 ready", base)
        table.row("10,000 ready, 1,000,000 for later", with_later, with_later / base)
        table.row("1,000,000 ready", with_ready, with_ready / base)
        for each in (small, scheduled, ready):
            each.close()


def payloads(number: int, lanes: int, delay: int = 0, first: int = 0) -> list[Job]:
    """Make payloads, in turn for each of some lanes."""
    names = [f"order-{first + n}" for n in range(lanes)]
    ids = [lane_id("orders", name) for name in names]
    return [
        Job(ids[n % lanes], "app.sync", "orders", b'{"id":%d}' % n, names[n % lanes], 0, delay, gather=Gather())
        for n in range(number)
    ]


def collect_all(store: RedisStore, most: int) -> int:
    """Claim and settle runs of up to so many lanes until nothing is left; return how many payloads that was."""
    claims: list[Claim] = []
    number = 0
    want = [Want("orders", 100, most)]
    while True:
        settled = [Settled(claim, Each((DONE,) * len(claim.lanes)), 1, 2) for claim in claims]
        claims = store.exchange("w", settled, want, 100).claims
        if not claims:
            return number
        number += sum(len(lane.payloads) for claim in claims for lane in claim.lanes)


def redis_collect(where: Path) -> None:
    """A collector's payloads: push them, and claim and settle their lanes, in batches of 100 runs."""
    with served(where) as server:
        table = Table("collectors on Redis, payloads per second through the store", "", "push", "exchange")
        number = 20_000
        store = RedisStore(server.url)
        for name, lanes, most in (
            ("20,000 lanes of one, 1 in a run", number, 1), ("20,000 lanes of one, 10 in a run", number, 10),
            ("1,000 lanes of twenty, 10 in a run", 1_000, 10), ("one lane of 20,000", 1, 1),
        ):  # fmt: skip
            portions = [payloads(number, lanes)[start : start + 1000] for start in range(0, number, 1000)]

            def push(portions: list[list[Job]] = portions) -> float:
                return rate(number, lambda: _each(store.push, portions))

            def exchange(most: int = most) -> float:
                return rate(number, lambda: collect_all(store, most))

            table.row(name, *alternate(push, exchange))
        store.close()


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
