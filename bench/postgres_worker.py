"""How fast PostgreSQL is as a store, beside a raw loop in the same run, and pgqueuer and Procrastinate where they are installed.

make bench ARGS="postgres_noop postgres_push postgres_idle"

MINUTES: how long `postgres_held` loads each of its two sides. JOBS: how many `postgres_sizes` runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

import any_store
from any_store import MANY, Noops, each, jobs, raw_drained, rows
from harness import Table, compare, judge, rate
from laneway import App, Worker
from laneway.desk.task import Task
from laneway.store.postgres import PostgresStore
from postgres_peers import PgQueuer, Procrastinate, peers_missing
from raw_postgres import Pooler, RawPostgres, Server, pooler_missing, served

ON = " on PostgreSQL"
HOT = 3_000
SINGLE = 2_000
#: For what runs some hundred in a second.
FEW = 1_000
BULK = 50_000


def _tidy(server: Server) -> Callable[[], object]:
    """Return what is done before time is taken: dead rows of the round before are nobody's fault."""
    return lambda: server.ask("vacuum analyze")


@contextlib.contextmanager
def _peers(server: Server) -> Iterator[list[Any]]:
    """Give the peers that are installed."""
    if lacking := peers_missing():
        print(f"    {lacking}")
    peers = [] if lacking else [PgQueuer(server), Procrastinate(server)]
    yield peers
    for peer in peers:
        peer.close()


def postgres_noop(_: Path) -> None:
    """Jobs that do nothing, through 10 slots. A raw loop has the same durability: "durable" is with synchronous commits."""
    with served() as server, _peers(server) as peers:
        tidy = _tidy(server)
        raw, durable = RawPostgres(server, durable=False), RawPostgres(server, durable=True)
        ours, kept = Noops(server.url, tidy), Noops(f"{server.url}?schema=kept&synchronous=on", tidy)
        beside = Noops(f"{server.url}?schema=beside", tidy, queues=4)
        figures = compare(
            "no-op jobs on PostgreSQL through one worker with 10 slots",
            {
                "raw, 100 at a time": lambda: raw_drained(raw, MANY, 100, tidy),
                "raw, 10 at a time": lambda: raw_drained(raw, MANY, 10, tidy),
                "raw, 100 at a time, durable": lambda: raw_drained(durable, MANY, 100, tidy),
                "raw, 1 at a time, durable": lambda: raw_drained(durable, HOT, 1, tidy),
                "plain": ours.of(ours.plain),
                "plain, durable": kept.of(kept.plain),
                "async": ours.of(ours.on_loop),
                "one hot lane": ours.of(ours.in_lane, lanes=1, number=HOT),
                "one hot lane, a worker of four queues": beside.of(beside.in_lane, lanes=1, number=HOT),
                "1,000 lanes": ours.of(ours.in_lane, lanes=1_000),
                **{peer.name: functools.partial(peer.work, MANY if peer.package == "pgqueuer" else FEW) for peer in peers},
            },
            {"of raw 100": "raw, 100 at a time", **{f"of {peer.package}": peer.name for peer in peers}},
        )
        plain = figures["plain"]
        judge("plain, of the raw loop", plain / figures["raw, 100 at a time"], least=0.4)
        for peer, bar in zip(peers, (2, 50), strict=False):
            judge(f"plain, times {peer.name}", plain / figures[peer.name], least=bar)
        single = figures["raw, 1 at a time, durable"]
        judge("one hot lane, of the durable raw loop of one", figures["one hot lane"] / single, least=0.6)
        ours.close()
        kept.close()
        beside.close()


