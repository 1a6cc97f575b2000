"""What a worker runs: what is due, in order where there are lanes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laneway import App, Retry, Worker, current_job
from laneway.store.contract import Exchange, is_pipelined
from workbench import ALL_DONE, DEADLINE, SOON, Running, burst, until, url, wait, working

EVERY_STORE = True

# -- burst -------------------------------------------------------------------------------------------------------


def test_a_burst_runs_everything_that_is_due_and_returns(app: App) -> None:
    ran: list[int] = []

    @app.task
    def work(n: int) -> None:
        ran.append(n)

    work.enqueue_many([(n,) for n in range(500)])
    burst(app)

    assert sorted(ran) == list(range(500))
    assert app.inspect.counts() == ALL_DONE
    assert app.stats.totals()["processed"] == 500


@pytest.mark.parametrize("queues", [None, ["default"]])
def test_a_burst_with_nothing_due_returns_at_once(app: App, queues: list[str] | None) -> None:
    start = time.monotonic()

    burst(app, queues=queues)

    assert time.monotonic() - start < SOON


def test_a_burst_in_the_main_thread_returns_too(app: App) -> None:
    ran: list[int] = []

    @app.task
    def work() -> None:
        ran.append(1)

    work.enqueue()
    Worker(app).run(burst=True)

    assert ran == [1]


def test_a_burst_leaves_delayed_jobs_where_they_are(app: App) -> None:
    ran: list[str] = []

    @app.task
    def work(name: str) -> None:
        ran.append(name)

    later = work.using(run_after=3600).enqueue("later")
    work.enqueue("now")
    burst(app)

    assert ran == ["now"]
    assert later.state() == "scheduled"


def test_a_burst_runs_the_jobs_that_its_jobs_enqueue(app: App) -> None:
    ran: list[int] = []

    @app.task
    def tree(depth: int) -> None:
        ran.append(depth)
        if depth:
            tree.enqueue(depth - 1)
            tree.using(queue=f"q{depth}").enqueue(depth - 1)

    tree.enqueue(5)
    burst(app)

    assert Counter(ran) == {depth: 2 ** (5 - depth) for depth in range(6)}
    assert app.inspect.counts() == ALL_DONE


@pytest.mark.parametrize("parents", [1, 2, 3, 4])
def test_a_burst_runs_what_was_enqueued_after_it_last_asked(app: App, parents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While some run the next are asked for: what these enqueue may come just after the store was found empty."""
    if is_pipelined(app.store):
        begin = app.store.begin

        def at_once(*asked: Any) -> Callable[[], Exchange]:
            answer = begin(*asked)()
            return lambda: answer

        monkeypatch.setattr(app.store, "begin", at_once)
    ran: list[None] = []

    @app.task
    def warm() -> None: ...

    @app.task
    def parent() -> None:
        child.enqueue()

    @app.task(queue="other")
    def child() -> None:
        ran.append(None)

    app.enqueue_many([warm.bind()] * 300 + [parent.bind()] * parents)
    burst(app, slots=1)

    assert len(ran) == parents


@pytest.mark.parametrize("slots", [1, 3])
def test_a_burst_serves_all_queues(app: App, slots: int) -> None:
    ran: Counter[str] = Counter()

    @app.task
    def work() -> None:
        ran[current_job().queue] += 1

    for name in "abcdefg":
        work.using(queue=name).enqueue_many([()] * 10)
    burst(app, slots)

    assert ran == dict.fromkeys("abcdefg", 10)


def test_a_worker_serves_only_its_queues(app: App) -> None:
    ran: list[str] = []

    @app.task
    def work() -> None:
        ran.append(current_job().queue)

    for name in ("a", "b", "c"):
        work.using(queue=name).enqueue()
    burst(app, queues=["a", "c", "empty"])

    assert sorted(ran) == ["a", "c"]
    assert app.inspect.counts()["ready"] == 1


def test_a_queue_that_appears_while_a_worker_runs_is_served(file_app: App) -> None:
    served = threading.Event()

    @file_app.task
    def work() -> None:
        if current_job().queue == "brand-new":
            served.set()

    first = work.enqueue()
    with working(file_app):
        until(lambda: first.state() == "done")
        work.using(queue="brand-new").enqueue()
        wait(served)


def test_a_paused_queue_is_left_alone_until_it_is_resumed(app: App) -> None:
    ran = threading.Event()

    @app.task
    def work() -> None:
        ran.set()

    work.enqueue()
    app.inspect.pause("default")
    burst(app)
    assert not ran.is_set()
    assert app.inspect.counts()["ready"] == 1

    with working(app):
        app.inspect.resume("default")
        wait(ran)


def test_higher_priorities_run_first(app: App) -> None:
    ran: list[int] = []

    @app.task
    def work(n: int) -> None:
        ran.append(n)

    for n in (0, 5, -5, 100, 5):
        work.using(priority=n).enqueue(n)
    burst(app, 1)

    assert ran == [100, 5, 5, 0, -5]


