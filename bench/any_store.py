"""What the benchmarks of all stores share: jobs, and what is asked of a store or of a worker on it, whatever it is.

Where a title says `on`, that is which store: "" or " on Redis".
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from harness import ROUNDS, Table, alternate, percentile, rate
from laneway import App, Worker
from laneway.clock import now_micros
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Done, Settled
from laneway.desk.collector import Collector
from laneway.desk.task import Task
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, Store

__all__ = [
    "BODY", "COMMAND", "DONE", "EVERYTHING", "Noops", "backlog", "collect", "collectors", "drain", "drained", "each", "exchange",
    "fill", "first_job", "idle", "jobs", "lanes", "payloads", "queues", "raw_drained", "rows", "waiting",
]  # fmt: skip

BODY = b'[[42,"welcome"],{}]'
DONE = Done()
EVERYTHING = [ClaimRequest("default", 1000)]
MANY, LATER = 20_000, 100_000
QUEUES = 50
COMMAND = [sys.executable, "-m", "laneway", "worker"]


def each(act: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Do something with each."""
    for item in items:
        act(item)


# -- raw -----------------------------------------------------------------------------------------------------------


class Raw(Protocol):
    """The least that a job processor has to do."""

    def push(self, rows: list[tuple[str, int, bytes]], /) -> None: ...
    def drain(self, limit: int, now: int, /) -> int: ...


def rows(number: int) -> list[tuple[str, int, bytes]]:
    """Make what a raw loop pushes: id, due time and body."""
    return [(new_id(), now_micros(), BODY) for _ in range(number)]


def raw_drained(raw: Raw, number: int, limit: int, tidy: Callable[[], object] = int) -> float:
    """Let a raw loop claim and settle so many jobs; return how many per second. `tidy` is done before the time is taken."""
    for _ in range(0, number, 1000):
        raw.push(rows(1000))
    tidy()
    return rate(number, lambda: raw.drain(limit, now_micros()))


# -- through a store ---------------------------------------------------------------------------------------------


def jobs(number: int, lane: str | None = None, delay: int = 0) -> list[Job]:
    """Make jobs."""
    return [Job(new_id(), "app.send_email", "default", BODY, lane, 0, delay) for _ in range(number)]


def fill(store: Store, number: int, lane: str | None = None, delay: int = 0) -> None:
    """Push many."""
    for _ in range(0, number, 1000):
        store.push(jobs(1000, lane, delay))


def drain(store: Store, limit: int, most: int = 10**9) -> int:
    """Claim and settle until nothing is left; return how many."""
    claims: list[Claim] = []
    number = 0
    while number < most:
        claims = store.exchange("w", [Settled(claim, (DONE,), 1, 2) for claim in claims], EVERYTHING, limit).claims
        number += len(claims)
        if not claims:
            return number
    store.exchange("w", [Settled(claim, (DONE,), 1, 2) for claim in claims], [], 0)
    return number


def exchange(table: Table, name: str, raw: Raw, store: Store, limit: int, number: int, tidy: Callable[[], object] = int) -> None:
    """Claim and settle in batches of up to `limit`, beside the raw loop."""

    def by_store() -> float:
        fill(store, number)
        tidy()
        return rate(number, lambda: drain(store, limit))

    theirs, ours = alternate(lambda: raw_drained(raw, number, limit, tidy), by_store)
    table.row(name, theirs, ours, ours / theirs)


def lanes(on: str, plain: Store, parked: Store) -> None:
    """One hot lane, and a long lane in front of others."""
    table = Table(f"lanes{on}, jobs per second", "", "laneway", "ratio")

    def hot() -> float:
        fill(plain, 5_000, lane="hot")
        return rate(5_000, lambda: drain(plain, 10))

    table.row("one hot lane", alternate(hot)[0])
    fill(parked, 100_000, lane="long")
    held = parked.exchange("holder", [], EVERYTHING, 1).claims
    spent = rate(100_000, lambda: [parked.exchange("w", [], EVERYTHING, 1) for _ in range(100)])
    table.row("parking 100,000 jobs of a held lane, once", spent)

    def of(store: Store) -> Callable[[], float]:
        def measure() -> float:
            fill(store, MANY)
            return rate(MANY, lambda: drain(store, 100))

        return measure

    free, blocked = alternate(of(plain), of(parked))
    table.row("others, nothing in front", free)
    table.row("others, 100,000 parked in front", blocked, blocked / free)
    assert len(held) == 1


def backlog(on: str, small: Store, scheduled: Store, ready: Store) -> None:
    """A million jobs for later, and a million ready ones."""
    table = Table(f"backlog{on}, jobs per second in batches of 100", "", "laneway", "ratio")
    fill(scheduled, 1_000_000, delay=3600 * 1_000_000)
    fill(ready, 1_000_000)

    def of(store: Store, new: int) -> Callable[[], float]:
        def measure() -> float:
            fill(store, new)
            return rate(10_000, lambda: drain(store, 100, most=10_000))

        return measure

    base, with_later, with_ready = alternate(of(small, 10_000), of(scheduled, 10_000), of(ready, 0))
    table.row("10,000 ready", base)
    table.row("10,000 ready, 1,000,000 for later", with_later, with_later / base)
    table.row("1,000,000 ready", with_ready, with_ready / base)


