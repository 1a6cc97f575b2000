"""What a job knows while it runs, and what its run means."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from laneway import App, Cancel, Retry, RetryIn, Snooze, Worker, current_job
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Done, Settled
from laneway.desk.context import JobContext
from laneway.desk.enqueue import Draft
from laneway.errors import JobCancelled, JobFailed, NoCurrentJob, NoResult, ResultTimeout
from laneway.worker.board import Board
from laneway.worker.executors import LoopSlots
from laneway.worker.run import Runner
from settling import settled_alike
from workbench import DEADLINE, burst, info, until, url, wait, working

EVERY_STORE = True

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


def test_context_variables_of_an_async_job_are_not_those_of_the_one_that_waited_behind_it() -> None:
    """There is one seat for both: the end of the first starts the second."""
    seen: list[str] = []
    over = threading.Event()

    class Two:
        async def arun(self, claim: Claim) -> Settled:
            seen.append(VARIABLE.get())
            VARIABLE.set("set by the first")
            return settled_alike(claim, Done())

    def ended(_: Settled) -> None:
        if len(seen) == 2:
            over.set()

    seats = LoopSlots(1, cast("Runner", Two()), ended, lambda error: None, Board(1))
    seats.hand([Claim(token, "default", "on_loop", (Unit(id_, None, 1, 0, 0),)) for token, id_ in enumerate("ab", 1)])
    wait(over)
    seats.close(DEADLINE)

    assert seen == ["clean", "clean"]


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