def test_a_delayed_job_runs_when_it_is_due(file_app: App) -> None:
    ran: list[float] = []
    done = threading.Event()

    @file_app.task
    def work() -> None:
        ran.append(time.time())
        done.set()

    with working(file_app):
        start = time.time()
        work.using(run_after=0.3).enqueue()
        wait(done)

    assert 0.3 <= ran[0] - start < SOON


# -- lanes -------------------------------------------------------------------------------------------------------


class Evidence:
    """What the tasks themselves saw: who was inside a lane at once, and in which order they came."""

    def __init__(self, seed: int) -> None:
        self.overlaps: list[str] = []
        self.order: dict[str, list[tuple[int, int]]] = {}
        self._inside: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._seed = seed

    def declare(self, app: App) -> Any:
        @app.task(name="work", lane="lane", retry=Retry(times=3, backoff=0))
        def work(lane: str, n: int) -> None:
            with self._lock:
                self._inside[lane] += 1
                if self._inside[lane] > 1:
                    self.overlaps.append(lane)
                self.order.setdefault(lane, []).append((n, current_job().attempt))
            chance = random.Random(f"{self._seed} {lane} {n} {current_job().attempt}").random()  # noqa: S311 - chance is no secret
            if chance < 0.3:
                time.sleep(0.001)
            with self._lock:
                self._inside[lane] -= 1
            if chance < 0.15:
                raise RuntimeError("again")

        return work


@pytest.mark.parametrize("seed", range(3))
def test_lanes_are_in_order_and_never_overlap_with_two_workers_and_failures(tmp_path: Path, seed: int) -> None:
    evidence = Evidence(seed)
    apps = [App(url(tmp_path)), App(url(tmp_path))]
    tasks = [evidence.declare(app) for app in apps]
    lanes = random.Random(seed).choices("abcde", k=150)  # noqa: S311

    tasks[0].enqueue_many([(lane, n) for n, lane in enumerate(lanes)])
    runs = [Running(Worker(app, 4), burst=True) for app in apps]
    for run in runs:
        run.join()
    burst(apps[0])  # the first to see nothing due left; the other may have put back a failed one since

    assert evidence.overlaps == []
    for lane, seen in evidence.order.items():
        assert seen == sorted(seen)
        assert [n for n, attempt in seen if attempt == 1] == [n for n, other in enumerate(lanes) if other == lane]
    assert apps[0].inspect.counts() == {**ALL_DONE, "dead": apps[0].stats.totals()["dead"]}
    for app in apps:
        app.close()


def test_lanes_run_in_parallel(app: App) -> None:
    meeting = threading.Barrier(2)

    @app.task(lane="lane", retry=Retry(times=0))
    def meet(lane: str) -> None:
        meeting.wait(DEADLINE)

    for lane in ("a", "b", "a", "b"):
        meet.enqueue(lane)
    burst(app)

    assert app.inspect.counts() == ALL_DONE
    assert app.stats.totals()["processed"] == 4


def test_twenty_five_slots_run_twenty_five_jobs_at_once(app: App) -> None:
    meeting = threading.Barrier(25)

    @app.task(retry=Retry(times=0))
    def meet() -> None:
        meeting.wait(DEADLINE)

    meet.enqueue_many([()] * 50)
    burst(app, 25)

    assert app.stats.totals()["processed"] == 50


def test_slots_are_used_even_after_many_short_jobs(app: App) -> None:
    meeting = threading.Barrier(10)

    @app.task
    def short() -> None:
        pass

    @app.task(retry=Retry(times=0))
    def meet() -> None:
        meeting.wait(DEADLINE)

    short.enqueue_many([()] * 300)
    meet.enqueue_many([()] * 20)
    burst(app, 10)

    assert app.stats.totals()["processed"] == 320


def test_there_are_never_more_jobs_at_once_than_slots(app: App) -> None:
    inside, most = 0, 0
    lock = threading.Lock()

    @app.task
    def work() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.002)
        with lock:
            inside -= 1

    work.enqueue_many([()] * 60)
    burst(app, 3)

    assert most <= 3


def test_async_tasks_run_at_once_on_the_loop_beside_threads(app: App) -> None:
    seats, slots = asyncio.Barrier(8), threading.Barrier(8)
    both = threading.Barrier(2)
    threads: set[str] = set()

    @app.task(retry=Retry(times=0))
    async def sit(leader: bool) -> None:
        threads.add(threading.current_thread().name)
        async with asyncio.timeout(DEADLINE):
            await seats.wait()
        if leader:
            await asyncio.to_thread(both.wait, DEADLINE)

    @app.task(retry=Retry(times=0))
    def stand(leader: bool) -> None:
        slots.wait(DEADLINE)
        if leader:
            both.wait(DEADLINE)

    sit.enqueue_many([(n == 0,) for n in range(8)])
    stand.enqueue_many([(n == 0,) for n in range(8)])
    burst(app, 16)

    assert app.stats.totals()["processed"] == 16
    assert len(threads) == 1
