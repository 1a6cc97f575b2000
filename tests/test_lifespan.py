"""Lifespans: around a worker's life, on its event loop, in isolated runs, in tests, and when they fail."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import importlib.util
import logging
import os
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import redisbench
from fleetharm import Yard, open_yard
from laneway import App, Cancel, JobContext, Retry, Worker, current_job
from laneway.errors import ConfigError, DeclarationError, LifespanError
from workbench import ALL_DONE, DEADLINE, SOON, Running, burst, until, wait, working

#: For ever, as far as a test is concerned.
LONG = 10 * DEADLINE

Told = Callable[..., list[str]]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Call it with a word to write it down, from any process; without one to read what was written."""
    path = tmp_path / "told"
    path.touch()

    def tell_or_read(word: object = None) -> list[str]:
        if word is not None:
            with path.open("a") as file:
                file.write(f"{word}\n")
        return path.read_text().splitlines()

    return tell_or_read


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as made:
        yield made


def around(app: App, name: str, told: Told, found: Mapping[str, Any] | None = None, *, is_async: bool = False) -> None:
    """Declare a lifespan that tells when it is entered and left."""

    def plain() -> Iterator[Mapping[str, Any] | None]:
        told(f"{name} in")
        yield found
        told(f"{name} out")

    async def on_loop() -> AsyncIterator[Mapping[str, Any] | None]:
        await asyncio.sleep(0)
        told(f"{name} in")
        yield found
        await asyncio.sleep(0)
        told(f"{name} out")

    app.lifespan(on_loop) if is_async else app.lifespan(plain)


# -- around a worker ---------------------------------------------------------------------------------------------


def test_lifespans_are_entered_in_order_before_the_first_run_and_left_in_reverse_after_the_last(app: App, told: Told) -> None:
    around(app, "a", told, {"one": 1})
    around(app, "b", told, None, is_async=True)
    around(app, "c", told, {"two": 2, "three": 3})
    app.on_start(lambda: told("start"))
    app.on_stop(lambda: told("stop"))

    @app.task
    def work() -> None:
        told(sorted(current_job().resources.items()))

    work.enqueue()
    burst(app)

    values = "[('one', 1), ('three', 3), ('two', 2)]"
    assert told() == ["a in", "b in", "c in", "start", values, "stop", "c out", "b out", "a out"]


def test_an_async_lifespan_lives_on_the_loop_of_the_async_tasks_in_one_task(app: App) -> None:
    seen: dict[str, object] = {}

    @app.lifespan
    async def scope() -> AsyncIterator[Mapping[str, Any]]:
        async with asyncio.TaskGroup(), asyncio.timeout(LONG):  # both demand that the task that leaves is the one that entered
            seen["entered"] = asyncio.get_running_loop()
            yield {"lock": asyncio.Lock(), "ticker": asyncio.create_task(asyncio.sleep(0))}
        seen["left"] = asyncio.get_running_loop()

    @app.task
    async def work() -> None:
        await current_job().resources["ticker"]
        async with current_job().resources["lock"]:
            seen["ran"] = asyncio.get_running_loop()

    work.enqueue()
    burst(app)

    assert list(seen) == ["entered", "ran", "left"]
    assert len({id(loop) for loop in seen.values()}) == 1


def test_the_loop_turns_for_async_lifespans_though_no_task_is_async(app: App) -> None:
    @app.lifespan
    async def ticking() -> AsyncIterator[Mapping[str, Any]]:
        yield {"loop": asyncio.get_running_loop()}

    @app.task(keep_result=60)
    def work() -> int:
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 7), current_job().resources["loop"]).result(DEADLINE)

    handle = work.enqueue()
    burst(app)

    assert handle.result() == 7


