"""A store that goes away, answers that get lost, and what the log says."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from laneway import App, Retry, Worker
from laneway.errors import StoreUnavailable
from workbench import ALL_DONE, SOON, Running, burst, faulty, url, wait, working

EVERY_STORE = True

# -- store trouble -----------------------------------------------------------------------------------------------


def away(message: str = "The store is away.") -> None:
    raise StoreUnavailable(message)


@pytest.mark.parametrize("seed", range(4))
def test_lost_requests_and_answers_lose_nothing_and_repeat_nothing(app: App, seed: int) -> None:
    ran: Counter[int] = Counter()
    chance = random.Random(seed)  # noqa: S311
    left = 8

    @app.task(lane="lane", retry=Retry(times=3, backoff=0))
    def laned(lane: str, n: int) -> None:
        ran[n] += 1

    @app.task
    async def on_loop(n: int) -> None:
        ran[n] += 1

    @app.task
    def slow(n: int) -> None:
        ran[n] += 1
        time.sleep(0.005)

    def maybe() -> None:
        nonlocal left
        if left and chance.random() < 0.25:
            left -= 1
            away()

    store = faulty(app)
    for n in range(0, 120, 3):
        laned.enqueue(f"lane-{n % 4}", n)
        on_loop.enqueue(n + 1)
        slow.enqueue(n + 2)
    store.before = store.after = maybe
    burst(app, 4)

    assert left < 8
    assert ran == dict.fromkeys(range(120), 1)
    assert set(store.settled.values()) == {1}
    assert len(store.settled) == 120
    assert app.inspect.counts() == ALL_DONE
    assert app.stats.totals()["processed"] == 120


@pytest.mark.parametrize("seed", range(4))
def test_nor_do_they_where_jobs_are_short_and_run_while_others_are_settled(app: App, seed: int) -> None:
    ran: Counter[int] = Counter()
    order: dict[str, list[int]] = {}
    chance = random.Random(seed)  # noqa: S311
    left = 12

    @app.task
    def plain(n: int) -> None:
        ran[n] += 1

    @app.task(queue="lanes", lane="lane")
    def laned(lane: str, n: int) -> None:
        ran[n] += 1
        order.setdefault(lane, []).append(n)

    def maybe() -> None:
        nonlocal left
        if left and chance.random() < 0.1:
            left -= 1
            away()

    store = faulty(app)
    plain.enqueue_many((n,) for n in range(1500))
    laned.enqueue_many((f"lane-{n % 7}", n) for n in range(1500, 2000))
    store.before = store.after = maybe
    burst(app, 5)

    assert left < 12
    assert ran == dict.fromkeys(range(2000), 1)
    assert set(store.settled.values()) == {1}
    assert all(line == sorted(line) for line in order.values())
    assert app.inspect.counts() == ALL_DONE
    assert app.stats.totals()["processed"] == 2000


@pytest.mark.parametrize("way", ["there", "back"])
def test_whichever_exchange_gets_lost_nothing_runs_twice(app: App, way: str) -> None:
    ran: Counter[int] = Counter()
    calls = itertools.count()

    @app.task(lane=lambda n: str(n % 40))
    def work(n: int) -> None:
        ran[n] += 1

    def lost(which: int) -> Callable[[], object]:
        return lambda: away() if next(calls) == which else None

    store = faulty(app)
    for which in range(30):
        store.before = store.after = lambda: None
        work.enqueue_many((n,) for n in range(200 * which, 200 * which + 200))
        calls = itertools.count()
        setattr(store, "before" if way == "there" else "after", lost(which))
        burst(app, 5)
        assert ran == dict.fromkeys(range(200 * which + 200), 1), which
    assert app.inspect.counts() == ALL_DONE


def test_the_log_says_once_that_the_store_is_away_and_once_that_it_is_back(app: App, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([True, True, True])
    ran: list[int] = []

    @app.task
    def work() -> None:
        ran.append(1)

    work.enqueue()
    faulty(app).before = lambda: away() if next(failures, False) else None
    burst(app)

    assert ran == [1]
    warned = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ["The store is away. The worker keeps trying; nothing is lost.", "the store is back"]


def test_a_lost_answer_to_giving_back_does_not_let_a_worker_run_what_is_not_its_own(tmp_path: Path) -> None:
    first, second = App(url(tmp_path)), App(url(tmp_path))
    started, go, lost = threading.Event(), threading.Event(), threading.Event()
    ran: list[tuple[str, int]] = []

    def declare(app: App, name: str) -> Any:
        @app.task(name="work")
        def work(n: int) -> None:
            ran.append((name, n))
            if n == 0:
                started.set()
                wait(go)

        return work

    work = declare(first, "first")
    declare(second, "second")
    store = faulty(first)
    real = store._real.give_back

    def give_back(worker: str, keep: Sequence[int] = ()) -> list[str]:
        ids = real(worker, keep)
        if ids and not lost.is_set():
            lost.set()
            away()
        return ids

    store.give_back = give_back  # type: ignore[method-assign]
    work.enqueue_many([(0,), (1,)])
    with working(first, 1):
        wait(started)
        wait(lost)  # the second was claimed ahead, did not move, and went back; the answer got lost
        burst(second)
        go.set()
    first.close()
    second.close()

    assert sorted(ran) == [("first", 0), ("second", 1)]


def test_a_worker_is_known_before_it_claims_even_if_the_store_is_away_at_first(app: App) -> None:
    failures = iter([True, True])

    @app.task
    def work() -> None:
        pass

    work.enqueue()
    store = faulty(app)
    store.beating = lambda: away() if next(failures, False) else None
    burst(app, beat=0.05)

    assert store.calls[0] == "beat"
    assert app.stats.totals()["processed"] == 1


def test_a_store_that_is_away_does_not_keep_a_worker_from_stopping(app: App) -> None:
    tried = threading.Event()
    store = faulty(app)

    def fail() -> None:
        tried.set()
        away()

    store.before = fail
    running = Running(Worker(app, shutdown_timeout=0.2))
    wait(tried)
    start = time.monotonic()
    running.worker.stop()
    running.join()

    assert time.monotonic() - start < SOON


# -- logging -----------------------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == level and record.name == "laneway"]


def test_start_and_finish_are_logged_for_who_wants_to_know(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="work")
    def work() -> None:
        pass

    caplog.set_level(logging.DEBUG, "laneway")
    handle = work.enqueue()
    burst(app)

    lines = [line for line in logged(caplog, logging.DEBUG) if handle.id in line]
    assert lines[0] == f"work {handle.id} starts"
    assert lines[1].startswith(f"work {handle.id} done in 0.")
    assert len(lines) == 2


def test_a_failed_attempt_is_a_warning_and_a_death_an_error_with_its_traceback(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="work", retry=Retry(times=1, backoff=0))
    def work() -> None:
        raise ValueError("out of cheese")

    handle = work.enqueue()
    burst(app)

    assert logged(caplog, logging.WARNING) == [f"work {handle.id} failed in attempt 1, again in 0 s: ValueError: out of cheese"]
    (line,) = logged(caplog, logging.ERROR)
    assert line.startswith(f"work {handle.id} is dead after attempt 2: ValueError: out of cheese\nTraceback ")
    assert 'raise ValueError("out of cheese")' in line


def test_nothing_is_logged_above_debug_while_all_goes_well(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def work() -> None:
        pass

    caplog.set_level(logging.DEBUG, "laneway")
    work.enqueue_many([()] * 50)
    burst(app)

    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_worker_has_the_slots_and_queues_it_was_given(app: App) -> None:
    worker = Worker(app, slots=3, queues=["a", "b"])

    assert (worker.slots, worker.queues) == (3, ("a", "b"))
