"""What a worker does: runs what is due, in order where there are lanes, says what runs meant, and stops when told to."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pytest

from laneway import App, Cancel, JobHandle, Retry, RetryIn, Snooze, Worker, current_job
from laneway.context import JobContext, NoCurrentJob
from laneway.enqueue import Draft
from laneway.errors import ConfigError, DeclarationError, JobCancelled, JobFailed, NoResult, ResultTimeout, StoreUnavailable
from laneway.outcome import Settled
from laneway.store.contract import Exchange, Heard, Store, Want, WorkerInfo
from laneway.worker.loop import Loop

DEADLINE = 20.0
ALL_DONE = {"scheduled": 0, "ready": 0, "retrying": 0, "blocked": 0, "running": 0, "dead": 0}


@pytest.fixture
def app() -> Iterator[App]:
    made = App("sqlite://")
    yield made
    made.close()


@pytest.fixture
def file_app(tmp_path: Path) -> Iterator[App]:
    made = App(url(tmp_path))
    yield made
    made.close()


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'jobs.db'}"


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Look until something holds, for as long as a test may take."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true"
        time.sleep(0.002)


def wait(event: threading.Event) -> None:
    assert event.wait(DEADLINE), "the event did not happen"


class Running:
    """A worker that runs in a thread."""

    def __init__(self, worker: Worker, *, burst: bool = False) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._burst = burst
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run(burst=self._burst)
        except BaseException as error:  # noqa: BLE001 - raised again where the test looks
            self.error = error

    def join(self) -> None:
        """Wait until it has returned."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the worker did not return"
        if isinstance(self.error, Exception):
            raise self.error
        assert self.error is None  # a KeyboardInterrupt would end the tests


@contextlib.contextmanager
def working(app: App, slots: int = 5, **options: Any) -> Iterator[Worker]:
    """A worker at work while the block runs; stopped at its end."""
    running = Running(Worker(app, slots, **options))
    try:
        yield running.worker
    finally:
        running.worker.stop()
        running.join()


def burst(app: App, slots: int = 5, **options: Any) -> None:
    """Let a worker run what is due, with a deadline."""
    Running(Worker(app, slots, **options), burst=True).join()


def info(app: App, handle: JobHandle[Any]) -> Any:
    """Return a job as it stands in the store."""
    found = app.inspect.job(handle.id)
    assert found is not None
    return found


def worker_ids(app: App) -> set[str]:
    """Return who holds claims."""
    return {job.worker for job in app.inspect.jobs("running", limit=1000) if job.worker}


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

    assert time.monotonic() - start < 2


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

    assert 0.3 <= ran[0] - start < 2


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


# -- the current job ---------------------------------------------------------------------------------------------

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")


def test_context_variables_do_not_leak_from_job_to_job(app: App) -> None:
    seen: list[str] = []

    @app.task
    def plain(n: int) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set(f"set by {n}")

    @app.task
    async def on_loop(n: int) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set(f"set by {n}")
        await asyncio.sleep(0)

    for n in range(10):
        plain.enqueue(n)
        on_loop.enqueue(n)
    burst(app, 1)

    assert seen == ["clean"] * 20


@pytest.mark.parametrize("is_async", [False, True])
def test_context_variables_of_the_program_are_not_those_of_its_jobs(app: App, is_async: bool) -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(VARIABLE.get())

    async def alook() -> None:
        seen.append(VARIABLE.get())

    app.enqueue(app.task(alook).name if is_async else app.task(look).name)
    context = contextvars.copy_context()
    context.run(VARIABLE.set, "the program's")
    context.run(Worker(app).run, burst=True)

    assert seen == ["clean"]


def test_the_current_job_is_known_in_sync_and_async_tasks_and_in_what_they_call(app: App) -> None:
    seen: dict[str, JobContext] = {}

    def deep(name: str) -> None:
        seen[name] = current_job()

    @app.task(queue="mail", lane="name")
    def plain(name: str) -> None:
        deep(name)

    @app.task
    async def on_loop(name: str) -> None:
        await asyncio.gather(asyncio.to_thread(deep, name), asyncio.create_task(adeep("child")))

    async def adeep(name: str) -> None:
        deep(name)

    one, two = plain.enqueue("plain"), on_loop.enqueue("loop")
    burst(app)

    job = seen["plain"]
    assert (job.id, job.task, job.queue, job.lane, job.attempt) == (one.id, plain.name, "mail", "plain", 1)
    assert job.args == ["plain"]
    assert seen["loop"] is seen["child"]
    assert seen["loop"].id == two.id
    assert seen["loop"].token != job.token


