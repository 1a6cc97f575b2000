"""How fast the SQLite store is, beside a raw sqlite3 loop in the same run. `make bench ARGS="push lanes"` picks parts."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from harness import ROUNDS, Table, alternate, percentile, rate
from laneway import App
from laneway.instant import now_micros
from laneway.job import Claim, Gather, Job, lane_id, new_id
from laneway.outcome import Done, Each, Settled
from laneway.store.contract import Want
from laneway.store.sqlite import SQLiteStore
from raw import Raw

BODY = b'[[42,"welcome"],{}]'
DONE = Done()
EVERYTHING = [Want("default", 1000)]


def jobs(number: int, lane: str | None = None, delay: int = 0) -> list[Job]:
    """Make jobs."""
    return [Job(new_id(), "app.send_email", "default", BODY, lane, 0, delay) for _ in range(number)]


def fill(store: SQLiteStore, number: int, lane: str | None = None, delay: int = 0) -> None:
    """Push many."""
    for _ in range(0, number, 1000):
        store.push(jobs(1000, lane, delay))


def drain(store: SQLiteStore, limit: int, most: int = 10**9) -> int:
    """Claim and settle until nothing is left; return how many."""
    claims: list[Claim] = []
    number = 0
    while number < most:
        claims = store.exchange("w", [Settled(claim, DONE, 1, 2) for claim in claims], EVERYTHING, limit).claims
        number += len(claims)
        if not claims:
            break
    return number


def _each(act: Callable[[Any], object], items: list[Any]) -> None:
    for item in items:
        act(item)


def push(where: Path) -> None:
    """Enqueue one by one and in bulk."""
    table = Table("push, jobs per second", "", "raw", "laneway", "ratio")
    raw, store = Raw(where / "raw.db"), SQLiteStore(where / "jobs.db")
    for size, number in ((1, 5_000), (1000, 100_000)):

        def by_raw(size: int = size, number: int = number) -> float:
            portions = [[(new_id(), now_micros(), BODY) for _ in range(size)] for _ in range(number // size)]
            return rate(number, lambda: _each(raw.push, portions))

        def by_store(size: int = size, number: int = number) -> float:
            portions = [jobs(size) for _ in range(number // size)]
            return rate(number, lambda: _each(store.push, portions))

        theirs, ours = alternate(by_raw, by_store)
        table.row("store.push, one by one" if size == 1 else f"store.push, {size} at a time", theirs, ours, ours / theirs)
    app = App(f"sqlite:///{where / 'app.db'}")

    @app.task
    def send_email(user_id: int, template: str = "welcome") -> None: ...

    def one_by_one() -> float:
        return rate(5_000, lambda: [send_email.enqueue(n, "bye") for n in range(5_000)])

    def in_bulk() -> float:
        return rate(50_000, lambda: send_email.enqueue_many((n, "bye") for n in range(50_000)))

    single, bulk = alternate(one_by_one, in_bulk)
    table.row("task.enqueue, checked and encoded", "", single)
    table.row("task.enqueue_many", "", bulk)
    store.close()
    app.close()


def exchange(where: Path) -> None:
    """Claim and settle in batches."""
    table = Table("claim and settle, jobs per second", "", "raw", "laneway", "ratio")
    for limit, number in ((1, 5_000), (10, 30_000), (100, 50_000)):
        raw, store = Raw(where / f"raw{limit}.db"), SQLiteStore(where / f"jobs{limit}.db")

        def by_raw(limit: int = limit, number: int = number, raw: Raw = raw) -> float:
            raw.push([(new_id(), now_micros(), BODY) for _ in range(number)])
            return rate(number, lambda: raw.drain(limit, now_micros()))

        def by_store(limit: int = limit, number: int = number, store: SQLiteStore = store) -> float:
            fill(store, number)
            return rate(number, lambda: drain(store, limit))

        theirs, ours = alternate(by_raw, by_store)
        table.row(f"batches of {limit}", theirs, ours, ours / theirs)
        store.close()


def lanes(where: Path) -> None:
    """One hot lane, and a long lane in front of others."""
    table = Table("lanes, jobs per second", "", "laneway", "ratio")
    store = SQLiteStore(where / "hot.db")

    def hot() -> float:
        fill(store, 5_000, lane="hot")
        return rate(5_000, lambda: drain(store, 10))

    table.row("one hot lane", alternate(hot)[0])
    plain, parked = SQLiteStore(where / "plain.db"), SQLiteStore(where / "parked.db")
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
    for each in (store, plain, parked):
        each.close()


def later(where: Path) -> None:
    """A million jobs for later, and a million ready ones."""
    table = Table("backlog, jobs per second in batches of 100", "", "laneway", "ratio")
    small, scheduled, ready = (SQLiteStore(where / f"{name}.db") for name in ("small", "scheduled", "ready"))
    fill(scheduled, 1_000_000, delay=3600 * 1_000_000)
    fill(ready, 1_000_000)

    def of_small() -> float:
        fill(small, 10_000)
        return rate(10_000, lambda: drain(small, 100))

    def of_scheduled() -> float:
        fill(scheduled, 10_000)
        return rate(10_000, lambda: drain(scheduled, 100))

    def of_ready() -> float:
        return rate(10_000, lambda: drain(ready, 100, most=10_000))

    base, with_later, with_ready = alternate(of_small, of_scheduled, of_ready)
    table.row("10,000 ready", base)
    table.row("10,000 ready, 1,000,000 for later", with_later, with_later / base)
    table.row("1,000,000 ready", with_ready, with_ready / base)
    for each in (small, scheduled, ready):
        each.close()


def _hot_exchanger(path: Path, stop: Event, counted: Callable[[int], None]) -> None:
    store = SQLiteStore(path)
    claims: list[Claim] = []
    number = 0
    while not stop.is_set():
        claims = store.exchange(str(id(store)), [Settled(c, DONE, 1, 2) for c in claims], EVERYTHING, 100).claims
        number += len(claims)
    store.close()
    counted(number)


def latency(where: Path) -> None:
    """Enqueue alone and beside two hot exchangers."""
    table = Table("enqueue, milliseconds", "", "p50", "p99", "most")
    path = where / "jobs.db"
    app = App(f"sqlite:///{path}")

    @app.task
    def send_email(user_id: int, template: str = "welcome") -> None: ...

    def measure(pause: float, number: int) -> list[float]:
        spent: list[float] = []
        for n in range(number):
            start = time.perf_counter()
            send_email.enqueue(n)
            spent.append((time.perf_counter() - start) * 1000)
            time.sleep(pause)
        return spent

    idle = measure(0.001, 2_000)
    table.row("idle", percentile(idle, 0.5), percentile(idle, 0.99), max(idle))
    backlog = SQLiteStore(path)
    fill(backlog, 1_000_000)  # enough that the two never run dry
    backlog.close()
    context = multiprocessing.get_context("spawn")
    stop, counts = context.Event(), context.SimpleQueue()
    hot = [context.Process(target=_hot_exchanger, args=(path, stop, counts.put)) for _ in range(2)]
    for process in hot:
        process.start()
    time.sleep(1)
    busy = measure(0.0005, 2_000)
    stop.set()
    for process in hot:
        process.join()
    table.row("beside two hot exchangers", percentile(busy, 0.5), percentile(busy, 0.99), max(busy))
    shares = sorted((counts.get(), counts.get()))
    table.row("those two shared", *(f"{share:,}" for share in shares), f"1:{shares[1] / shares[0]:.2f}")
    app.close()


def wake(where: Path) -> None:
    """From push to the end of another process's wait, and what waiting costs."""
    table = Table("wake-up of an idle worker", "", "p50 ms", "p99 ms", "idle CPU %")
    path = where / "jobs.db"
    for name, deaf in (("bell", False), ("polling", True)):
        context = multiprocessing.get_context("spawn")
        woken, done = context.SimpleQueue(), context.Event()
        waiter = context.Process(target=_waiter, args=(path, deaf, woken, done))
        waiter.start()
        woken.get()
        store = SQLiteStore(path)
        spent: list[float] = []
        for _ in range(300):
            time.sleep(0.01)
            start = time.perf_counter()
            store.push(jobs(1))
            spent.append((woken.get() - start) * 1000)
        done.set()
        idle = woken.get()
        waiter.join()
        store.close()
        table.row(name, percentile(spent, 0.5), percentile(spent, 0.99), idle)


