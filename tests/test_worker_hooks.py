"""Middlewares around runs, and hooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from laneway import App, Cancel, LaneFailures, Retry, Snooze, Worker, current_job
from laneway.core.outcome import Dead
from laneway.desk.context import JobContext
from laneway.errors import DeclarationError
from workbench import ALL_DONE, burst, faulty, info

EVERY_STORE = True

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


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("more", [{}, {"timeout": 30}], ids=["", "timeout"])
def test_middlewares_see_what_a_run_meant(app: App, is_async: bool, more: dict[str, Any]) -> None:
    seen: dict[str, list[str | None]] = {}

    @app.middleware
    def outcomes(job: JobContext) -> Generator[None, None, None]:
        assert job.outcome is None
        try:
            yield
        finally:
            name = None if job.outcome is None else type(job.outcome).__name__
            seen.setdefault(str(job.args[0]), []).append(name)

    def run(how: str) -> str:
        match how:
            case "snooze" if len(seen.get(how, ())) == 0:
                raise Snooze(0)
            case "cancel":
                raise Cancel("no")
            case "dies":
                raise ValueError(how)
            case "exits":
                raise SystemExit(3)
            case _:
                return how

    async def arun(how: str) -> str:
        return run(how)

    function = arun if is_async else run
    task = app.task(name="run", retry=Retry(times=1, backoff=0), keep_result=60, **more)(function)
    handles = {how: task.enqueue(how) for how in ("done", "snooze", "cancel", "dies", "exits")}
    burst(app)
    assert seen == {
        "done": ["Done"], "snooze": ["Snoozed", "Done"], "cancel": ["Cancelled"], "dies": ["Retrying", "Dead"],
        "exits": ["Dead"],
    }  # fmt: skip
    assert {how: job.state() for how, job in handles.items()} == {
        "done": "done", "snooze": "done", "cancel": "cancelled", "dies": "dead", "exits": "dead",
    }  # fmt: skip
    assert handles["done"].result(timeout=5) == "done"


@pytest.mark.parametrize("is_async", [False, True])
def test_middlewares_see_that_a_run_took_too_long(app: App, is_async: bool) -> None:
    seen: list[object] = []

    @app.middleware
    def outcomes(job: JobContext) -> Generator[None, None, None]:
        try:
            yield
        finally:
            seen.append(job.outcome)

    async def aslow() -> None:
        await asyncio.sleep(60)

    def slow() -> None:
        for _ in range(6000):
            time.sleep(0.01)

    function = aslow if is_async else slow
    app.task(name="slow", retry=Retry(times=0), timeout=0.2)(function).enqueue()
    burst(app)
    [outcome] = seen
    assert isinstance(outcome, Dead)
    assert outcome.error.kind == "laneway.errors.JobTimeout"


def test_an_error_of_a_middleware_decides_and_is_told_once(app: App, caplog: pytest.LogCaptureFixture) -> None:
    died: list[str] = []

    @app.middleware
    def strict(job: JobContext) -> Generator[None, None, None]:
        try:
            yield
        finally:
            raise RuntimeError("the middleware's own")

    @app.on_death
    def dead(job: JobContext, error: BaseException) -> None:
        died.append(str(error))

    @app.task(name="fails", retry=Retry(times=0))
    def fails() -> None:
        raise ValueError("the job's own")

    job = fails.enqueue()
    burst(app)
    assert died == ["the middleware's own"]
    assert info(app, job).errors[-1].message == "the middleware's own"
    assert "the job's own" not in [record.getMessage() for record in caplog.records if "is dead" in record.getMessage()]


def test_of_several_lanes_the_gravest_outcome_counts(app: App) -> None:
    seen: list[tuple[object, ...]] = []

    @app.middleware
    def outcomes(job: JobContext) -> Generator[None, None, None]:
        assert (job.outcome, job.outcomes) == (None, ())
        try:
            yield
        finally:
            named = {lane: outcome.name for lane, outcome in zip(job.lanes, job.outcomes, strict=True)}
            seen.append((named, job.outcome and job.outcome.name))

    @app.collector(name="sync", max_lanes=10, retry=Retry(times=0))
    def sync(lanes: dict[str, list[int]]) -> None:
        if len(lanes) > 1:
            raise LaneFailures({"b": Snooze(3600), "c": ValueError("no")})

    for lane in "abc":
        sync.enqueue(lane, 1)
    burst(app, slots=1)
    assert seen == [({"a": "done", "b": "snoozed", "c": "dead"}, "dead")]


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