def test_there_is_no_current_job_outside(app: App) -> None:
    @app.task
    def work() -> None:
        pass

    work.enqueue()
    Worker(app).run(burst=True)

    with pytest.raises(NoCurrentJob):
        current_job()


def test_headers_of_a_client_middleware_reach_the_job(app: App) -> None:
    seen: list[dict[str, str]] = []

    @app.client_middleware
    def trace(draft: Draft) -> Generator[None, None, None]:
        draft.headers["trace"] = "4711"
        yield

    @app.task
    def work() -> None:
        seen.append(dict(current_job().headers))

    work.enqueue()
    work.using(retry=Retry(times=1)).enqueue()
    burst(app)

    assert seen == [{"trace": "4711"}] * 2


def test_progress_and_log_are_seen_while_a_job_runs_and_after_it_died(app: App) -> None:
    go = threading.Event()

    @app.task(retry=Retry(times=0))
    def work() -> None:
        current_job().progress(1, 3)
        current_job().log("begun")
        wait(go)
        current_job().progress(2, 3)
        current_job().log("in the middle")
        raise ValueError("no")

    handle = work.enqueue()
    with working(app):
        until(lambda: info(app, handle).log == ["begun"], "the log of the running job")
        assert info(app, handle).progress == (1, 3)
        go.set()
        until(lambda: handle.state() == "dead")

    assert info(app, handle).progress == (2, 3)
    assert info(app, handle).log == ["begun", "in the middle"]


# -- what a run means --------------------------------------------------------------------------------------------


def test_a_failing_job_is_retried_with_backoff_and_attempts_count(app: App) -> None:
    attempts: list[int] = []
    asked: list[int] = []

    def backoff(retries: int) -> float:
        asked.append(retries)
        return 0

    @app.task(retry=Retry(times=3, backoff=backoff))
    def work() -> None:
        attempts.append(current_job().attempt)
        raise ValueError(f"attempt {current_job().attempt}")

    handle = work.enqueue()
    burst(app)

    assert attempts == [1, 2, 3, 4]
    assert asked == [0, 1, 2]
    assert handle.state() == "dead"
    assert [(error.kind, error.message, error.attempt) for error in info(app, handle).errors] == [
        ("ValueError", f"attempt {n}", n) for n in range(1, 5)
    ]
    assert app.stats.totals() == {"enqueued": 1, "processed": 0, "failed": 4, "retried": 3, "dead": 1}


def test_a_job_that_fails_waits_for_its_backoff(app: App) -> None:
    @app.task(retry=Retry(times=1, backoff=1000))
    def work() -> None:
        raise ValueError

    handle = work.enqueue()
    burst(app)

    found = info(app, handle)
    assert found.state == "retrying"
    assert 990 < found.due_at.timestamp() - time.time() <= 1000


def test_a_job_that_succeeds_in_its_second_attempt_is_done(app: App) -> None:
    @app.task(retry=Retry(times=1, backoff=0), keep_result=60)
    async def work() -> int:
        if current_job().attempt == 1:
            raise ValueError
        return current_job().attempt

    handle = work.enqueue()
    burst(app)

    assert handle.result(0) == 2


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (Retry(times=2, backoff=0), 3),
        (Retry(times=2, backoff=0, on=(KeyError,)), 1),
        (Retry(times=2, backoff=0, on=(ValueError,)), 3),
        (Retry(times=2, backoff=0, give_up_on=(ValueError,)), 1),
    ],
)
def test_the_policy_says_which_errors_are_retried(app: App, policy: Retry, runs: int) -> None:
    ran: list[int] = []

    @app.task(retry=policy)
    def work() -> None:
        ran.append(1)
        raise ValueError

    work.enqueue()
    burst(app)

    assert len(ran) == runs
    assert app.inspect.counts()["dead"] == 1


def test_a_policy_that_travels_with_the_job_counts(app: App) -> None:
    ran: list[str] = []

    @app.task(retry=Retry(times=1, backoff=0))
    def work(name: str) -> None:
        ran.append(name)
        raise ValueError

    work.using(retry=Retry(times=0)).enqueue("none")
    work.using(retry=Retry(times=3, backoff=0)).enqueue("three")
    work.enqueue("one")
    burst(app)

    assert Counter(ran) == {"none": 1, "three": 4, "one": 2}


def test_retry_in_counts_an_attempt_and_waits_just_so_long(app: App) -> None:
    attempts: list[int] = []

    @app.task(retry=Retry(times=2, backoff=1000))
    def work() -> None:
        attempts.append(current_job().attempt)
        raise RetryIn(0 if current_job().attempt == 1 else 500)

    handle = work.enqueue()
    burst(app)

    assert attempts == [1, 2]
    found = info(app, handle)
    assert (found.state, found.attempt) == ("retrying", 2)
    assert 490 < found.due_at.timestamp() - time.time() <= 500


