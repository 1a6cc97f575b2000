"""A store that goes away, answers that get lost, and what the log says."""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest

import redisbench
from laneway import App, Retry, Worker, current_job
from laneway.core.job import Job
from laneway.core.outcome import Settled
from laneway.desk.context import JobContext
from laneway.errors import BadArguments, JobCrashed, JobTimeout, StoreUnavailable
from laneway.events import RunsSettled
from laneway.store.contract import ClaimRequest, Store
from laneway.store.liveness import recover_dead_workers
from laneway.store.sqlite import SQLiteStore
from laneway.worker.duties.stats_reporter import StatsReporter
from workbench import ALL_DONE, SOON, Faulty, Running, burst, faulty, until, url, wait, worker_ids, working

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
    caplog.clear()  # who opens a store for the first time may be warned about its settings
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


def test_a_ring_while_an_answer_is_worked_on_is_not_forgotten(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot's thread settles, and takes its time; meanwhile a job comes, and the loop hears of it."""
    first, second, slow, go = threading.Event(), threading.Event(), threading.Event(), threading.Event()

    @app.task
    def work(n: int) -> None:
        (first if n == 1 else second).set()
        wait(go)

    count = StatsReporter.count

    def count_slowly(reporter: StatsReporter, event: RunsSettled) -> None:
        count(reporter, event)
        if event.settled and not slow.is_set():
            slow.set()
            work.enqueue(2)  # rings
            time.sleep(0.3)  # the loop wakes up meanwhile, and waits for us

    monkeypatch.setattr(StatsReporter, "count", count_slowly)
    with working(app, 2, beat=60):
        work.enqueue(1)
        wait(first)
        time.sleep(0.3)  # the loop has nothing to do now: should it still be at work, the test proves less
        go.set()
        wait(slow)
        assert second.wait(5), "the loop has forgotten the ring"


# -- claims that somebody else's transaction holds -----------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 4])
def test_what_cannot_be_settled_now_is_settled_later_and_nothing_waits_for_it(app: App, slots: int) -> None:
    ran: list[int] = []

    @app.task(lane="lane")
    def work(lane: str, n: int) -> None:
        ran.append(n)

    store, refused = faulty(app), Counter[int]()
    work.enqueue("held", 0)
    work.enqueue("held", 1)
    for n in range(2, 60):
        work.enqueue(f"lane-{n % 3}", n)

    def holds(item: Settled) -> bool:  # until all others are done
        if item.claim.unit.lane == "held" and len(ran) < 59:
            refused[item.claim.token] += 1
            return True
        return False

    store.holds = holds
    burst(app, slots)

    assert sorted(ran) == list(range(60))
    assert ran.index(1) == 59  # its lane went on when the one before it was settled
    assert len(refused) == 1
    assert set(store.settled.values()) == {1}
    assert app.inspect.counts() == ALL_DONE
    assert app.inspect.workers() == []


def test_a_worker_that_stops_settles_what_it_could_not_before(app: App) -> None:
    store, tried, ran = faulty(app), threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        ran.set()

    def holds(_: Settled) -> bool:
        first = not tried.is_set()
        tried.set()
        return first

    store.holds = holds
    work.enqueue()
    with working(app) as worker:
        wait(tried)
        worker.stop()

    assert app.inspect.counts() == ALL_DONE
    assert app.stats.totals()["processed"] == 1


def test_a_dead_worker_of_which_claims_were_left_is_recovered_again(app: App) -> None:
    """A store may leave claims that somebody is about to finish in a transaction: then the worker stays known."""
    for n in range(2):
        app.enqueue("app.task", n)
    app.store.exchange("gone", [], [ClaimRequest("default", 2)], 2)
    recover, calls = app.store.recover, list[str]()

    class Leaving(Faulty):
        def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
            calls.append(worker)
            return recover(worker, cause, lost) if len(calls) > 1 else []

        def dead_workers(self) -> list[str]:
            return [worker.id for worker in app.store_inspect.workers()]

    store = cast(Store, Leaving(app.store))
    for _ in range(3):
        recover_dead_workers(store)

    assert calls == ["gone", "gone"]
    assert app.inspect.counts()["ready"] == 2
    assert app.inspect.workers() == []


def test_claims_that_garbage_kept_from_being_heard_of_run_all_the_same(app: App) -> None:
    if not app.url.startswith("redis"):
        pytest.skip("keys of another type are for Redis")
    ran: list[int] = []

    @app.task(queue="other")
    def work(n: int) -> None:
        ran.append(n)

    @app.task
    def begin() -> None:
        # It is met when claims are written already. First of all: once something was claimed it is a key of ours.
        redisbench.server().ask("RPUSH", "laneway:{other:0}:holders", "garbage")
        for n in range(4):
            work.enqueue(n)

    begin.enqueue()
    burst(app, 2)

    assert sorted(ran) == list(range(4))
    assert app.inspect.counts() == ALL_DONE


# -- claims that are gone ----------------------------------------------------------------------------------------


def empty(app: App) -> None:
    """Take everything out of a store."""
    if isinstance(app.store, SQLiteStore):
        with app.store.turn() as turn:
            turn.execute("delete from laneway_job")
            turn.execute("delete from laneway_worker")
            for queue in turn.books.queues:
                queue.counts[:] = [0] * len(queue.counts)
    else:
        redisbench.server().ask("FLUSHALL")


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING and one.name.startswith("laneway")]


