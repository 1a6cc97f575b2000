"""How fast the SQLite store is, beside a raw sqlite3 loop in the same run. `make bench ARGS="push lanes"` picks parts."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import any_store
from any_store import BODY, DONE, EVERYTHING, drain, each, fill, jobs
from harness import Table, alternate, percentile, rate
from laneway import App
from laneway.clock import now_micros
from laneway.core.job import Claim
from laneway.core.outcome import Settled
from laneway.ids import new_id
from laneway.store.sqlite import SQLiteStore
from raw import Raw


def push(where: Path) -> None:
    """Enqueue one by one and in bulk."""
    table = Table("push, jobs per second", "", "raw", "laneway", "ratio")
    raw, store = Raw(where / "raw.db"), SQLiteStore(where / "jobs.db")
    for size, number in ((1, 5_000), (1000, 100_000)):

        def by_raw(size: int = size, number: int = number) -> float:
            portions = [[(new_id(), now_micros(), BODY) for _ in range(size)] for _ in range(number // size)]
            return rate(number, lambda: each(raw.push, portions))

        def by_store(size: int = size, number: int = number) -> float:
            portions = [jobs(size) for _ in range(number // size)]
            return rate(number, lambda: each(store.push, portions))

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
        store = SQLiteStore(where / f"jobs{limit}.db")
        any_store.exchange(table, f"batches of {limit}", Raw(where / f"raw{limit}.db"), store, limit, number)
        store.close()


def lanes(where: Path) -> None:
    """One hot lane, and a long lane in front of others."""
    plain, parked = SQLiteStore(where / "plain.db"), SQLiteStore(where / "parked.db")
    any_store.lanes("", plain, parked)
    plain.close()
    parked.close()


def later(where: Path) -> None:
    """A million jobs for later, and a million ready ones."""
    stores = [SQLiteStore(where / f"{name}.db") for name in ("small", "scheduled", "ready")]
    any_store.backlog("", *stores)
    for store in stores:
        store.close()


def _hot_exchanger(path: Path, stop: Event, counted: Callable[[int], None]) -> None:
    store = SQLiteStore(path)
    claims: list[Claim] = []
    number = 0
    while not stop.is_set():
        claims = store.exchange(str(id(store)), [Settled(c, (DONE,), 1, 2) for c in claims], EVERYTHING, 100).claims
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


def collect(where: Path) -> None:
    """A collector's payloads: push them, and claim and settle their lanes."""
    any_store.collect("", lambda name: SQLiteStore(where / f"{name}.db"))


PARTS = {part.__name__: part for part in (push, exchange, lanes, collect, later, latency, wake, share)}