def postgres_push(_: Path) -> None:
    """Enqueue one by one and in bulk, with synchronous commits."""
    with served() as server, _peers(server) as peers:
        raw, store, app = RawPostgres(server, durable=True), PostgresStore(server.url), App(server.url)

        @app.task
        def send_email(user_id: int, template: str = "welcome") -> None: ...

        def portions(
            number: int, size: int, push: Callable[[Any], object], make: Callable[[int], list[Any]]
        ) -> Callable[[], float]:
            def measure() -> float:
                made = [make(size) for _ in range(number // size)]
                return rate(number, lambda: each(push, made))

            return measure

        one_by_one = compare(
            "enqueue on PostgreSQL, one by one",
            {
                "raw insert": portions(SINGLE, 1, raw.push, rows),
                "store.push": portions(SINGLE, 1, store.push, jobs),
                "task.enqueue": lambda: rate(SINGLE, lambda: each(send_email.enqueue, range(SINGLE))),
                **{peer.name: functools.partial(peer.timed, SINGLE // 2, peer.one_by_one) for peer in peers},
            },
            {"of raw": "raw insert", **{f"of {peer.package}": peer.name for peer in peers}},
        )
        judge("task.enqueue, of a raw insert", one_by_one["task.enqueue"] / one_by_one["raw insert"], least=0.7)
        bulk = compare(
            "enqueue on PostgreSQL, 1,000 at a time",
            {
                "raw insert from arrays": portions(BULK, 1000, raw.push, rows),
                "store.push": portions(BULK, 1000, store.push, jobs),
                "task.enqueue_many": lambda: rate(BULK, lambda: send_email.enqueue_many((n, "bye") for n in range(BULK))),
                **{peer.name: functools.partial(peer.timed, BULK // 5, peer.bulk) for peer in peers},
            },
            {"of raw": "raw insert from arrays", **{f"of {peer.package}": peer.name for peer in peers}},
        )
        for peer in peers[:1]:
            judge(f"task.enqueue_many, times {peer.name}", bulk["task.enqueue_many"] / bulk[peer.name], least=1.5)
        store.close()
        app.close()


def postgres_exchange(_: Path) -> None:
    """Claim and settle in batches, and without waiting for the disk."""
    with served() as server:
        table = Table("claim and settle on PostgreSQL, jobs per second", "", "raw", "laneway", "ratio")
        for durable in (False, True):
            raw = RawPostgres(server, durable=durable)
            store = PostgresStore(server.url, schema=f"durable_{durable}".lower(), durable=durable)
            for limit, number in ((1, 3_000), (10, 20_000), (100, 50_000)):
                name = f"batches of {limit}{', durable' if durable else ''}"
                any_store.exchange(table, name, raw, store, limit, number, _tidy(server))
            store.close()


def postgres_lanes(_: Path) -> None:
    """One hot lane, and a long lane in front of others."""
    with served() as server, served() as other:
        plain, parked = PostgresStore(server.url), PostgresStore(other.url)
        any_store.lanes(ON, plain, parked)
        plain.close()
        parked.close()


def postgres_queues(_: Path) -> None:
    """No-op jobs in one queue, and as many in fifty."""
    with served() as first, served() as second:
        any_store.queues(ON, first.url, second.url)


def postgres_waiting(_: Path) -> None:
    """2,000 jobs that wait 50 ms, on 25 slots."""
    with served() as server:
        any_store.waiting(ON, server.url)


def postgres_collectors(_: Path) -> None:
    """No-op runs of collectors through 5 slots."""
    with served() as first, served() as second:
        any_store.collectors(ON, f"{first.url}?timeout=60", f"{second.url}?timeout=60")


def postgres_idle(_: Path) -> None:
    """From enqueue to start in an idle worker of another process, and the same behind PgBouncer in transaction mode."""
    with served() as server:
        judge("p50, milliseconds", any_store.idle(ON, server.url)[0], most=2)
        if lacking := pooler_missing():
            print(f"    {lacking}")
            return
        pooler = Pooler(server)
        try:
            often, _on_loop, after_two, after_six = any_store.idle(
                " behind PgBouncer", f"{pooler.url}?prepare=off", {2.0: 20, 6.0: 10}
            )
            judge("p50 behind PgBouncer within a second of work, milliseconds", often, most=6)
            judge("p50 two seconds after work, milliseconds", after_two, most=250)
            judge("p50 six seconds after work, milliseconds", after_six, most=250)
        finally:
            pooler.remove()


class Sustained:
    """A worker that goes on, on a server of its own, and portions of jobs for it."""

    def __init__(self, server: Server) -> None:
        self.noops = Noops(server.url)
        self._worker = Worker(self.noops.app, slots=10)
        self._thread = threading.Thread(target=self._worker.run, daemon=True)
        self._thread.start()

    def of(self, task: Task[[int, str], Any, None], lanes: int, number: int) -> Callable[[], float]:
        """Return what enqueues a portion into a queue that is paused, and then says how fast the worker runs it."""

        def measure() -> float:
            look = self.noops.app.inspect
            look.pause("default")
            task.enqueue_many((n % lanes, "welcome") for n in range(number))
            begun = time.perf_counter()
            look.resume("default")
            while any(look.counts().values()):
                time.sleep(0.02)
            return number / (time.perf_counter() - begun)

        return measure

    def close(self) -> None:
        """Let the worker end."""
        self._worker.stop()
        self._thread.join()
        self.noops.close()


def postgres_held(_: Path) -> None:
    """Full load beside a transaction that stays open for minutes, and without it: both take turns, each on its server."""
    minutes = float(os.environ.get("MINUTES", "1"))
    with served() as free, served() as held:
        sides = [Sustained(free), Sustained(held)]
        work = {
            "jobs without a lane": [side.of(side.noops.plain, MANY, 2 * MANY) for side in sides],
            "1,000 lanes": [side.of(side.noops.in_lane, 1_000, 2 * MANY) for side in sides],
            "one hot lane": [side.of(side.noops.in_lane, 1, HOT) for side in sides],
        }
        for measure in work["jobs without a lane"]:
            measure()  # the workers have met short jobs
        figures: dict[str, list[list[float]]] = {kind: [[], []] for kind in work}
        with psycopg.connect(held.url) as holder:
            holder.execute("set transaction isolation level repeatable read")
            holder.execute("select pg_current_xact_id()")
            until = time.monotonic() + 2 * 60 * minutes
            for kind in itertools.cycle(work):
                if figures[kind][1] and time.monotonic() > until:
                    break
                for figure, measure in zip(figures[kind], work[kind], strict=True):
                    figure.append(measure())
        title = (
            f"full load on PostgreSQL for {minutes:g} minutes while a transaction is held open, jobs per second, ratio to without"
        )
        table = Table(title, "", "first third", "ratio", "last third", "ratio")
        for kind, (alone, beside) in figures.items():
            third = -(-len(alone) // 3)
            first, last = (
                [statistics.median(side[part]) for side in (alone, beside)] for part in (slice(third), slice(-third, None))
            )
            table.row(kind, first[1], first[1] / first[0], last[1], last[1] / last[0])
            judge(f"{kind}, the last third, of the speed without", last[1] / last[0], least=0.7)
        for side in sides:
            side.close()


SIZES = """
select relname, pg_total_relation_size(relid), pg_indexes_size(relid), autovacuum_count
from pg_stat_user_tables where schemaname = 'laneway' order by 2 desc"""


def postgres_sizes(_: Path) -> None:
    """Tables and indexes while many jobs pass through, half of them in lanes, with autovacuum as it comes."""
    total, portions, megabyte = int(os.environ.get("JOBS", "200000")), 10, 2**20
    with served() as server:
        ours = Noops(server.url)
        table = Table(f"{total:,} jobs through one store on PostgreSQL, MB", "", "all", "indexes", "vacuums", "jobs/s")
        sizes: list[float] = []
        for portion in range(1, portions + 1):
            begun, left = time.perf_counter(), total // portions
            while left > 0:
                for task, lanes in ((ours.plain, MANY), (ours.in_lane, 1_000)):
                    ours.of(task, lanes, min(left // 2, MANY) or 1)()
                left -= 2 * MANY
            pace = total / portions / (time.perf_counter() - begun)
            found = server.ask(SIZES)
            sizes.append(sum(size for _, size, _, _ in found) / megabyte)
            indexes, vacuums = (sum(row[column] for row in found) for column in (2, 3))
            table.row(f"after {total // portions * portion:,}", sizes[-1], indexes / megabyte, vacuums, pace)
        for name, size, of_indexes, count in found[:4]:
            table.row(f"  {name}", size / megabyte, of_indexes / megabyte, count, "")
        judge("at the end, of the most in the first half", sizes[-1] / max(sizes[: portions // 2]), most=1.2)
        ours.close()


PARTS = {
    part.__name__: part
    for part in (
        postgres_noop, postgres_push, postgres_exchange, postgres_lanes, postgres_queues, postgres_waiting, postgres_collectors,
        postgres_idle, postgres_held, postgres_sizes,
    )
}  # fmt: skip
