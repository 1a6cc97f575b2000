"""Jobs by id from any process, handles on event loops, enqueueing by name with options, and values as dicts."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from laneway import App, Cancel, JobHandle, Retry, Worker, current_job
from laneway.errors import BadOption, JobCancelled, JobFailed, NoResult, ResultTimeout, UnknownJob, UnknownTask
from workbench import until, working

EVERY_STORE = True


@pytest.fixture
def other(app: App) -> App:
    """An app of another program, on the same store: it knows no task."""
    if app.url == "sqlite://":
        made = App(app.url)
        made.swap_stores((app.store, app.store_inspect))
        return made
    return App(app.url)


def test_a_job_is_known_by_its_id_in_another_program(app: App, other: App) -> None:
    @app.task(name="add", keep_result=60)
    def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    job = other.job(add.enqueue(1, 2).id)
    assert (job.state(), job.info().task, job.info().args, job.created) == ("ready", "add", [1, 2], False)
    Worker(app, 1).run(burst=True)
    assert (job.state(), job.result(timeout=5)) == ("done", {"sum": 3})
    assert str(job) == f"job {job.id}"


def test_a_result_by_id_has_the_type_that_its_task_declares(app: App) -> None:
    @app.task(name="day", keep_result=60)
    def day() -> date:
        return date(2024, 2, 29)

    id_ = day.enqueue().id
    Worker(app, 1).run(burst=True)
    assert app.job(id_).result(timeout=5) == date(2024, 2, 29)
    assert asyncio.run(app.job(id_).aresult(timeout=5)) == date(2024, 2, 29)


def test_a_finished_job_is_known_with_its_record(app: App, other: App) -> None:
    @app.task(name="add", queue="sums", lane="a", keep_result=60, retry=Retry(times=2, backoff=0))
    def add(a: int, b: int) -> int:
        job = current_job()
        job.log(f"attempt {job.attempt}")
        if job.attempt == 1:
            raise ValueError("once")
        return a + b

    @app.task(name="unwanted", keep_result=60)
    def unwanted() -> None:
        raise Cancel("nobody wants it")

    @app.task(name="alone", keep_result=60, isolate=True)
    def alone() -> int:
        return 7

    id_, gone, apart = add.enqueue(1, b=2).id, unwanted.enqueue().id, alone.enqueue().id
    with working(app, 2):
        assert app.job(id_).result(timeout=20) == 3
        assert app.job(apart).result(timeout=20) == 7
        until(lambda: other.job(gone).state() == "cancelled")
    found = other.job(id_).info()
    assert (found.state, found.task, found.queue, found.lane, found.attempt) == ("done", "add", "sums", "1", 2)
    assert (found.args, found.kwargs, [error.message for error in found.errors]) == ([1], {"b": 2}, ["once"])
    assert found.log[:1] == ["attempt 1"]
    assert found.worker
    assert found.started_at is not None and found.finished_at is not None  # noqa: PT018 - for type checkers
    assert found.enqueued_at <= found.started_at <= found.finished_at
    assert other.job(gone).info().state == "cancelled"
    assert re.search(r"it was done .* ago, in attempt 2; worker \S+ made its last run, which took", str(other.job(id_).explain()))
    assert [one.id for one in other.inspect.jobs(state="done", task="add")] == [id_]
    assert json.loads(json.dumps(found.as_dict()))["finished_at"] == found.finished_at.isoformat()
    assert other.inspect.delete(id_)
    with pytest.raises(NoResult):
        other.job(id_).result(timeout=5)


def test_nobody_is_asked_before_somebody_asks(app: App) -> None:
    job = app.job("never-was")
    assert (job.state(), job.cancel()) == ("gone", False)
    with pytest.raises(UnknownJob, match="never-was"):
        job.info()
    with pytest.raises(UnknownJob):
        job.explain()
    with pytest.raises(NoResult):
        job.result(timeout=5)


@pytest.mark.parametrize("id_", ["", "x\n", "a" * 5000, "\ud800", "\0", "ü"])
def test_what_can_be_no_id_is_no_job(app: App, id_: str) -> None:
    app.enqueue("t")
    assert (app.job(id_).state(), app.job(id_).cancel()) == ("gone", False)


@pytest.mark.parametrize("id_", [None, 5, b"x"])
def test_an_id_is_a_string(app: App, id_: Any) -> None:
    with pytest.raises(BadOption, match="use the id of a job"):
        app.job(id_)


def test_an_id_cancels_and_explains(app: App, other: App) -> None:
    @app.task(name="wait")
    def wait() -> None: ...

    id_ = wait.using(run_after=600).enqueue().id
    assert other.job(id_).explain().state == "scheduled"
    assert other.job(id_).cancel()
    assert other.job(id_).state() == "cancelled"


# -- on an event loop --------------------------------------------------------------------------------------------


def test_a_handle_answers_on_an_event_loop(app: App) -> None:
    @app.task(name="add", keep_result=60)
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="broken", keep_result=60, retry=Retry(times=0))
    def broken() -> None:
        raise ValueError("no luck")

    async def ask() -> None:
        done, dead = await add.aenqueue(1, 2), await broken.aenqueue()
        dropped = await add.using(run_after=600).aenqueue(1, 1)
        assert (await done.astate(), (await done.ainfo()).task) == ("ready", "add")
        assert (await dropped.aexplain()).state == "scheduled"
        assert await dropped.acancel()
        with pytest.raises(ResultTimeout, match="is ready after 0 s"):
            await done.aresult(timeout=0)
        with pytest.raises(ResultTimeout, match=r"is ready after 0\.01 s"):
            await done.aresult(timeout=0.01)
        threading.Thread(target=lambda: Worker(app, 2).run(burst=True)).start()
        assert {*await asyncio.gather(done.aresult(timeout=20), app.job(done.id).aresult(timeout=20))} == {3}
        with pytest.raises(JobFailed, match=r"broken .* is dead: ValueError: no luck"):
            await dead.aresult(timeout=20)
        with pytest.raises(JobCancelled):
            await dropped.aresult()

    asyncio.run(ask())


def test_waiting_for_a_result_does_not_stop_the_loop(app: App) -> None:
    go = threading.Event()

    @app.task(name="slow", keep_result=60)
    def slow() -> str:
        assert go.wait(20)
        return "slow"

    async def ask() -> tuple[str, int]:
        job = await slow.aenqueue()
        waiting = asyncio.create_task(job.aresult(timeout=20))
        turns = 0
        while not waiting.done():
            turns += 1
            if turns == 50:
                go.set()
            await asyncio.sleep(0.001)
        return await waiting, turns

    with working(app, 1):
        result, turns = asyncio.run(ask())
    assert (result, turns >= 50) == ("slow", True)


def test_a_wait_that_is_cancelled_leaves_the_job_alone(app: App) -> None:
    @app.task(name="t", keep_result=60)
    def t() -> int:
        return 1

    async def ask() -> JobHandle[int]:
        job = await t.aenqueue()
        waiting = asyncio.create_task(job.aresult())
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return job

    job = asyncio.run(ask())
    Worker(app, 1).run(burst=True)
    assert job.result(timeout=5) == 1


def test_a_result_is_not_waited_for_on_an_event_loop(app: App) -> None:
    @app.task(name="t", keep_result=60)
    def t() -> int:
        return 1

    async def ask() -> None:
        job = t.enqueue()
        before = time.monotonic()
        with pytest.raises(BadOption, match=r"await job\.aresult\(\)"):
            job.result(timeout=20)
        assert time.monotonic() - before < 10
        with pytest.raises(ResultTimeout):  # in a thread beside the loop it is as ever
            await asyncio.to_thread(job.result, timeout=0)

    asyncio.run(ask())


def test_a_forked_child_has_threads_of_its_own(tmp_path: Path) -> None:
    import os  # noqa: PLC0415

    app = App(f"sqlite:///{tmp_path}/jobs.db")
    handle = app.enqueue("t")
    assert asyncio.run(handle.astate()) == "ready"
    app.close()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if asyncio.run(handle.astate()) == "ready" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    app.close()


# -- by name -----------------------------------------------------------------------------------------------------


def test_a_program_without_the_code_says_where_and_when(app: App, other: App) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    where = other.using(queue="mail", lane=7, retry=Retry(times=2, backoff=[1, 2]))
    job = where.using(run_after=soon).enqueue("shop.add", 1, b=2)
    found = app.inspect.job(job.id)
    assert found is not None
    assert (found.task, found.queue, found.lane, found.state) == ("shop.add", "mail", "7", "scheduled")
    assert (found.args, found.kwargs, found.due_at) == ([1], {"b": 2}, soon)
    assert not where.using(id=job.id).enqueue("shop.add").created


def test_of_a_task_that_is_known_the_arguments_are_checked_and_its_own_options_hold(app: App) -> None:
    @app.task(name="add", queue="sums", keep_result=60)
    def add(a: int, b: int) -> int:
        return a + b

    assert app.using(priority=5).enqueue("add", 1, b=2).info().queue == "sums"
    with pytest.raises(TypeError):
        app.using(priority=5).enqueue("add", 1, c=2)
    with pytest.raises(UnknownTask, match='Did you mean "add"'):
        app.using(priority=5).enqueue("ad", 1)
    assert app.using(queue="x").enqueue("ad", 1, check=False).info().queue == "x"


def test_by_name_from_an_event_loop_and_many_at_once(app: App, other: App) -> None:
    async def ask() -> tuple[JobHandle[Any], ...]:
        return await asyncio.gather(other.aenqueue("a", 1), other.using(queue="q").aenqueue("b", 2))

    assert [job.info().queue for job in asyncio.run(ask())] == ["default", "q"]
    assert other.enqueue_many(other.using(queue="q").bind("c", n) for n in range(10)) == 10
    assert app.inspect.count(queue="q") == 11


@pytest.mark.parametrize(
    ("options", "words"),
    [({"countdown": 5}, "no option"), ({"queue": ""}, "option queue"), ({"run_after": "soon"}, "option run_after")],
)
def test_a_wrong_option_is_refused_where_it_is_written(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        app.using(**options)


# -- as dicts ----------------------------------------------------------------------------------------------------


def test_what_is_handed_out_can_be_had_as_json(app: App) -> None:
    go = threading.Event()

    @app.task(name="hold")
    def hold(order: int, *, note: str = "") -> None:
        assert go.wait(20)

    @app.task(name="broken", retry=Retry(times=0), schedule="0 3 * * *")
    def broken() -> None:
        raise ValueError("no")

    @app.collector(name="orders")
    def orders(lanes: dict[str, list[int]]) -> None: ...

    orders.using(run_after=600).enqueue("a", 1)
    dead, running = broken.enqueue(), hold.using(lane="c7").enqueue(1, note="x")
    with working(app, 2, beat=0.05):
        until(lambda: running.state() == "running" and dead.state() == "dead")
        until(lambda: any(job.started_at for worker in app.inspect.workers() for job in worker.jobs), "the beat")
        shown: dict[str, Callable[[], Any]] = {
            "job": running.info, "dead": dead.info, "queue": lambda: app.inspect.queues()[0], "why": running.explain,
            "worker": lambda: app.inspect.workers()[0], "run": lambda: app.stats.recent()[0],
            "lane": lambda: app.inspect.lanes(queue="orders")[0], "payload": lambda: app.inspect.payloads("orders", "a")[0],
            "schedule": lambda: app.inspect.schedules()[0], "summary": lambda: app.stats.tasks()["hold"],
            "point": lambda: app.stats.series(20)[0], "day": lambda: app.stats.history(1)[0],
            "group": lambda: app.stats.errors()[0],
        }  # fmt: skip
        until(lambda: app.stats.errors() and "hold" in app.stats.tasks(), "statistics")
        found = {name: json.loads(json.dumps(get().as_dict())) for name, get in shown.items()}
        go.set()
    assert (found["job"]["args"], found["job"]["kwargs"], found["job"]["state"]) == ([1], {"note": "x"}, "running")
    assert datetime.fromisoformat(found["job"]["enqueued_at"]).tzinfo is not None
    assert "body" not in found["job"]
    [error] = found["dead"]["errors"]
    assert (error["kind"], error["message"], error["attempt"]) == ("ValueError", "no", 1)
    assert datetime.fromisoformat(error["at"]).tzinfo is not None
    assert found["worker"]["busy"] == 1
    assert [job["task"] for job in found["worker"]["jobs"]] == ["hold"]
    assert found["payload"]["value"] == 1
    assert (found["run"]["outcome"], found["group"]["error"]["kind"]) == ("dead", "ValueError")