def test_a_snooze_counts_no_attempt_and_keeps_the_place_in_the_lane(app: App) -> None:
    ran: list[tuple[int, int]] = []

    @app.task(lane="lane", retry=Retry(times=0))
    def work(lane: str, n: int) -> None:
        ran.append((n, current_job().attempt))
        if n == 0 and len(ran) < 4:
            raise Snooze(0.02)

    for n in range(3):
        work.enqueue("a", n)
    with working(app):
        until(lambda: app.stats.totals()["processed"] == 3)

    assert ran == [(0, 1)] * 4 + [(1, 1), (2, 1)]
    assert app.stats.totals()["failed"] == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_can_cancel_itself(app: App, is_async: bool) -> None:
    def plain() -> None:
        raise Cancel("sold out")

    async def on_loop() -> None:
        raise Cancel("sold out")

    handle = (app.task(keep_result=60)(on_loop) if is_async else app.task(keep_result=60)(plain)).enqueue()
    burst(app)

    assert handle.state() == "cancelled"
    with pytest.raises(JobCancelled):
        handle.result(0)


@dataclass
class Invoice:
    number: int
    lines: list[str]


def test_a_result_comes_back_with_its_type(app: App) -> None:
    @app.task(keep_result=60)
    def bill(number: int) -> Invoice:
        return Invoice(number, ["a chair", "ein Stück Käse"])

    @app.task(keep_result=60)
    async def abill(number: int) -> Invoice:
        return Invoice(number, [])

    one, two = bill.enqueue(7), abill.enqueue(8)
    burst(app)

    assert one.result() == Invoice(7, ["a chair", "ein Stück Käse"])
    assert two.result(timeout=0) == Invoice(8, [])


def test_a_result_can_be_waited_for(app: App) -> None:
    go = threading.Event()

    @app.task(keep_result=60)
    def work() -> int:
        wait(go)
        return 42

    handle = work.enqueue()
    with working(app):
        with pytest.raises(ResultTimeout):
            handle.result(timeout=0.01)
        go.set()
        assert handle.result(timeout=DEADLINE) == 42


def test_waiting_for_the_result_of_a_job_that_died_says_why(app: App) -> None:
    @app.task(keep_result=60, retry=Retry(times=0))
    def work() -> int:
        raise ValueError("out of cheese")

    handle = work.enqueue()
    burst(app)

    with pytest.raises(JobFailed, match="ValueError: out of cheese"):
        handle.result()


def test_without_keep_result_there_is_none(app: App) -> None:
    @app.task
    def work() -> int:
        return 42

    handle = work.enqueue()
    burst(app)

    assert handle.state() == "done"
    with pytest.raises(NoResult):
        handle.result()


def test_a_job_of_an_unknown_task_is_put_back_and_run_by_a_worker_that_knows_it(tmp_path: Path) -> None:
    ran = threading.Event()
    stranger, friend = App(url(tmp_path)), App(url(tmp_path))

    @stranger.task(name="other")
    def other() -> None:
        pass

    @friend.task(name="mail")
    def mail() -> None:
        ran.set()

    handle = friend.enqueue("mail")
    burst(stranger)
    found = info(stranger, handle)
    assert (found.state, found.attempt, found.errors) == ("scheduled", 0, [])

    with working(friend):
        wait(ran)
        until(lambda: handle.state() == "done")
    stranger.close()
    friend.close()


# -- middlewares and hooks ---------------------------------------------------------------------------------------


