"""What is asked of a worker: cancel, quiet, stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from laneway import App, Cancel, Retry, Worker, current_job
from laneway.desk.context import JobContext
from workbench import DEADLINE, Running, burst, until, url, wait, worker_ids, working

EVERY_STORE = True

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
        until(lambda: worker._session is not None and worker._session.quiet)
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
    until(lambda: running.worker._session is not None and running.worker._session.stopping)
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
    (line,) = warned
    assert line.startswith(
        "the store does not know this worker any more: it was taken for dead and its claims were recovered, or"
    )


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