def test_a_plain_lifespan_is_left_in_the_thread_that_entered_it(app: App, tmp_path: Path) -> None:
    @app.lifespan
    def database() -> Iterator[Mapping[str, Any]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as connection:  # it checks the thread
            yield {"connection": connection}

    app.task(name="work")(lambda: None).enqueue()
    burst(app)


def test_a_lifespan_may_take_the_worker(app: App) -> None:
    slots: list[int] = []

    @app.lifespan
    def pool(worker: Worker) -> Iterator[None]:
        slots.append(worker.slots)
        yield

    burst(app, slots=3)

    assert slots == [3]


def test_resources_are_read_only_and_empty_where_no_lifespan_yields_any(app: App) -> None:
    seen: list[Any] = []

    @app.middleware
    def look(job: JobContext) -> Iterator[None]:
        seen.append(job.resources)
        yield

    app.task(name="work")(lambda: None).enqueue()
    burst(app)

    assert seen == [{}]
    with pytest.raises(TypeError):
        seen[0]["db"] = 1


def test_collectors_have_resources_too(app: App, told: Told) -> None:
    around(app, "a", told, {"db": "pool"})

    @app.collector
    def gather(lanes: dict[str, list[int]]) -> None:
        told(current_job().resources["db"])

    gather.enqueue("x", 1)
    burst(app)

    assert told() == ["a in", "pool", "a out"]


def test_a_worker_that_is_stopped_lets_its_job_end_before_it_leaves(app: App, told: Told) -> None:
    around(app, "a", told)
    around(app, "b", told, is_async=True)
    runs, go = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        runs.set()
        wait(go)
        told("ran")

    handle = work.enqueue()
    running = Running(Worker(app, 2))
    wait(runs)
    running.worker.stop()
    go.set()
    running.join()

    assert handle.state() == "done"
    assert told() == ["a in", "b in", "ran", "b out", "a out"]


def test_a_job_that_outlives_the_stop_does_not_keep_lifespans_from_being_left(app: App, told: Told) -> None:
    around(app, "a", told)
    around(app, "b", told, is_async=True)
    runs, go, ended = threading.Event(), threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        runs.set()
        wait(go)
        ended.set()

    work.enqueue()
    running = Running(Worker(app, 2, shutdown_timeout=0.1))
    wait(runs)
    running.worker.stop()
    running.join()

    assert (told(), ended.is_set()) == (["a in", "b in", "b out", "a out"], False)
    go.set()
    wait(ended)


def test_lifespans_are_left_when_the_worker_dies_of_an_internal_error(
    app: App, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    around(app, "a", told)
    monkeypatch.setattr("laneway.worker.exchanger.Exchanger.step", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        burst(app)

    assert told() == ["a in", "a out"]


# -- errors at the start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lifespan_that_raises_at_the_start_keeps_the_worker_from_claiming(app: App, told: Told, is_async: bool) -> None:
    around(app, "a", told)
    around(app, "b", told, is_async=True)

    def broken() -> Iterator[None]:
        raise OSError("no\nroute")
        yield

    async def abroken() -> AsyncIterator[None]:
        raise OSError("no\nroute")
        yield

    app.lifespan(abroken) if is_async else app.lifespan(broken)
    for declare in (app.on_start, app.on_stop, app.on_crash):
        declare(lambda: told("hook"))
    handle = app.task(name="work")(lambda: None).enqueue()

    with pytest.raises(LifespanError, match=r"^lifespan \S*broken raised OSError: no route$") as raised:
        burst(app)

    assert isinstance(raised.value.__cause__, OSError)
    assert told() == ["a in", "b in", "b out", "a out"]
    assert (handle.state(), app.inspect.workers()) == ("ready", [])


def never() -> Iterator[None]:
    return
    yield


async def anever() -> AsyncIterator[None]:
    return
    yield


def a_list() -> Iterator[Any]:
    yield ["db"]


async def an_exit() -> AsyncIterator[None]:
    raise SystemExit(3)
    yield


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (never, r"never did not yield: it must yield once$"),
        (anever, r"anever did not yield: it must yield once$"),
        (a_list, r'a_list yielded a list: use a mapping, such as \{"db": pool\}, or nothing$'),
        (an_exit, r"an_exit raised SystemExit: 3$"),
    ],
)
def test_a_lifespan_that_is_wrong_is_named(
    app: App, told: Told, function: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    around(app, "a", told)
    app.lifespan(function)

    with pytest.raises(LifespanError, match=said):
        burst(app)
    gc.collect()  # a task that still waits would be noticed now

    assert (told(), caplog.messages) == (["a in", "a out"], [])


def test_two_lifespans_cannot_yield_the_same_name(app: App, told: Told) -> None:
    around(app, "a", told, {"db": 1})
    around(app, "b", told, {"db": 2}, is_async=True)

    with pytest.raises(LifespanError, match=r"^lifespans .*plain and .*on_loop both yield 'db': rename one of them$"):
        burst(app)

    assert told() == ["a in", "b in", "b out", "a out"]


def test_what_cannot_be_a_lifespan_is_refused_where_it_is_declared(app: App) -> None:
    @contextlib.asynccontextmanager
    async def wrapped() -> AsyncGenerator[None]:
        yield

    def two(worker: Worker, more: object) -> Iterator[None]:
        yield

    wrong: list[tuple[Any, str]] = [
        (lambda: None, "must be a function that yields once, where the worker works$"),
        (7, "^7 is not a lifespan"),
        (wrapped, "leave out what wraps it, such as @contextmanager$"),
        (two, "a lifespan takes the worker, or nothing$"),
    ]
    for function, said in wrong:
        with pytest.raises(DeclarationError, match=said):
            app.lifespan(function)


# -- errors at the end -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("how", ["raises", "yields twice"])
def test_an_error_at_the_end_is_logged_and_the_others_are_left(
    app: App, told: Told, is_async: bool, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    around(app, "a", told)

    def bad() -> Iterator[None]:
        yield
        if how == "raises":
            raise OSError("still busy")
        yield

    async def abad() -> AsyncIterator[None]:
        for value in bad():
            yield value

    app.lifespan(abad) if is_async else app.lifespan(bad)
    around(app, "c", told, is_async=True)
    handle = app.task(name="work")(lambda: None).enqueue()
    burst(app)

    said = "raised OSError when it was left: still busy" if how == "raises" else "it yielded twice: a lifespan must yield once"
    assert said in caplog.text
    assert (handle.state(), told()) == ("done", ["a in", "c in", "c out", "a out"])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lifespan_that_hangs_at_its_end_does_not_hold_up_the_stop(
    app: App, told: Told, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    around(app, "a", told)
    over = threading.Event()

    def hangs() -> Iterator[None]:
        yield
        over.wait(LONG)

    async def ahangs() -> AsyncIterator[None]:
        yield
        try:
            await asyncio.sleep(LONG)
        finally:
            told("cancelled")

    app.lifespan(ahangs) if is_async else app.lifespan(hangs)
    since = time.monotonic()
    burst(app, shutdown_timeout=0)

    assert time.monotonic() - since < SOON
    assert "hangs did not end within 0.4 s; the worker exits without it" in caplog.text
    over.set()
    until(lambda: "a out" in told(), "the end of the outer lifespan, once the inner one has ended")
    assert ("cancelled" in told()) is is_async


def test_a_lifespan_whose_task_group_fails_is_told_so_at_once(app: App, caplog: pytest.LogCaptureFixture) -> None:
    runs, fail, left = threading.Event(), threading.Event(), threading.Event()

    async def breaks() -> None:
        while not fail.is_set():
            await asyncio.sleep(0.005)
        raise OSError("lost the connection")

    @app.lifespan
    async def group() -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(breaks())
                yield
        finally:
            left.set()

    @app.task
    def work() -> None:
        runs.set()

    with working(app):
        work.enqueue()
        wait(runs)
        assert not left.is_set()
        fail.set()
        wait(left)
        until(lambda: "group has ended while its worker runs" in caplog.text, "a line in the log")
        second = work.enqueue()
        until(lambda: second.state() == "done")
    assert "OSError: lost the connection" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_ends_a_worker_that_still_enters_its_lifespans(app: App, told: Told, is_async: bool) -> None:
    around(app, "a", told)
    enters, over = threading.Event(), threading.Event()

    def waits() -> Iterator[None]:
        enters.set()
        over.wait(LONG)
        yield
        told("left")

    async def awaits() -> AsyncIterator[None]:
        enters.set()
        await asyncio.sleep(LONG)
        yield

    app.lifespan(awaits) if is_async else app.lifespan(waits)
    around(app, "c", told)
    handle = app.task(name="work")(lambda: None).enqueue()
    since = time.monotonic()
    running = Running(Worker(app, shutdown_timeout=LONG if is_async else 0.1))
    wait(enters)
    running.worker.stop()
    running.join()

    assert time.monotonic() - since < SOON
    assert handle.state() == "ready"
    over.set()
    until(lambda: told()[-1] == "a out", "the end of what was entered")
    assert told() == ["a in", *([] if is_async else ["left"]), "a out"]


def test_a_worker_that_enters_for_long_is_not_taken_for_a_frozen_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}", dead_after=3)

    @app.lifespan
    def slow() -> Iterator[None]:
        time.sleep(2)  # half of that would be enough for a worker that runs jobs
        yield

    handle = app.task(name="work")(lambda: None).enqueue()
    with caplog.at_level(logging.WARNING, "laneway"):
        burst(app)

    assert (handle.state(), caplog.messages) == ("done", [])
    app.close()


# -- isolated runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_each_isolated_run_has_lifespans_of_its_own(file_app: App, told: Told, is_async: bool) -> None:
    @file_app.lifespan
    def plain(worker: Worker) -> Iterator[Mapping[str, Any]]:
        told(f"in {os.getpid()} {worker.slots}")
        yield {"pid": os.getpid()}
        told(f"out {os.getpid()}")

    @file_app.lifespan
    async def on_loop() -> AsyncIterator[Mapping[str, Any]]:
        async with asyncio.timeout(LONG):
            yield {"loop": asyncio.get_running_loop()}

    def work() -> None:
        assert asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 7), current_job().resources["loop"]).result(DEADLINE) == 7
        told(f"ran {current_job().resources['pid']}")

    async def awork() -> None:
        assert current_job().resources["loop"] is asyncio.get_running_loop()
        assert threading.current_thread() is threading.main_thread()
        told(f"ran {current_job().resources['pid']}")

    declare = file_app.task(name="work", isolate=True, retry=Retry(times=0))
    handles = [(declare(awork) if is_async else declare(work)).enqueue() for _ in range(2)]
    burst(file_app, slots=1)

    assert [handle.state() for handle in handles] == ["done", "done"]
    us = os.getpid()
    (first, second) = {word.split()[1]: None for word in told() if word.startswith("ran")}
    assert us not in (int(first), int(second))
    one_by_one = [[f"in {pid} 1", f"ran {pid}", f"out {pid}"] for pid in (first, second)]
    assert told() == [f"in {us} 1", *one_by_one[0], *one_by_one[1], f"out {us}"]


def test_an_isolated_run_whose_lifespan_raises_has_failed_with_its_error(file_app: App, told: Told) -> None:
    us = os.getpid()
    around(file_app, "a", lambda word: told(f"{word} {os.getpid() == us}"))

    @file_app.lifespan
    def second_time() -> Iterator[None]:
        if os.getpid() != us and "tried" not in told():
            told("tried")
            raise ConnectionError("no database")
        yield

    @file_app.task(isolate=True, retry=Retry(times=1, backoff=0, on=(ConnectionError,)))
    def work() -> None:
        told(f"attempt {current_job().attempt}")

    handle = work.enqueue()
    burst(file_app)

    assert handle.state() == "done"
    child = ["a in False", "tried", "a out False", "a in False", "attempt 2", "a out False"]
    assert told() == ["a in True", *child, "a out True"]


def test_the_time_of_lifespans_is_not_the_jobs_time(file_app: App, told: Told) -> None:
    us = os.getpid()

    @file_app.lifespan
    def slow() -> Iterator[None]:
        time.sleep(0.6 * (os.getpid() != us))
        yield
        time.sleep(0.6 * (os.getpid() != us))
        told("left")

    @file_app.task(isolate=True, timeout=0.3, retry=Retry(times=0))
    def work() -> None: ...

    handle = work.enqueue()
    burst(file_app)

    assert (handle.state(), told()) == ("done", ["left", "left"])


def test_an_isolated_run_that_hangs_in_its_lifespans_end_is_done(file_app: App, caplog: pytest.LogCaptureFixture) -> None:
    us = os.getpid()

    @file_app.lifespan
    def hangs() -> Iterator[None]:
        yield
        time.sleep(LONG * (os.getpid() != us))

    @file_app.task(isolate=True)
    def work() -> None: ...

    handle = work.enqueue()
    since = time.monotonic()
    burst(file_app, shutdown_timeout=0)

    assert (handle.state(), time.monotonic() - since < SOON) == ("done", True)
    assert "its process did not exit 1 s after the run; sending SIGKILL" in caplog.text


def test_a_cancelled_job_does_not_wait_for_its_lifespans(file_app: App, told: Told) -> None:
    us = os.getpid()

    @file_app.lifespan
    def waits() -> Iterator[None]:
        if os.getpid() != us:
            told("waits")
            time.sleep(LONG)
        yield

    @file_app.task(isolate=True)
    def work() -> None: ...

    with working(file_app, beat=0.05):
        handle = work.enqueue()
        until(lambda: told() == ["waits"])
        handle.cancel()
        until(lambda: handle.state() in ("gone", "cancelled"), "the end of the job")


def test_an_isolated_process_that_is_killed_leaves_no_lifespan_and_the_next_one_enters_anew(file_app: App, told: Told) -> None:
    us = os.getpid()
    around(file_app, "a", lambda word: told(f"{word} {'worker' if os.getpid() == us else 'child'}"))

    @file_app.task(isolate=True)
    def work() -> None:
        told(f"runs {os.getpid()}")
        while "killed" not in told():
            time.sleep(0.005)

    handle = work.enqueue()
    with working(file_app):
        until(lambda: len(told()) == 3)
        os.kill(int(told()[2].split()[1]), signal.SIGKILL)
        told("killed")
        until(lambda: handle.state() == "done")

    words = [word.split()[0] if word.startswith("runs") else word for word in told()]
    assert words == ["a in worker", "a in child", "runs", "killed", "a in child", "runs", "a out child", "a out worker"]


# -- in tests ----------------------------------------------------------------------------------------------------


def test_a_drain_has_lifespans_around_it(app: App, told: Told) -> None:
    around(app, "a", told, {"db": 1})
    around(app, "b", told, {"http": 2}, is_async=True)

    @app.task
    def work() -> None:
        told(dict(current_job().resources))
        again.enqueue()

    @app.task
    async def again() -> None:
        told(sorted(current_job().resources))

    with app.testing("fake") as jobs:
        work.enqueue()
        assert jobs.drain() == 2
    expected = ["a in", "b in", "{'db': 1, 'http': 2}", "['db', 'http']", "b out", "a out"]
    assert told() == expected
    with app.testing("inline"):
        work.enqueue()
    assert told() == expected * 2


def test_an_awaited_drain_enters_async_lifespans_on_the_tests_loop(app: App) -> None:
    seen: list[object] = []

    @app.lifespan
    async def loop() -> AsyncIterator[Mapping[str, Any]]:
        async with asyncio.timeout(LONG):
            yield {"loop": asyncio.get_running_loop()}
        seen.append("left")

    @app.task
    async def work() -> None:
        seen.append(current_job().resources["loop"] is asyncio.get_running_loop())

    async def test() -> None:
        with app.testing("fake") as jobs:
            work.enqueue()
            with pytest.raises(ConfigError, match=r"lifespan .*loop is async, .* write `await jobs.adrain\(\)`"):
                jobs.drain()
            with pytest.raises(ConfigError, match=r"write `async with jobs.running\(…\)`"), jobs.running(work):
                pass
            assert await jobs.adrain() == 1
            async with jobs.running(work) as job:
                assert current_job().resources is job.resources
                await work.function()

    asyncio.run(test())

    assert seen == [True, "left", True, "left"]


def test_a_running_block_has_resources(app: App, told: Told) -> None:
    around(app, "a", told, {"db": 1})
    around(app, "b", told, {"http": 2}, is_async=True)
    work = app.task(name="work")(lambda: current_job().resources["db"])

    with app.testing("fake") as jobs:
        with jobs.running(work, attempt=2) as job:
            assert (work(), job.attempt, told()) == (1, 2, ["a in", "b in"])
        with pytest.raises(Cancel), jobs.running(work):
            raise Cancel
    assert told() == ["a in", "b in", "b out", "a out"] * 2


def test_lifespans_of_imported_modules_are_known_to_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kiosk.py").write_text("from laneway import App\napp = App('sqlite://', imports=['kiosk_pool'])\n")
    (tmp_path / "kiosk_pool.py").write_text("from kiosk import app\n@app.lifespan\ndef pool():\n    yield {'db': 1}\n")
    app: App = importlib.import_module("kiosk").app

    with app.testing("fake") as jobs, jobs.running("work"):
        assert current_job().resources == {"db": 1}


def test_what_a_lifespan_raises_at_its_end_fails_the_test(app: App) -> None:
    @app.lifespan
    def bad() -> Generator[None]:
        yield
        raise OSError("still busy")

    work = app.task(name="work")(lambda: None)
    with app.testing("fake") as jobs:
        work.enqueue()
        with pytest.raises(OSError, match="still busy"):
            jobs.drain()
        with pytest.raises(OSError, match="still busy"), jobs.running(work):
            pass
        jobs.assert_not_enqueued()


# -- in fleets ---------------------------------------------------------------------------------------------------

FLEET = """
import asyncio, os, pathlib, threading, time
FOLDER = pathlib.Path(__file__).parent
def tell(word):
    with open(FOLDER / "told", "a") as file: file.write(f"{word} {os.getpid()}\\n")

@app.lifespan
def plain():
    tell("a in")
    yield {"plain": os.getpid()}
    tell("a out")

@app.lifespan
async def on_loop():
    async with asyncio.timeout(600):
        tell("b in")
        yield {"loop": asyncio.get_running_loop()}
        tell("b out")

@app.task
def work():
    assert current_job().resources["plain"] == os.getpid()
    tell("work")

@app.task
async def awork():
    assert current_job().resources["loop"] is asyncio.get_running_loop()
    tell(type(asyncio.get_running_loop()).__module__)

@app.task(isolate=True)
async def isolated():
    assert current_job().resources["plain"] == os.getpid()
    await awork.function()
"""


def by_process(told: Told) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for word in told():
        found.setdefault(int(word.split()[-1]), []).append(" ".join(word.split()[:-1]))
    return found


def test_every_process_of_a_fleet_has_lifespans_of_its_own(yard: Yard, told: Told) -> None:
    app_name = str(yard.write(FLEET))
    fleet = yard.start(processes=2, app_name=app_name)
    until(lambda: len(told()) == 4, "two lifespans in each of two workers")
    workers = set(by_process(told))
    handles = [yard.enqueue(f"app.{name}") for name in ("work", "awork", "isolated") * 5]
    yard.until_done(handles)
    fleet.stop()

    found = by_process(told)
    assert len(found) == 2 + 5
    for pid, words in found.items():
        assert (words[:2], words[-2:]) == (["a in", "b in"], ["b out", "a out"])
        assert pid in workers or words[2:-2] == ["asyncio.unix_events"]
    assert sum(words.count("work") for words in found.values()) == 5


def test_a_burst_leaves_its_lifespans_and_a_process_that_is_replaced_does_too(yard: Yard, told: Told) -> None:
    app_name = str(yard.write(FLEET))
    for _ in range(6):
        yard.enqueue("app.work")
    fleet = yard.start("--burst", "--max-jobs", "3", processes=1, app_name=app_name, ready=False)

    assert fleet.wait() == 0
    assert yard.app.inspect.counts() == ALL_DONE
    found = list(by_process(told).values())
    assert found[:2] == [["a in", "b in", *["work"] * 3, "b out", "a out"]] * 2
    assert found[2:] in ([], [["a in", "b in", "b out", "a out"]]), "a third worker finds nothing to do"


def test_a_fleet_whose_lifespan_fails_says_why_in_a_line_and_tries_again(yard: Yard) -> None:
    app_name = str(
        yard.write("""
import pathlib
@app.lifespan
async def database():
    if not (pathlib.Path(__file__).parent / "there").exists():
        raise ConnectionError("no database at 127.0.0.1:5432")
    yield

@app.task
def work(): ...
""")
    )
    fleet = yard.start(processes=1, app_name=app_name, ready=False)
    handle = yard.enqueue("app.work")

    line = r"^\S+ \S+ ERROR worker 1 does not start: lifespan app.database raised ConnectionError: no database at 127.0.0.1:5432$"
    fleet.until_said(line, times=2)
    fleet.until_said(r"WARNING worker 1 \(pid \d+\) ended with exit code 1$")
    assert handle.state() == "ready"
    yard.gate("there").touch()
    yard.until_done([handle])
    tries = len([row for row in fleet.said.splitlines() if " ERROR " in row])
    assert fleet.said.count("Traceback (most recent call last)") == tries >= 2


def test_a_burst_whose_workers_cannot_start_comes_to_an_end(yard: Yard) -> None:
    code = '@app.lifespan\ndef database():\n    raise ConnectionError("no database")\n    yield\n@app.task\ndef work(): ...\n'
    handle = yard.enqueue("app.work")
    fleet = yard.start("--burst", processes=2, app_name=str(yard.write(code)), ready=False)

    assert fleet.wait() == 2
    assert fleet.said.splitlines()[-1].startswith("laneway: no worker could start, 4 times in a row")
    assert handle.state() == "ready"


def test_a_burst_whose_workers_cannot_start_ends_though_the_store_is_away(yard: Yard) -> None:
    if why := redisbench.why_not():
        pytest.skip(why)
    server = redisbench.Server()
    code = f"""
import pathlib, time
app = App({server.url!r})
@app.lifespan
def database():
    folder = pathlib.Path(__file__).parent
    (folder / "enters").touch()
    while not (folder / "away").exists():
        time.sleep(0.01)
    raise ConnectionError("no database")
    yield
"""
    try:
        fleet = yard.start("--burst", processes=1, app_name=str(yard.write(code)), ready=False)
        until(yard.gate("enters").exists, "the start of a lifespan")
        server.stop(kill=True)
        yard.gate("away").touch()

        assert fleet.wait(2 * SOON) == 2
    finally:
        server.remove()
    assert "laneway: no worker could start, 4 times in a row" in fleet.said


@pytest.mark.parametrize("when", ["entered", "left"])
def test_a_fleet_stops_though_a_lifespan_hangs(yard: Yard, when: str) -> None:
    first, second = ("", "time.sleep(600)") if when == "left" else ("time.sleep(600)", "")
    app_name = str(
        yard.write(f"""
import pathlib, time
@app.lifespan
def hangs():
    (pathlib.Path(__file__).parent / "enters").touch()
    {first}
    yield
    {second}
""")
    )
    fleet = yard.start("--shutdown-timeout", "0.2", processes=1, app_name=app_name, ready=when == "left")
    until(yard.gate("enters").exists, "the start of a lifespan")

    assert fleet.stop() < SOON
    # On a busy machine its supervisor may be quicker.
    fleet.until_said(
        r"lifespan app.hangs did not end within 0.4 s; the worker exits without it$|did not exit before its deadline"
    )


# -- the event loop ----------------------------------------------------------------------------------------------


@pytest.fixture
def uvloop() -> None:
    """Skip the test if there is no uvloop; under CI that is a failure."""
    if importlib.util.find_spec("uvloop") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("uvloop is not installed")


def test_a_worker_may_have_uvloop(uvloop: None, file_app: App, told: Told) -> None:
    @file_app.lifespan
    async def loop() -> AsyncIterator[Mapping[str, Any]]:
        async with asyncio.timeout(LONG):
            yield {"loop": asyncio.get_running_loop()}

    async def work() -> None:
        assert current_job().resources["loop"] is asyncio.get_running_loop()
        told(f"{type(asyncio.get_running_loop())}")

    for isolate in (False, True):
        file_app.task(name=f"work-{isolate}", isolate=isolate, retry=Retry(times=0))(work).enqueue()
    burst(file_app, loop="uvloop")

    assert told() == ["<class 'uvloop.Loop'>"] * 2
    with contextlib.closing(asyncio.new_event_loop()) as programs_own:
        assert "uvloop" not in type(programs_own).__module__


def test_a_fleet_may_have_uvloop(uvloop: None, yard: Yard, told: Told) -> None:
    app_name = str(yard.write(FLEET))
    handles = [yard.enqueue(f"app.{name}") for name in ("awork", "isolated")]
    fleet = yard.start("--loop", "uvloop", processes=1, app_name=app_name)
    yard.until_done(handles)
    fleet.stop()

    words = [" ".join(word.split()[:-1]) for word in told()]
    assert sorted(words) == sorted(["a in", "b in", "uvloop", "b out", "a out"] * 2)


def test_a_loop_that_is_missing_or_unknown_is_one_line(app: App, yard: Yard) -> None:
    with pytest.raises(ConfigError, match=r'^loop=\'uvlop\': use "asyncio" or "uvloop". Did you mean "uvloop"\?$'):
        Worker(app, loop="uvlop")
    path = yard.write("")
    (yard.folder / "uvloop.py").write_text("raise ImportError")
    fleet = yard.start(
        "--loop", "uvloop", app_name=str(path), ready=False, PYTHONPATH=f"{yard.folder}:{os.environ.get('PYTHONPATH', '')}"
    )

    assert fleet.wait() == 2
    assert fleet.said.splitlines() == ['laneway: uvloop is not installed: pip install "laneway[uvloop]"']