def _waiter(path: Path, deaf: bool, woken: multiprocessing.queues.SimpleQueue[float], done: Event) -> None:
    store = SQLiteStore(path)
    store.bell._deaf = deaf
    drain(store, 100)
    while store.wait(0.1):
        drain(store, 100)
    woken.put(0.0)
    while not done.is_set():
        store.wait(0.2)
        now = time.perf_counter()
        if drain(store, 100):
            woken.put(now)
    while store.wait(0.1):
        drain(store, 100)
    before, start = time.process_time(), time.perf_counter()
    while (left := start + 3 - time.perf_counter()) > 0:
        store.wait(left)
    woken.put(100 * (time.process_time() - before) / (time.perf_counter() - start))
    store.close()


def share(where: Path) -> None:
    """Threads of one process that enqueue together."""
    table = Table("enqueue from 8 threads of one process", "", "jobs/s", "least:most")
    app = App(f"sqlite:///{where / 'jobs.db'}")

    @app.task
    def send_email(user_id: int) -> None: ...

    counts = [0] * 8
    end = time.perf_counter() + 3

    def run(index: int) -> None:
        while time.perf_counter() < end:
            send_email.enqueue(index)
            counts[index] += 1

    threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.row("", sum(counts) / 3.0, f"1:{max(counts) / min(counts):.2f}")
    app.close()