def payloads(number: int, lanes: int, delay: int = 0, first: int = 0) -> list[Job]:
    """Make payloads, in turn for each of some lanes."""
    names = [f"order-{first + n}" for n in range(lanes)]
    ids = [lane_id("orders", name) for name in names]
    return [
        Job(ids[n % lanes], "app.sync", "orders", b'{"id":%d}' % n, names[n % lanes], 0, delay, gather=Gather())
        for n in range(number)
    ]


def _collect_all(store: Store, most: int) -> int:
    """Claim and settle runs of up to so many lanes until nothing is left; return how many payloads that was."""
    claims: list[Claim] = []
    number = 0
    want = [ClaimRequest("orders", 100, most)]
    while True:
        settled = [Settled(claim, (DONE,) * len(claim.units), 1, 2) for claim in claims]
        claims = store.exchange("w", settled, want, 100).claims
        if not claims:
            return number
        number += sum(len(lane.payloads) for claim in claims for lane in claim.units)


def collect(on: str, made: Callable[[str], Store]) -> None:
    """A collector's payloads: push them, and claim and settle their lanes, in batches of 100 runs."""
    table = Table(f"collectors{on}, payloads per second through the store", "", "push", "exchange")
    for name, of_lanes, most in (
        ("20,000 lanes of one, 1 in a run", MANY, 1), ("20,000 lanes of one, 10 in a run", MANY, 10),
        ("1,000 lanes of twenty, 10 in a run", 1_000, 10), ("one lane of 20,000", 1, 1),
    ):  # fmt: skip
        store = made(f"{of_lanes}-{most}")
        table.row(name, *_push_and_collect(store, payloads(MANY, of_lanes), most))
        store.close()
    waiting = Table(f"collectors{on}, lanes per second, 10 in a run", "", "push", "exchange", "ratio")
    small, later, before = (made(name) for name in ("small", "later", "before"))
    for portion in range(0, LATER, 1000):
        later.push(payloads(1000, 1000, delay=3600 * 1_000_000, first=1_000_000 + portion))
        before.push(payloads(1000, 1000, first=1_000_000 + portion))
    alone = _push_and_collect(small, payloads(MANY, MANY), 10)
    waiting.row("20,000 lanes", *alone, "")
    behind = _push_and_collect(later, payloads(MANY, MANY), 10)
    waiting.row("20,000 lanes, 100,000 for later", *behind, behind[1] / alone[1])
    ready = rate(LATER, lambda: _collect_all(before, 10))
    waiting.row("100,000 lanes that are ready", "", ready, ready / alone[1])
    for store in (small, later, before):
        store.close()


def _push_and_collect(store: Store, jobs: list[Job], most: int) -> list[float]:
    """Return payloads per second, pushed a thousand at a time, and claimed and settled."""

    def round_trip() -> tuple[float, float]:
        portions = [jobs[start : start + 1000] for start in range(0, len(jobs), 1000)]
        return rate(len(jobs), lambda: each(store.push, portions)), rate(len(jobs), lambda: _collect_all(store, most))

    rounds = [round_trip() for _ in range(ROUNDS)]
    return [statistics.median(figures) for figures in zip(*rounds, strict=True)]


# -- through a worker --------------------------------------------------------------------------------------------


def drained(app: App, number: int = MANY, slots: int = 10) -> float:
    """Let a worker run all that waits; return how many per second."""
    return rate(number, lambda: Worker(app, slots=slots).run(burst=True))


class Noops:
    """An app with tasks that do nothing, in the first of its queues. `tidy` is done before the time is taken."""

    def __init__(self, url: str, tidy: Callable[[], object] = int, queues: int = 1) -> None:
        app = self.app = App(url)
        self._tidy = tidy

        @app.task
        def plain(number: int, text: str) -> None: ...

        @app.task
        async def on_loop(number: int, text: str) -> None: ...

        @app.task(lane="lane")
        def in_lane(lane: int, text: str) -> None: ...

        self.plain, self.on_loop, self.in_lane = plain, on_loop, in_lane
        for number in range(1, queues):
            app.task(name=f"other-{number}", queue=f"other-{number}")(lambda: None).enqueue()

    def of(self, task: Task[[int, str], Any, None], lanes: int = MANY, number: int = MANY) -> Callable[[], float]:
        """Enqueue many, numbered up to `lanes`, and return how fast ten slots run them."""

        def measure() -> float:
            task.enqueue_many((n % lanes, "welcome") for n in range(number))
            self._tidy()
            return drained(self.app, number)

        return measure

    def close(self) -> None:
        """Check that nothing is left."""
        assert sum(self.app.inspect.counts().values()) == 0
        self.app.close()