@pytest.mark.parametrize(("first", "jobs"), [("beat", 9), ("outcome", 9), ("outcome", 1)])  # of 9 some wait inside the worker
def test_a_store_that_was_emptied_under_a_worker_is_one_line_and_blames_nobody(
    app: App, caplog: pytest.LogCaptureFixture, first: str, jobs: int
) -> None:
    go, done = threading.Event(), threading.Event()
    ran: list[JobContext] = []

    @app.task
    def work(n: int) -> None:
        ran.append(current_job())
        wait(go)
        if n:
            done.set()

    work.enqueue_many([(0,)] * jobs)
    with working(app, 5, beat=0.02 if first == "beat" else 60):
        until(lambda: len(ran) == min(jobs, 5))
        caplog.clear()
        empty(app)
        if first == "beat":
            until(lambda: all(job.cancelled for job in ran), "the beat")
        go.set()
        work.enqueue(1)
        wait(done)

    (line,) = warned(caplog)
    assert line == (
        "the store does not know this worker any more: it was taken for dead and its claims were recovered, or the store was "
        "emptied. Outcomes of what it runs now are discarded"
    )
    assert app.inspect.counts() == ALL_DONE


def test_claims_that_are_gone_are_one_line_that_says_what_is_known(app: App, caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()
    ran: list[str] = []

    @app.task
    def work() -> None:
        ran.append(current_job().id)
        wait(go)

    (only,) = ids = [work.enqueue().id]
    with working(app, 5, beat=60):
        until(lambda: ran == ids)
        caplog.clear()
        (id_,) = worker_ids(app)
        app.store.give_back(id_)
        go.set()
        until(lambda: app.inspect.counts() == ALL_DONE, "another run")

    assert warned(caplog)[0].startswith(f"job {only}: its claim is gone from the store; ")
    assert "others" not in caplog.text


# -- logging -----------------------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == level and record.name.startswith("laneway")]


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


def deaths(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.ERROR and record.name.startswith("laneway")]


def shown(record: logging.LogRecord) -> list[str]:
    """Return a record as text, as most programs write it."""
    return logging.Formatter("%(levelname)s %(message)s").format(record).split("\n")


def test_a_failed_attempt_is_a_warning_and_a_death_an_error_with_its_exception(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    error = ValueError("out of cheese")

    @app.task(name="work", retry=Retry(times=1, backoff=0))
    def work() -> None:
        raise error

    handle = work.enqueue()
    burst(app)

    assert logged(caplog, logging.WARNING) == [f"work {handle.id} failed in attempt 1, again in 0 s: ValueError: out of cheese"]
    (record,) = deaths(caplog)
    assert record.exc_info is not None
    assert record.exc_info[:2] == (ValueError, error)  # trackers tell failures apart by it
    assert record.exc_info[2] is error.__traceback__
    first, *rest = shown(record)
    assert first == f"ERROR work {handle.id} is dead after attempt 2: ValueError: out of cheese"
    assert [line for line in rest if not line.startswith(" ")] == [
        "Traceback (most recent call last):",
        "ValueError: out of cheese",
    ]
    assert "    raise error" in rest


def test_a_death_is_logged_with_the_text_that_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    app = App("sqlite://", format_error=lambda error: f"{type(error).__name__}, and no more")

    @app.task(name="work", retry=Retry(times=0))
    def work() -> None:
        secret = "xyzzy"  # noqa: S105
        raise ValueError(len(secret))

    work.enqueue()
    burst(app)
    app.close()

    (record,) = deaths(caplog)
    assert shown(record)[1:] == ["ValueError, and no more"]


def test_a_job_that_died_before_it_could_run_is_logged_with_what_was_wrong(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="work", retry=Retry(times=0))
    def work(number: int) -> None: ...

    app.store.push([Job("a", "work", "default", b'[["x"],{}]')])
    burst(app)

    (record,) = deaths(caplog)
    assert record.exc_info is not None
    assert record.exc_info[0] is BadArguments
    assert len(shown(record)) == 2


@pytest.mark.parametrize("kind", [JobTimeout, JobCrashed])
def test_what_ended_a_run_from_outside_is_logged_with_its_kind(
    app: App, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    @app.task(retry=Retry(times=0), timeout=0.05)
    def work() -> None:
        while True:
            time.sleep(0.001)

    @app.task(isolate=True)
    def crash() -> None:
        os._exit(3)

    (work if kind is JobTimeout else crash).enqueue()
    burst(app)

    (record,) = deaths(caplog)
    assert record.exc_info is not None
    assert record.exc_info[0] is kind


def test_an_isolated_run_that_dies_is_logged_once_with_its_exception(file_app: App, tmp_path: Path) -> None:
    @file_app.task(name="work", retry=Retry(times=0), isolate=True)
    def work() -> None:
        raise ValueError("out of cheese")

    written = tmp_path / "log"
    handler = logging.FileHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(exc_info)s"))
    logging.getLogger("laneway").addHandler(handler)
    try:
        work.enqueue()
        burst(file_app)
    finally:
        logging.getLogger("laneway").removeHandler(handler)
        handler.close()

    said = [line for line in written.read_text().splitlines() if line.startswith("ERROR")]
    assert len(said) == 1
    assert "<class 'ValueError'>" in said[0]


FORGED = "x\nERROR forged\r\x1b[2J\u2028\x85\u202e"


def test_no_text_of_a_job_breaks_a_line_of_the_log(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="work", retry=Retry(times=1, backoff=0))
    def work() -> None:
        raise ValueError(FORGED)

    work.enqueue()
    app.store.push([Job("stray", FORGED, "default", b"[[],{}]", FORGED)])
    burst(app)

    forged = {record.levelname + record.name: record for record in caplog.records if "forged" in record.getMessage()}
    put_back, failed, died = forged["WARNINGlaneway"], forged["WARNINGlaneway.runs"], forged["ERRORlaneway.runs"]
    assert len(forged) == 3
    assert len(shown(put_back)) == len(shown(failed)) == 1
    assert shown(died)[1] == "Traceback (most recent call last):"
    assert all(line.isprintable() for record in (put_back, failed, died) for line in shown(record))


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