def test_middlewares_go_around_runs_in_order(app: App) -> None:
    told: list[str] = []

    @app.middleware
    def outer(job: JobContext) -> Generator[None, None, None]:
        told.append(f"outer before {job.task}")
        yield
        told.append("outer after")

    @app.middleware
    async def only_async(job: JobContext) -> AsyncGenerator[None, None]:
        told.append("async before")
        yield
        told.append("async after")

    @app.middleware
    def inner(job: JobContext) -> Generator[None, None, None]:
        told.append("inner before")
        assert current_job() is job
        yield
        told.append("inner after")

    @app.task(name="plain")
    def plain() -> None:
        told.append("run")

    @app.task(name="on_loop")
    async def on_loop() -> None:
        told.append("run")

    plain.enqueue()
    burst(app)
    assert told == ["outer before plain", "inner before", "run", "inner after", "outer after"]

    told.clear()
    on_loop.enqueue()
    burst(app)
    assert told == [
        "outer before on_loop", "inner before", "async before", "run", "async after", "inner after", "outer after",
    ]  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_is_raised_at_the_yield_and_cannot_be_hidden(app: App, is_async: bool) -> None:
    seen: list[BaseException] = []

    @app.middleware
    def swallow(job: JobContext) -> Generator[None, None, None]:
        try:
            yield
        except ValueError as error:
            seen.append(error)

    @app.middleware
    async def aswallow(job: JobContext) -> AsyncGenerator[None, None]:
        try:
            yield
        except ValueError as error:
            seen.append(error)

    def plain() -> None:
        raise ValueError("no")

    async def on_loop() -> None:
        raise ValueError("no")

    declare = app.task(retry=Retry(times=0))
    handle = (declare(on_loop) if is_async else declare(plain)).enqueue()
    burst(app)

    assert [str(error) for error in seen] == ["no"] * (2 if is_async else 1)
    assert handle.state() == "dead"


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_middleware_that_raises_fails_the_run(app: App, before: bool, kind: str) -> None:
    told: list[str] = []

    @app.middleware
    def around(job: JobContext) -> Generator[None, None, None]:
        try:
            yield
        except LookupError as error:
            told.append(f"heard {error}")

    if kind == "plain":

        @app.middleware
        def broken(job: JobContext) -> Generator[None, None, None]:
            if before:
                raise LookupError("before")
            yield
            raise LookupError("after")
    else:

        @app.middleware
        async def abroken(job: JobContext) -> AsyncGenerator[None, None]:
            if before:
                raise LookupError("before")
            yield
            raise LookupError("after")

    @app.task(retry=Retry(times=0))
    async def work() -> None:
        told.append("run")

    handle = work.enqueue()
    burst(app)

    assert handle.state() == "dead"
    assert info(app, handle).errors[-1].kind == "LookupError"
    assert told == (["heard before"] if before else ["run", "heard after"])