def queues(on: str, url: str, other_url: str) -> None:
    """No-op jobs in one queue, and as many in fifty."""
    alone, apart = App(url), App(other_url)

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
    table = Table(f"no-op jobs{on} over queues, per second", "", "jobs/s", "ratio")
    table.row("one queue", base)
    table.row(f"{QUEUES} queues", figure, figure / base)
    alone.close()
    apart.close()


def waiting(on: str, url: str) -> None:
    """2,000 jobs that wait 50 ms, on 25 slots: 4 seconds is ideal."""
    table = Table(f"2,000 jobs of 50 ms on 25 slots{on}, seconds (ideal 4.00)", "", "seconds", "of ideal")
    app = App(url)

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


def idle(on: str, url: str, pauses: Mapping[float, int] = MappingProxyType({})) -> list[float]:
    """From enqueue to start in an idle worker of another process; and how late a scheduled job starts.

    Returns the medians, milliseconds. `pauses`: other pauses between enqueues, seconds, and how often.
    """
    table = Table(f"an idle worker{on} in another process, milliseconds", "", "p50", "p99", "most")
    context = multiprocessing.get_context("spawn")
    started = context.SimpleQueue()
    worker = context.Process(target=_serve, args=(url, started), daemon=True)
    worker.start()
    started.get()
    app = App(url)

    @app.task(name="note")
    def note() -> None: ...

    @app.task(name="anote")
    async def anote() -> None: ...

    medians: list[float] = []
    enqueues: list[float] = []
    usual: list[tuple[str, Task[[], Any, None], float, int]] = [
        ("enqueue to start, plain", note, 0.005, 500),
        ("enqueue to start, async", anote, 0.005, 500),
    ]
    for name, task, pause, number in [*usual, *((f"{pause:g} s after the last", note, pause, pauses[pause]) for pause in pauses)]:
        spent: list[float] = []
        for _ in range(number):
            time.sleep(pause)
            before = time.time()
            task.enqueue()
            enqueues.append((time.time() - before) * 1000)
            spent.append((started.get() - before) * 1000)
        medians.append(percentile(spent, 0.5))
        table.row(name, medians[-1], percentile(spent, 0.99), max(spent))
    table.row("the enqueue alone", percentile(enqueues, 0.5), percentile(enqueues, 0.99), max(enqueues))
    late: list[float] = []
    for _ in range(200):
        due = time.time() + 0.03
        note.using(run_after=0.03).enqueue()
        late.append((started.get() - due) * 1000)
    table.row("a scheduled job, after it was due", percentile(late, 0.5), percentile(late, 0.99), max(late))
    worker.terminate()
    worker.join()
    app.close()
    return medians


def collectors(on: str, url: str, other_url: str) -> None:
    """No-op runs of collectors through 5 slots: lanes of one payload, payloads that gather, and beside lanes for later."""
    alone, beside = _Collectors(url), _Collectors(other_url)
    beside.ten.using(run_after=3600).enqueue_many((f"later-{number}", number) for number in range(LATER))
    rows = [
        ("20,000 lanes of one payload, max_lanes=1", alone.work(alone.one, MANY), 1),
        ("20,000 lanes of one payload, max_lanes=10", alone.work(alone.ten, MANY), 1),
        ("the same beside 100,000 lanes that wait", beside.work(beside.ten, MANY), 1),
        ("20,000 payloads over 1,000 lanes, max_lanes=10", alone.work(alone.ten, 1000), MANY // 1000),
        ("20,000 payloads in one lane", alone.work(alone.one, 1), MANY),
    ]
    figures = alternate(*(work for _, work, _ in rows))
    table = Table(f"collectors{on} through one worker with 5 slots, per second", "", "lanes/s", "payloads/s")
    for (name, _, gathered), figure in zip(rows, figures, strict=True):
        table.row(name, figure / gathered, figure)
    print(f"    beside 100,000 waiting lanes: {figures[2] / figures[1]:.2f} of what it is without them")
    assert sum(alone.app.inspect.counts().values()) == 0
    assert beside.app.inspect.counts()["scheduled"] == LATER
    for bench in (alone, beside):
        bench.app.close()


class _Collectors:
    """A store and two collectors that do nothing."""

    def __init__(self, url: str) -> None:
        self.app = App(url, enqueue_timeout=60)

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


def first_job(on: str, app: App, where: Path) -> None:
    """From exec to the first line of the first job, with the job waiting. In the folder is app.py, with a task `first`."""
    took: list[float] = []
    for _ in range(10):
        app.enqueue("app.first")
        began = time.time()
        subprocess.run([*COMMAND, "--burst"], cwd=where, stderr=subprocess.DEVNULL, check=True)
        took.append(float((where / "ran").read_text().split()[-1]) - began)
    table = Table(f"from exec to the first job{on}, milliseconds", "", "p50", "most")
    table.row("laneway worker", percentile(took, 0.5) * 1000, max(took) * 1000)
