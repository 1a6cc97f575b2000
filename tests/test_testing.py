"""The helpers for users' tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway import App, Retry, current_job
from laneway.errors import ConfigError, NoCurrentJob
from laneway.testing import wait_until
from workbench import url

pytest_plugins = ["pytester"]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(url(tmp_path))
    yield made
    made.close()


def test_a_fake_keeps_jobs_until_they_are_drained(app: App) -> None:
    ran: list[int] = []

    @app.task
    def work(number: int, *, loud: bool = False) -> None:
        ran.append(number)

    with app.testing("fake") as jobs:
        work.enqueue(1)
        work.enqueue(2, loud=True)
        assert ran == []
        assert jobs.assert_enqueued(work, 1).args == [1]
        jobs.assert_enqueued(work, number=1, loud=False)
        jobs.assert_enqueued(work)
        with pytest.raises(AssertionError, match=r"test_testing.*work\(3\) is not enqueued. Enqueued:\n.*work\(1\)\n.*loud=True"):
            jobs.assert_enqueued(work, 3)
        assert jobs.drain() == 2
        jobs.assert_not_enqueued(work)
    assert ran == [1, 2]
    assert app.inspect.counts()["ready"] == 0, "the app's own store has seen nothing"


def test_jobs_run_in_the_thread_of_the_test_with_their_context(app: App) -> None:
    seen: list[object] = []

    @app.task
    def work() -> None:
        seen.append((threading.get_ident(), current_job().attempt))

    with app.testing("inline"):
        work.enqueue()
    assert seen == [(threading.get_ident(), 1)]


def test_inline_runs_what_jobs_enqueue_after_them(app: App) -> None:
    order: list[str] = []

    @app.task
    def second() -> None:
        order.append("second")

    @app.task
    def first() -> None:
        second.enqueue()
        order.append("first")

    with app.testing("inline"):
        first.enqueue()
    assert order == ["first", "second"]


def test_an_error_surfaces_where_the_test_runs_the_job(app: App) -> None:
    @app.task(retry=Retry(times=2, backoff=30))
    def work() -> None:
        raise ValueError("no")

    with app.testing("inline") as jobs, pytest.raises(ValueError, match="no"):
        work.enqueue()
    with app.testing("fake") as jobs:
        work.enqueue()
        assert jobs.drain(errors="keep") == 1
        assert [job.state for job in jobs.jobs] == ["retrying"]
        for _ in range(2):
            jobs.advance(30)
            assert jobs.drain(errors="keep") == 1
        assert [job.state for job in jobs.jobs] == ["dead"]
        assert jobs.enqueued() == []


def test_time_passes_when_the_test_says_so(app: App) -> None:
    @app.task(keep_result=60)
    def work() -> str:
        return "done"

    with app.testing("fake") as jobs:
        handle = work.using(run_after=3600).enqueue()
        assert jobs.drain() == 0
        jobs.advance(3600)
        assert jobs.drain() == 1
        assert handle.result() == "done"


def test_lanes_uniqueness_and_queues_hold(app: App) -> None:
    order: list[int] = []

    @app.task(lane="key", unique=True, queue="vip")
    def work(key: str, number: int) -> None:
        order.append(number)

    with app.testing("fake") as jobs:
        for number in (3, 1, 3, 2):
            work.enqueue("a", number)
        assert len(jobs.enqueued(work)) == 3
        jobs.drain()
    assert order == [3, 1, 2]


def test_async_tasks_and_async_tests(app: App) -> None:
    ran: list[str] = []

    @app.task
    async def work(name: str) -> None:
        await asyncio.sleep(0)
        ran.append(name)

    with app.testing("inline"):
        work.enqueue("plain")

    async def main() -> None:
        await work.aenqueue("async")

    with app.testing("inline"):
        asyncio.run(main())
    assert ran == ["plain", "async"]


def test_an_unknown_mode_is_refused(app: App) -> None:
    with pytest.raises(ConfigError, match='Did you mean "inline"'):
        app.testing("inlien")


def test_jobs_that_enqueue_each_other_for_ever_are_told_of(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.testing.MOST", 50)

    @app.task
    def work() -> None:
        work.enqueue()

    with app.testing("fake") as jobs:
        work.enqueue()
        with pytest.raises(AssertionError, match="for ever"):
            jobs.drain()


def test_wait_until_gives_what_came_or_says_what_did_not() -> None:
    assert wait_until(lambda: 5) == 5
    with pytest.raises(AssertionError, match=r"the end did not come true within 0.01 s"):
        wait_until(lambda: 0, timeout=0.01, what="the end")


def test_the_pytest_plugin_gives_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        shop="""
        from laneway import App
        app = App("sqlite:///never.db")
        done = []
        @app.task
        def work(number: int) -> None:
            done.append(number)
        """,
        test_shop="""
        import pathlib, shop
        def test_fake(laneway_fake):
            jobs = laneway_fake(shop.app)
            shop.work.enqueue(1)
            jobs.assert_enqueued(shop.work, 1)
            assert shop.done == []
        def test_inline(laneway_inline):
            laneway_inline(shop.app)
            shop.work.enqueue(2)
            assert shop.done == [2]
            assert not pathlib.Path("never.db").exists()
        """,
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


# -- on an event loop --------------------------------------------------------------------------------------------


def test_async_tasks_run_on_the_tests_own_loop(app: App) -> None:
    loops: list[object] = []

    @app.task
    async def fetch(n: int) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        if n:
            await fetch.aenqueue(n - 1)

    @app.task
    def plain() -> None:
        loops.append(asyncio.get_running_loop())

    async def test() -> None:
        with app.testing("fake") as jobs:
            await fetch.aenqueue(2)
            plain.enqueue()
            assert await jobs.adrain() == 4
            assert loops == [asyncio.get_running_loop()] * 4
            assert await jobs.adrain() == 0

    asyncio.run(test())


def test_a_drain_on_an_event_loop_is_refused_where_it_would_stop_the_loop(app: App) -> None:
    @app.task(name="fetch")
    async def fetch() -> None: ...

    @app.task(name="plain")
    def plain() -> None: ...

    async def test() -> None:
        with app.testing("fake") as jobs:
            plain.enqueue()
            assert jobs.drain() == 1
            fetch.enqueue()
            with pytest.raises(ConfigError, match=r"fetch is async.*await jobs\.adrain\(\)"):
                jobs.drain()
            assert [job.state for job in jobs.jobs] == ["ready"]
            assert await jobs.adrain() == 1

    asyncio.run(test())


@pytest.mark.parametrize("error", [ValueError("no luck"), StopIteration("odd")])
def test_an_error_on_an_event_loop_is_the_tests_own(app: App, error: Exception) -> None:
    @app.task(retry=Retry(times=1, backoff=0))
    def broken() -> None:
        raise error

    async def test() -> None:
        with app.testing("fake") as jobs:
            broken.enqueue()
            with pytest.raises(type(error)):
                jobs.drain()
            assert [job.attempt for job in jobs.jobs] == [1]
            assert await jobs.adrain(errors="keep") == 1
            assert [job.state for job in jobs.jobs] == ["dead"]
            broken.enqueue()
            with pytest.raises((type(error), RuntimeError)):
                await jobs.adrain()
            with pytest.raises(ConfigError, match="errors="):
                await jobs.adrain(errors="hide")

    asyncio.run(test())


# -- a job without a worker --------------------------------------------------------------------------------------


def test_code_that_asks_for_its_job_can_be_called_directly(app: App) -> None:
    @app.task(name="flaky", queue="slow")
    def flaky(n: int) -> str:
        job = current_job()
        return f"{n} {job.task} {job.queue} {job.lane} {job.attempt} {dict(job.headers)}"

    with app.testing("fake") as jobs:
        with jobs.running(flaky, attempt=2, lane="a", headers={"trace": "7"}) as job:
            assert flaky(1) == "1 flaky slow a 2 {'trace': '7'}"
            job.cancelled = True
            assert current_job().cancelled
            with jobs.running("elsewhere"):
                assert (current_job().task, current_job().attempt) == ("elsewhere", 1)
            assert current_job() is job
        with pytest.raises(NoCurrentJob):
            flaky(1)


# -- with other plugins ------------------------------------------------------------------------------------------

PLUGGED = """
import pytest
from laneway import App

app = App("sqlite://")


@app.task(keep_result=60)
async def add(a: int, b: int) -> int:
    return a + b


{marked}
async def test_an_async_task(laneway_fake):
    jobs = laneway_fake(app)
    job = await add.aenqueue(1, 2)
    await jobs.adrain()
    assert await job.aresult(timeout=5) == 3
"""
ANYIO = "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n\n\n@pytest.mark.anyio"


@pytest.mark.parametrize(
    ("plugin", "marked"), [("pytest_asyncio", "@pytest.mark.asyncio"), ("anyio", ANYIO)], ids=["pytest-asyncio", "anyio"]
)
def test_async_tests_drain_under_the_usual_plugins(plugin: str, marked: str, tmp_path: Path) -> None:
    pytest.importorskip(plugin)
    (tmp_path / "test_it.py").write_text(PLUGGED.format(marked=marked), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "1 passed" in done.stdout, done.stdout