def test_hooks_get_as_much_as_they_take(app: App) -> None:
    told: list[tuple[object, ...]] = []

    @app.on_start
    def started() -> None:
        told.append(("start",))

    @app.on_start
    def started_with(worker: Worker) -> None:
        told.append(("start", worker))

    @app.on_stop
    def stopped() -> None:
        told.append(("stop",))

    @app.on_stop
    def stopped_with(worker: Worker) -> None:
        told.append(("stop", worker))

    @app.on_death
    def died() -> None:
        told.append(("death",))

    @app.on_death
    def died_with(job: JobContext) -> None:
        told.append(("death", job.id))

    @app.on_death
    def died_with_both(job: JobContext, error: BaseException) -> None:
        told.append(("death", job.id, str(error)))

    @app.on_crash
    def crashed(error: BaseException) -> None:
        told.append(("crash", error))

    @app.task(retry=Retry(times=1, backoff=0))
    def work() -> None:
        raise ValueError(f"attempt {current_job().attempt}")

    handle = work.enqueue()
    worker = Worker(app)
    worker.run(burst=True)

    assert told == [
        ("start",), ("start", worker), ("death",), ("death", handle.id), ("death", handle.id, "attempt 2"),
        ("stop",), ("stop", worker),
    ]  # fmt: skip


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
def test_a_hook_that_raises_is_logged_and_harms_nobody(app: App, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    @app.on_death
    def broken() -> None:
        raise error

    @app.on_death
    def fine() -> None:
        told.append("death")

    @app.task(retry=Retry(times=0))
    def work(fail: bool) -> None:
        if fail:
            raise ValueError

    work.enqueue_many([(True,), (False,), (True,)])
    burst(app, shutdown_timeout=0.5)

    assert told == ["death"] * 2
    assert app.inspect.counts() == {**ALL_DONE, "dead": 2}
    assert "on_death of" in caplog.text


def test_a_hook_must_be_a_plain_function(app: App) -> None:
    async def hook() -> None:
        pass

    for declare in (app.on_start, app.on_stop, app.on_death, app.on_crash):
        with pytest.raises(DeclarationError, match="plain function"):
            declare(hook)


def test_an_internal_error_ends_the_worker_and_on_crash_hears_of_it(app: App) -> None:
    told: list[BaseException] = []
    app.on_crash(told.append)
    mistake = RuntimeError("our own mistake")

    @app.task
    def work() -> None:
        pass

    work.enqueue()
    faulty(app).before = lambda: (_ for _ in ()).throw(mistake)

    with pytest.raises(RuntimeError, match="our own mistake"):
        Worker(app).run(burst=True)

    assert told == [mistake]


# -- stopping ----------------------------------------------------------------------------------------------------


def test_a_worker_is_stopped_from_another_thread(app: App) -> None:
    started, go = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        started.set()
        wait(go)

    handles = [work.enqueue() for _ in range(3)]
    running = Running(Worker(app, 1))
    wait(started)
    running.worker.stop()
    until(lambda: app.inspect.counts()["running"] == 1, "giving back what waits in hand")
    go.set()
    running.join()

    assert [handle.state() for handle in handles] == ["done", "ready", "ready"]
    assert app.inspect.job(handles[1].id).errors == []  # type: ignore[union-attr]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_is_stopped_by_its_own_task(app: App, is_async: bool) -> None:
    worker = Worker(app, 1)
    ran: list[int] = []

    def plain() -> None:
        ran.append(1)
        worker.stop()

    async def on_loop() -> None:
        plain()

    task = app.task(on_loop) if is_async else app.task(plain)
    task.enqueue_many([()] * 5)
    Running(worker).join()

    assert ran == [1]
    assert app.inspect.counts() == {**ALL_DONE, "ready": 4}


def test_an_idle_worker_stops_at_once(file_app: App) -> None:
    file_app.inspect.counts()
    running = Running(Worker(file_app))
    until(lambda: running.worker._loop is not None)
    start = time.monotonic()
    running.worker.stop()
    running.join()

    assert time.monotonic() - start < 1


def test_a_stop_that_comes_just_before_the_worker_goes_to_sleep_is_heard(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Loop._sleep
    slept: list[float] = []

    def sleep(loop: Loop, *args: Any) -> None:
        worker.stop()
        start = time.monotonic()
        real(loop, *args)
        slept.append(time.monotonic() - start)

    monkeypatch.setattr(Loop, "_sleep", sleep)
    worker = Worker(app)
    Running(worker).join()

    assert slept
    assert max(slept) < 0.5


def test_a_worker_that_is_stopped_before_it_runs_returns_at_once(app: App) -> None:
    ran: list[int] = []

    @app.task
    def work() -> None:
        ran.append(1)

    work.enqueue()
    worker = Worker(app)
    worker.stop()
    Running(worker).join()
    assert ran == []

    Running(worker, burst=True).join()
    assert ran == [1]


def test_a_worker_does_not_wait_for_ever_for_a_job(app: App, caplog: pytest.LogCaptureFixture) -> None:
    started, go, ended = threading.Event(), threading.Event(), threading.Event()

    @app.task(name="slow")
    def slow() -> None:
        started.set()
        wait(go)
        ended.set()

    handle = slow.enqueue()
    running = Running(Worker(app, 1, shutdown_timeout=0.1))
    wait(started)
    running.worker.stop()
    running.join()

    assert handle.state() == "running"
    assert f"1 jobs still run and keep their claims until this process ends: slow {handle.id}" in caplog.text
    go.set()
    wait(ended)


def test_what_has_not_started_when_the_time_is_over_never_starts_and_goes_back(app: App) -> None:
    started, go = threading.Event(), threading.Event()
    ran: list[int] = []

    @app.task
    def short() -> None:
        pass

    @app.task
    def slow(n: int) -> None:
        ran.append(n)
        started.set()
        wait(go)

    short.enqueue_many([()] * 200)  # jobs are so short here that some are handed over beyond the slots
    slow.enqueue_many([(n,) for n in range(20)])
    running = Running(Worker(app, 1, shutdown_timeout=0.3))
    wait(started)
    before = threading.active_count()
    running.worker.stop()
    running.join()
    counts = app.inspect.counts()
    go.set()
    until(lambda: threading.active_count() < before, "the end of the slot's thread")

    assert ran == [0]
    assert (counts["running"], counts["ready"]) == (1, 19)


def test_workers_run_one_after_another(file_app: App) -> None:
    ran: list[int] = []

    @file_app.task
    def work(n: int) -> None:
        ran.append(n)

    worker = Worker(file_app)
    for n in range(3):
        work.enqueue(n)
        worker.run(burst=True)
        work.enqueue(n)
        Worker(file_app).run(burst=True)

    assert ran == [0, 0, 1, 1, 2, 2]


def test_a_worker_cannot_run_twice_at_once(app: App) -> None:
    with working(app) as worker:
        until(lambda: worker._loop is not None)
        with pytest.raises(ConfigError, match="runs already"):
            worker.run(burst=True)


@pytest.mark.parametrize("memory", [True, False])
def test_two_workers_of_one_app_in_two_threads_share_the_work(app: App, file_app: App, memory: bool) -> None:
    used = app if memory else file_app
    ran: Counter[int] = Counter()

    @used.task
    def work(n: int) -> None:
        time.sleep(0.001)
        ran[n] += 1

    with working(used, 2), working(used, 2):
        for n in range(150):
            work.enqueue(n)
            if n % 10 == 0:
                until(lambda: not sum(used.inspect.counts().values()), "an empty store")
        until(lambda: not sum(used.inspect.counts().values()), "an empty store")

    assert ran == dict.fromkeys(range(150), 1)


def test_a_claim_does_not_wait_behind_a_long_job_while_another_worker_is_free(tmp_path: Path) -> None:
    first, second = App(url(tmp_path)), App(url(tmp_path))
    started, go = threading.Event(), threading.Event()
    ran: list[int] = []

    def declare(app: App) -> Any:
        @app.task(name="short")
        def short(n: int) -> None:
            ran.append(n)

        @app.task(name="long")
        def long() -> None:
            started.set()
            wait(go)

        return short, long

    short, long = declare(first)
    declare(second)
    short.enqueue_many([(n,) for n in range(300)])
    long.enqueue()
    short.enqueue_many([(n,) for n in range(300, 310)])
    try:
        with working(first, 1):
            wait(started)
            with working(second, 1):
                until(lambda: len(ran) == 310, "the short jobs behind the long one")
            go.set()
    finally:
        go.set()
        first.close()
        second.close()


def test_signal_handlers_and_the_switch_interval_are_restored(app: App) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.getswitchinterval()
    during: list[object] = []

    @app.task
    def work() -> None:
        during.append((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.getswitchinterval()))

    work.enqueue()
    Worker(app).run(burst=True)

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.getswitchinterval()) == before
    assert during != [before]


def test_a_worker_in_a_thread_leaves_signals_alone(app: App) -> None:
    before = signal.getsignal(signal.SIGTERM)

    with working(app) as worker:
        until(lambda: worker._loop is not None)
        assert signal.getsignal(signal.SIGTERM) is before


# -- in a process of its own -------------------------------------------------------------------------------------

PROGRAM = """
import logging, os, sys, time
from pathlib import Path
from laneway import App, Worker, current_job

logging.basicConfig(level=logging.INFO)
here = Path(__file__).parent
app = App(f"sqlite:///{here}/jobs.db")

@app.task(name="short")
def short() -> None:
    pass

@app.task(name="hold")
def hold() -> None:
    os.write(1, f"started {current_job().id}\\n".encode())
    while not (here / "go").exists():
        time.sleep(0.005)
    with open(here / "finished", "a") as file:
        file.write(current_job().id + "\\n")

Worker(app, slots=int(sys.argv[1]), shutdown_timeout=30).run()
os.write(1, b"returned\\n")
"""


class Program:
    """A worker in a process of its own."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.folder = folder
        (folder / "program.py").write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
        command = [sys.executable, "-W", "error", "program.py", str(slots)]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._lines.put), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors.append), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: IO[str], take: Callable[[str], None]) -> None:
        for line in stream:
            take(line.rstrip())

    def started(self, number: int) -> list[str]:
        """Wait until so many jobs have started, and return their ids."""
        return [self._lines.get(timeout=DEADLINE).removeprefix("started ") for _ in range(number)]

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def finished(self) -> list[str]:
        return (self.folder / "finished").read_text(encoding="utf-8").split()

    def ended(self) -> int:
        code = self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[int], Program]]:
    made: list[Program] = []

    def start(slots: int) -> Program:
        made.append(Program(tmp_path, slots))
        return made[-1]

    yield start
    for one in made:
        one.close()


def declare_for_program(app: App, ran: list[str] | None = None) -> tuple[Any, Any]:
    @app.task(name="short")
    def short() -> None:
        pass

    @app.task(name="hold")
    def hold() -> None:
        if ran is not None:
            ran.append(current_job().id)

    return short, hold


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_jobs_end_and_gives_the_others_back(
    file_app: App, program: Callable[[int], Program], number: signal.Signals
) -> None:
    short, hold = declare_for_program(file_app)
    short.enqueue_many([()] * 200)
    hold.enqueue_many([()] * 20)
    worker = program(2)
    ids = worker.started(2)
    worker.process.send_signal(number)
    until(lambda: file_app.inspect.counts()["running"] == 2, "giving back what has not started")
    worker.let_go()

    assert worker.ended() == 0, worker.errors
    assert sorted(worker.finished()) == sorted(ids)
    assert file_app.inspect.counts() == {**ALL_DONE, "ready": 18}
    assert any(f"{number.name}: stopping" in line for line in worker.errors)


def test_a_second_signal_ends_the_process_at_once(file_app: App, program: Callable[[int], Program]) -> None:
    _, hold = declare_for_program(file_app)
    hold.enqueue_many([()] * 2)
    worker = program(2)
    worker.started(2)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: any("stopping" in line for line in worker.errors), "the first signal")
    start = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    worker.ended()

    assert time.monotonic() - start < 5
    assert not (worker.folder / "finished").exists()


def test_an_idle_process_ends_within_a_second_of_the_signal(file_app: App, program: Callable[[int], Program]) -> None:
    _, hold = declare_for_program(file_app)
    hold.enqueue()
    worker = program(1)
    worker.started(1)
    worker.let_go()
    until(lambda: not sum(file_app.inspect.counts().values()))
    start = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)

    assert worker.ended() == 0, worker.errors
    assert time.monotonic() - start < 1


def test_the_jobs_of_a_killed_worker_are_run_by_the_next_one(file_app: App, program: Callable[[int], Program]) -> None:
    ran: list[str] = []
    _, hold = declare_for_program(file_app, ran)
    ids = {hold.enqueue().id for _ in range(20)}
    worker = program(3)
    begun = worker.started(3)
    worker.process.kill()
    worker.ended()

    burst(file_app)

    assert Counter(ran) == dict.fromkeys(ids, 1)
    assert set(begun) <= ids
    assert file_app.inspect.counts() == ALL_DONE


def test_a_running_worker_recovers_the_jobs_of_a_killed_one(
    file_app: App, program: Callable[[int], Program], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    _, hold = declare_for_program(file_app, ran)
    with working(file_app, queues=["other"], beat=0.05):
        hold.enqueue_many([()] * 3)
        worker = program(3)
        worker.started(3)
        worker.process.kill()
        worker.ended()
        until(lambda: file_app.inspect.counts() == {**ALL_DONE, "ready": 3}, "the recovery")

    assert "is dead: its 3 jobs are ready again" in caplog.text
    assert [job.errors[-1].kind for job in file_app.inspect.jobs()] == ["worker lost"] * 3


# -- what is asked of a worker -----------------------------------------------------------------------------------


def test_an_async_job_is_cancelled_at_the_next_beat(app: App) -> None:
    started = threading.Event()
    heard: list[bool] = []

    @app.task
    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(DEADLINE)
        except asyncio.CancelledError:
            heard.append(current_job().cancelled)
            raise

    handle = work.enqueue()
    with working(app, beat=0.05):
        wait(started)
        assert handle.cancel()
        until(lambda: handle.state() == "cancelled")

    assert heard == [True]


def test_an_async_job_that_is_cancelled_may_clean_up_for_longer_than_a_beat(app: App) -> None:
    started = threading.Event()
    cleaned: list[str] = []

    @app.task
    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(DEADLINE)
        finally:
            await asyncio.sleep(0.3)
            cleaned.append("all")

    handle = work.enqueue()
    with working(app, beat=0.05):
        wait(started)
        handle.cancel()
        until(lambda: handle.state() == "cancelled")

    assert cleaned == ["all"]


def test_a_job_in_a_thread_sees_that_it_is_to_be_cancelled(app: App) -> None:
    started = threading.Event()

    @app.task
    def work() -> None:
        started.set()
        until(lambda: current_job().cancelled)
        raise Cancel("as asked")

    handle = work.enqueue()
    other = work.using(run_after=3600).enqueue()
    with working(app, beat=0.05):
        wait(started)
        handle.cancel()
        until(lambda: handle.state() == "cancelled")

    assert other.state() == "scheduled"


def test_a_job_that_is_cancelled_and_done_all_the_same_is_done(app: App) -> None:
    started = threading.Event()

    @app.task(keep_result=60)
    def work() -> str:
        started.set()
        until(lambda: current_job().cancelled)
        return "too late"

    handle = work.enqueue()
    with working(app, beat=0.05):
        wait(started)
        handle.cancel()
        assert handle.result(DEADLINE) == "too late"


def test_a_running_job_that_is_deleted_is_gone_when_its_run_ends(app: App) -> None:
    started = threading.Event()

    @app.task
    async def work() -> None:
        started.set()
        await asyncio.sleep(DEADLINE)

    handle = work.enqueue()
    with working(app, beat=0.05):
        wait(started)
        assert app.inspect.delete(handle.id)
        until(lambda: app.inspect.job(handle.id) is None)


def test_a_worker_that_is_told_to_be_quiet_claims_nothing_more(app: App) -> None:
    started, go = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        started.set()
        wait(go)

    first = work.enqueue()
    with working(app, 1, beat=0.05) as worker:
        wait(started)
        (id_,) = worker_ids(app)
        assert app.store_inspect.tell(id_, "quiet")
        until(lambda: worker._loop is not None and worker._loop.quiet)
        go.set()
        until(lambda: first.state() == "done")
        second = work.enqueue()
        assert second.state() == "ready"
    assert second.state() == "ready"


def test_a_worker_that_is_told_to_stop_returns(app: App) -> None:
    started, go = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        started.set()
        wait(go)

    handle = work.enqueue()
    running = Running(Worker(app, 1, beat=0.05))
    wait(started)
    (id_,) = worker_ids(app)
    assert app.store_inspect.tell(id_, "stop")
    until(lambda: running.worker._loop is not None and running.worker._loop.stopping)
    go.set()
    running.join()

    assert handle.state() == "done"


def test_a_worker_that_was_taken_for_dead_lets_its_runs_know_and_is_refused(
    file_app: App, caplog: pytest.LogCaptureFixture
) -> None:
    started = threading.Event()
    ran: list[str] = []

    @file_app.task(retry=Retry(times=0))
    def work(name: str) -> None:
        ran.append(name)
        if len(ran) == 1:
            started.set()
            until(lambda: current_job().cancelled)

    one = work.enqueue("a")
    with working(file_app, 1, beat=0.05):
        wait(started)
        (id_,) = worker_ids(file_app)
        assert file_app.store.recover(id_, "taken for dead") == [one.id]
        until(lambda: one.state() == "done")

    assert ran == ["a", "a"]
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert f"job {one.id} was not ours any more: its outcome was refused" in warned
    assert any("taken for dead" in line for line in warned)


def test_what_a_worker_that_was_taken_for_dead_has_not_started_is_not_run_by_it(tmp_path: Path) -> None:
    first, second = App(url(tmp_path)), App(url(tmp_path))
    started, go = threading.Event(), threading.Event()
    held: list[JobContext] = []
    ran: list[tuple[str, int]] = []

    def declare(app: App, name: str) -> Any:
        @app.task(name="work")
        def work(n: int) -> None:
            ran.append((name, n))
            if (name, n) == ("first", 0):
                held.append(current_job())
                started.set()
                wait(go)

        return work

    work = declare(first, "first")
    declare(second, "second")
    work.enqueue_many([(n,) for n in range(2)])  # a new worker claims one more than it has slots
    with working(first, 1, beat=0.02):
        wait(started)
        (id_,) = worker_ids(first)
        second.store.recover(id_, "taken for dead")
        burst(second)
        until(lambda: held[0].cancelled, "the beat")
        go.set()
    first.close()
    second.close()

    assert sorted(ran) == [("first", 0), ("second", 0), ("second", 1)]


# -- store trouble -----------------------------------------------------------------------------------------------


class Faulty:
    """A store whose exchanges may get lost, on the way there or on the way back."""

    def __init__(self, real: Store) -> None:
        self._real = real
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        self.beating: Callable[[], object] = lambda: None
        self.settled: Counter[tuple[str, int]] = Counter()  # by id and token: what the store took
        self.calls: list[str] = []

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[Want], limit: int) -> Exchange:
        self.calls.append("exchange")
        self.before()
        answer = self._real.exchange(worker, settled, wants, limit)
        self.settled.update((s.claim.job.id, s.claim.token) for s in settled if s.claim.job.id not in answer.refused)
        self.after()
        return answer

    def give_back(self, worker: str, keep: Sequence[int] = ()) -> list[str]:
        self.before()
        ids = self._real.give_back(worker, keep)
        self.after()
        return ids

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, Heard]:
        self.beating()
        self.calls.append("beat")
        return self._real.beat(workers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def faulty(app: App) -> Faulty:
    """Put a faulty store before an app's own."""
    made = Faulty(app.store)
    app._stores = (cast(Store, made), app.store_inspect)
    return made


def away(message: str = "The store is away.") -> None:
    raise StoreUnavailable(message)


@pytest.mark.parametrize("seed", range(4))
def test_lost_requests_and_answers_lose_nothing_and_repeat_nothing(file_app: App, seed: int) -> None:
    ran: Counter[int] = Counter()
    chance = random.Random(seed)  # noqa: S311
    left = 8

    @file_app.task(lane="lane", retry=Retry(times=3, backoff=0))
    def laned(lane: str, n: int) -> None:
        ran[n] += 1

    @file_app.task
    async def on_loop(n: int) -> None:
        ran[n] += 1

    @file_app.task
    def slow(n: int) -> None:
        ran[n] += 1
        time.sleep(0.005)

    def maybe() -> None:
        nonlocal left
        if left and chance.random() < 0.25:
            left -= 1
            away()

    store = faulty(file_app)
    for n in range(0, 120, 3):
        laned.enqueue(f"lane-{n % 4}", n)
        on_loop.enqueue(n + 1)
        slow.enqueue(n + 2)
    store.before = store.after = maybe
    burst(file_app, 4)

    assert left < 8
    assert ran == dict.fromkeys(range(120), 1)
    assert set(store.settled.values()) == {1}
    assert len(store.settled) == 120
    assert file_app.inspect.counts() == ALL_DONE
    assert file_app.stats.totals()["processed"] == 120


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

    assert time.monotonic() - start < 3


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
