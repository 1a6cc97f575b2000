"""Middlewares around runs, and hooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from laneway import App, Retry, Worker, current_job
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