def payloads(number: int, lanes: int, delay: int = 0, first: int = 0) -> list[Job]:
    """Make payloads, in turn for each of some lanes."""
    names = [f"order-{first + n}" for n in range(lanes)]
    ids = [lane_id("orders", name) for name in names]
    return [
        Job(ids[n % lanes], "app.sync", "orders", b'{"id":%d}' % n, names[n % lanes], 0, delay, gather=Gather())
        for n in range(number)
    ]


def collect_all(store: SQLiteStore, most: int) -> int:
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


def collect(where: Path) -> None:
    """A collector's payloads: push them, and claim and settle their lanes, in batches of 100 runs."""
    table = Table("collectors, payloads per second", "", "push", "exchange")
    number = 20_000
    for name, of_lanes, most in (
        ("20,000 lanes of one, 1 in a run", number, 1), ("20,000 lanes of one, 10 in a run", number, 10),
        ("1,000 lanes of twenty, 10 in a run", 1_000, 10), ("one lane of 20,000", 1, 1),
    ):  # fmt: skip
        store = SQLiteStore(where / f"{of_lanes}-{most}.db")
        table.row(name, *_push_and_collect(store, payloads(number, of_lanes), most))
        store.close()
    waiting = Table("collectors, lanes per second, 10 in a run", "", "push", "exchange", "ratio")
    small, later, before = (SQLiteStore(where / f"{name}.db") for name in ("small", "later", "before"))
    for portion in range(0, 100_000, 1000):
        later.push(payloads(1000, 1000, delay=3600 * 1_000_000, first=1_000_000 + portion))
        before.push(payloads(1000, 1000, first=1_000_000 + portion))
    alone = _push_and_collect(small, payloads(number, number), 10)
    waiting.row("20,000 lanes", *alone, "")
    behind = _push_and_collect(later, payloads(number, number), 10)
    waiting.row("20,000 lanes, 100,000 for later", *behind, behind[1] / alone[1])
    ready = rate(100_000, lambda: collect_all(before, 10))
    waiting.row("100,000 lanes that are ready", "", ready, ready / alone[1])
    for store in (small, later, before):
        store.close()


def _push_and_collect(store: SQLiteStore, jobs: list[Job], most: int) -> list[float]:
    """Return payloads per second, pushed a thousand at a time, and claimed and settled."""

    def round_trip() -> tuple[float, float]:
        portions = [jobs[start : start + 1000] for start in range(0, len(jobs), 1000)]
        return rate(len(jobs), lambda: _each(store.push, portions)), rate(len(jobs), lambda: collect_all(store, most))

    rounds = [round_trip() for _ in range(ROUNDS)]
    return [statistics.median(figures) for figures in zip(*rounds, strict=True)]


PARTS = {part.__name__: part for part in (push, exchange, lanes, collect, later, latency, wake, share)}
