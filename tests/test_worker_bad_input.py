"""Bad input harms only its own job: its neighbours finish, the worker goes on, and the job is there with its error."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from fractions import Fraction
from typing import Any

import pytest

from conftest import ONCE
from laneway import App, Cancel, JobHandle, Retry, Snooze, Worker, current_job
from laneway.core.job import Gather, Job, lane_id
from laneway.desk.context import JobContext
from laneway.errors import ConfigError
from laneway.ids import new_id
from laneway.store.inspection import JobInfo
from laneway.worker import verdicts

#: Judged by the runner, whatever the store: another store sees one of each kind.
EVERY_STORE = ONCE

DEADLINE = 60.0
NEIGHBOURS = 40


class GoodJobs:
    """A worker with a bad job among forty good ones."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.finished = 0
        self._lock = threading.Lock()

        @app.task(name="neighbour")
        def neighbour() -> None:
            self._count()

        @app.task(name="aneighbour")
        async def aneighbour() -> None:
            await asyncio.sleep(0)
            self._count()

        self._tasks = (neighbour, aneighbour)

    def _count(self) -> None:
        with self._lock:
            self.finished += 1

    def survive(self, enqueue: Callable[[], object]) -> None:
        """Put the bad job in the middle, run everything with a deadline, and see that the neighbours are well."""
        for n in range(NEIGHBOURS // 2):
            self._tasks[n % 2].enqueue()
        enqueue()
        for n in range(NEIGHBOURS // 2):
            self._tasks[n % 2].enqueue()
        error = run_within_deadline(Worker(self.app, 4, shutdown_timeout=1))
        assert error is None, f"the worker died: {error!r}"
        assert self.finished == NEIGHBOURS
        assert self.app.inspect.counts()["running"] == 0


def run_within_deadline(worker: Worker) -> BaseException | None:
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            worker.run(burst=True)
        except BaseException as error:  # noqa: BLE001 - for the test to judge
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert ended, "the worker did not return"
    return ended[0]


@pytest.fixture
def good_jobs(app: App) -> GoodJobs:
    return GoodJobs(app)


def dead(app: App) -> JobInfo:
    """Return the one job that died."""
    (job,) = app.inspect.jobs("dead")
    return job


def push(app: App, task: str, body: bytes, **more: Any) -> str:
    """Put a job in the store by hand, as an older or a foreign program might have."""
    job = Job(new_id(), task, "default", body, **more)
    assert app.store.push((job,)) == [None]
    return job.id


# -- what is in the store ----------------------------------------------------------------------------------------


def declare_mail(app: App) -> list[Any]:
    ran: list[Any] = []

    @app.task(name="mail")
    def mail(user: int, template: str = "welcome", *, urgent: bool = False) -> None:
        ran.append((user, template, urgent))

    @app.task(name="keyword")
    def keyword(*, user: int) -> None:
        ran.append(user)

    @app.task(name="many")
    def many(first: int, *rest: int, **named: str) -> None:
        ran.append((first, rest, named))

    return ran


@pytest.mark.parametrize("task", ["mail", "many"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"7",
        b"[[1]]",
        b"[1, 2]",
        b"\x00\xff\xfe garbage",
        b"[[1], {}",
        b'[["a"], {}]',
        b'[[1], {"template": 5}]',
        b"[" * 3000 + b"]" * 3000,
        b"[[" + b"[" * 3000 + b"]" * 3000 + b"], {}]",
        b'[["' + b"x" * 100_000 + b'"], {}]',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_does_not_fit_kills_its_job_at_once(app: App, good_jobs: GoodJobs, task: str, body: bytes) -> None:
    ran = declare_mail(app)
    ids: list[str] = []

    good_jobs.survive(lambda: ids.append(push(app, task, body)))

    assert ran == []
    found = dead(app)
    assert (found.id, found.body) == (ids[0], body)
    assert found.errors[-1].message


def told_of(caplog: pytest.LogCaptureFixture, id_: str) -> str:
    """Return the one ERROR about a job."""
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR and id_ in record.getMessage()]
    return line


@pytest.mark.parametrize("task", ["mail", "nobody.knows", ""])
def test_what_is_no_job_dies_like_any_other_and_its_lane_goes_on(app: App, caplog: pytest.LogCaptureFixture, task: str) -> None:
    ran: list[int] = []
    died: list[tuple[str, str | None, str]] = []
    app.on_death(lambda job, error: died.append((job.id, job.lane, type(error).__name__)))

    @app.task(name="mail", lane="lane")
    def mail(lane: str, n: int) -> None:
        ran.append(n)

    mail.enqueue("a", 1)
    app.store.push([Job("bad", task, "default", b"\xff garbage", "a")])
    mail.enqueue("a", 2)
    Worker(app).run(burst=True)

    assert ran == [1, 2]
    assert died == [("bad", "a", "GarbageError")]
    line = told_of(caplog, "bad")
    assert "garbage: this body is not a job's: " in line
    assert line.endswith('It is kept in queue "default": laneway jobs show bad')
    found = dead(app)
    assert (found.id, found.body, found.attempt) == ("bad", b"\xff garbage", 1)
    totals = app.stats.totals()
    assert (totals["processed"], totals["failed"], totals["dead"]) == (2, 1, 1)


def test_a_payload_that_is_no_json_dies_like_any_other_and_its_lane_goes_on(app: App, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[dict[str, list[int]]] = []
    died: list[tuple[str | None, str]] = []
    app.on_death(lambda job, error: died.append((job.lane, type(error).__name__)))

    @app.collector(name="gather", max_lanes=10)
    def gather(lanes: dict[str, list[int]]) -> None:
        seen.append(lanes)

    gather.enqueue_many([("a", 1), ("b", 2)])
    app.store.push([Job(lane_id("gather", "b"), "gather", "gather", b"\xff garbage", "b", gather=Gather())])
    Worker(app).run(burst=True)

    assert seen == [{"a": [1]}, {"b": [2]}]
    assert died == [("b", "BadArguments")]
    found = dead(app)
    line = told_of(caplog, found.id)
    assert "this payload cannot be read" in line
    assert line.endswith(f'It is kept in queue "gather": laneway jobs show {found.id}')
    assert app.stats.totals()["dead"] == 1


@pytest.mark.parametrize(
    ("task", "body"),
    [
        ("mail", b"[[], {}]"),
        ("mail", b'[[1, "a", 3], {}]'),
        ("mail", b'[[1], {"user": 2}]'),
        ("mail", b'[[1], {"colour": "red"}]'),
        ("keyword", b"[[], {}]"),
        ("keyword", b"[[1], {}]"),
        ("many", b"[[], {}]"),
        ("many", b'[[1], {"first": 2}]'),
    ],
)
def test_a_call_that_no_longer_fits_the_signature_kills_its_job_at_once(
    app: App, good_jobs: GoodJobs, task: str, body: bytes
) -> None:
    ran = declare_mail(app)

    good_jobs.survive(lambda: push(app, task, body))

    assert ran == []
    assert app.inspect.counts()["retrying"] == 0, "running it again will not make it fit"
    assert "fit" in dead(app).errors[-1].message


@pytest.mark.parametrize("task", ["mail", "many"])
@pytest.mark.parametrize(
    "options",
    [
        b'{"retry": 5}', b'{"retry": []}', b'{"retry": ["a", "b"]}', b'{"retry": [-1, null]}', b'{"retry": [1, -5]}',
        b'{"retry": [1, true]}', b'{"retry": [1, 1e300]}', b'{"retry": null}', b'{"headers": 7}', b'{"headers": ["a"]}',
        b'"retry"', b"[1, 2]", b"17",
    ],
)  # fmt: skip
def test_options_that_cannot_be_read_kill_their_job(app: App, good_jobs: GoodJobs, task: str, options: bytes) -> None:
    ran = declare_mail(app)

    good_jobs.survive(lambda: push(app, task, b"[[1], {}, " + options + b"]"))

    assert ran == []
    assert dead(app).errors[-1].message


def test_options_that_nobody_knows_are_passed_over(app: App, good_jobs: GoodJobs) -> None:
    ran = declare_mail(app)

    good_jobs.survive(lambda: push(app, "mail", b'[[1], {}, {"colour": "red", "headers": {"a": 1}}]'))

    assert ran == [(1, "welcome", False)]


def test_an_unknown_task_is_put_back_and_warned_about(app: App, good_jobs: GoodJobs, caplog: pytest.LogCaptureFixture) -> None:
    ids: list[str] = []

    good_jobs.survive(lambda: ids.append(app.enqueue("nobody.knows", 1, check=False).id))

    found = app.inspect.job(ids[0])
    assert found is not None
    assert (found.state, found.attempt) == ("scheduled", 0)
    assert f'job {ids[0]}: put back: this worker knows no task named "nobody.knows"' in caplog.text


def test_an_unknown_task_is_dead_after_an_hour(app: App, good_jobs: GoodJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "UNKNOWN_FOR", -1)  # the hour is over

    good_jobs.survive(lambda: app.enqueue("nobody.knows", check=False))

    assert dead(app).errors[-1].kind == "unknown task"


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3)])
def test_a_codec_that_raises_kills_its_job(app: App, good_jobs: GoodJobs, raised: BaseException) -> None:
    fails = False

    def decode(value: str) -> Fraction:
        if fails:
            raise raised
        return Fraction(value)

    app.codec(Fraction, encode=str, decode=decode)

    @app.task
    def pour(litres: Fraction) -> None:
        pass

    pour.enqueue(Fraction(1, 3))
    fails = True
    good_jobs.survive(lambda: None)

    assert dead(app).errors[-1].message


# -- what is raised ----------------------------------------------------------------------------------------------


class Own(BaseException):
    """Derived from the very root."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


class Forgetful(Snooze):
    def __init__(self) -> None:
        Exception.__init__(self, "some time")


BadName = type("BadName", (Exception,), {"__module__": "\ud800"})

RAISED: list[BaseException] = [
    SystemExit(3), SystemExit(None), KeyboardInterrupt(), asyncio.CancelledError(), Own("own"), GeneratorExit(), Unspeakable(),
    ValueError("x" * 5_000_000), ValueError("\ud800 lone"), StopIteration(1), StopAsyncIteration(), MemoryError(), Forgetful(),
    BadName("no"), BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError()]), TimeoutError(),
]  # fmt: skip


@pytest.mark.parametrize("with_middlewares", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__.encode("ascii", "replace").decode())
def test_whatever_is_raised_kills_its_own_job_alone(
    app: App, good_jobs: GoodJobs, error: BaseException, is_async: bool, with_middlewares: bool
) -> None:
    if with_middlewares:

        @app.middleware
        def around(job: JobContext) -> Generator[None, None, None]:
            yield

        @app.middleware
        async def aaround(job: JobContext) -> AsyncGenerator[None, None]:
            yield

    def plain() -> None:
        raise error

    async def on_loop() -> None:
        raise error

    declare = app.task(name="bad", retry=Retry(times=0))
    task = declare(on_loop) if is_async else declare(plain)
    good_jobs.survive(task.enqueue)

    found = dead(app).errors[-1]
    assert found.kind
    assert len(found.message) < 5000
    assert len(found.traceback) < 50_000


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Own("own")])
def test_whatever_is_raised_in_a_child_task_of_an_async_job_harms_nobody_else(
    app: App, good_jobs: GoodJobs, error: BaseException
) -> None:
    async def child() -> None:
        raise error

    @app.task(retry=Retry(times=0))
    async def parent() -> None:
        await asyncio.gather(child(), asyncio.sleep(0))

    good_jobs.survive(parent.enqueue)

    assert dead(app).errors[-1].kind.endswith(type(error).__name__)


def test_a_reason_for_cancelling_may_be_any_text(app: App, good_jobs: GoodJobs) -> None:
    @app.task
    def bad() -> None:
        raise Cancel("\ud800" + "x" * 1_000_000)

    handles: list[JobHandle[None]] = []
    good_jobs.survive(lambda: handles.append(bad.enqueue()))

    assert handles[0].state() == "cancelled"


def test_endless_recursion_kills_its_job_alone(app: App, good_jobs: GoodJobs) -> None:
    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    @app.task(retry=Retry(times=0))
    def bad() -> None:
        deeper(0)

    good_jobs.survive(bad.enqueue)

    assert dead(app).errors[-1].kind == "RecursionError"


def boom(_: int) -> float:
    raise LookupError("no such table")


@pytest.mark.parametrize("backoff", [boom, lambda _: -1, lambda _: "soon", lambda _: float("nan"), lambda: 1])
def test_a_backoff_that_cannot_be_used_kills_its_job(app: App, good_jobs: GoodJobs, backoff: Any) -> None:
    @app.task(retry=Retry(times=5, backoff=backoff))
    def bad() -> None:
        raise ValueError("the job's own")

    good_jobs.survive(bad.enqueue)

    assert dead(app).errors[-1].kind in ("LookupError", "ValueError", "TypeError")


def test_a_backoff_that_exits_kills_its_job_alone(app: App, good_jobs: GoodJobs) -> None:
    def leave(_: int) -> float:
        sys.exit(3)

    @app.task(retry=Retry(times=5, backoff=leave))
    def bad() -> None:
        raise ValueError

    good_jobs.survive(bad.enqueue)

    assert dead(app).errors


# -- what is returned and told -----------------------------------------------------------------------------------


class Stranger:
    """Nothing that JSON has."""


def endless() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


@pytest.mark.parametrize("result", [Stranger(), float("nan"), endless(), "\ud800", {1: {2: Stranger()}}], ids=range(5))
@pytest.mark.parametrize("is_async", [False, True])
def test_a_result_that_cannot_be_kept_kills_its_job_without_running_it_again(
    app: App, good_jobs: GoodJobs, caplog: pytest.LogCaptureFixture, result: object, is_async: bool
) -> None:
    ran: list[int] = []
    deaths: list[str] = []

    @app.on_death
    def note(job: JobContext) -> None:
        deaths.append(job.id)

    def plain() -> Any:
        ran.append(1)
        return result

    async def on_loop() -> Any:
        return plain()

    declare = app.task(name="bad", keep_result=60)
    task = declare(on_loop) if is_async else declare(plain)
    good_jobs.survive(task.enqueue)

    assert ran == [1]
    assert "its result cannot be kept" in dead(app).errors[-1].message
    assert deaths == [dead(app).id]
    assert any("is dead" in record.message for record in caplog.records if record.levelno == logging.ERROR)


@pytest.mark.parametrize("body", [b'[["a"], {}]', b"[[], {}]"])
def test_the_death_of_a_job_that_could_not_start_is_told_too(app: App, good_jobs: GoodJobs, body: bytes) -> None:
    declare_mail(app)
    deaths: list[tuple[str, BaseException]] = []

    @app.on_death
    def note(job: JobContext, error: BaseException) -> None:
        deaths.append((job.id, error))

    good_jobs.survive(lambda: push(app, "mail", body))

    ((id_, error),) = deaths
    assert id_ == dead(app).id
    assert isinstance(error, BaseException)


@pytest.mark.parametrize(("done", "total"), [(object(), 1), ("a", "b"), (2**200, 2**201), (float("nan"), 1), (None, None)])
@pytest.mark.parametrize("fails", [True, False])
def test_progress_that_cannot_be_written_down_harms_nobody_else(
    app: App, good_jobs: GoodJobs, done: Any, total: Any, fails: bool
) -> None:
    @app.task(retry=Retry(times=0))
    def bad() -> None:
        with contextlib.suppress(Exception):
            current_job().progress(done, total)
        current_job().log("\ud800 and \0")
        if fails:
            raise ValueError("no")

    good_jobs.survive(bad.enqueue)

    assert app.inspect.counts()["dead"] == fails
    assert all(job.errors[-1].message == "no" for job in app.inspect.jobs("dead"))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), GeneratorExit()])
def test_a_middleware_that_raises_fails_its_run_alone(app: App, good_jobs: GoodJobs, before: bool, error: BaseException) -> None:
    @app.middleware
    def broken(job: JobContext) -> Generator[None, None, None]:
        if before and job.task == "bad":
            raise error
        yield
        if job.task == "bad":
            raise error

    @app.task(name="bad", retry=Retry(times=0))
    def bad() -> None:
        pass

    good_jobs.survive(bad.enqueue)

    assert dead(app).errors[-1].kind == type(error).__name__


@pytest.mark.parametrize("yields", [0, 2])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_middleware_that_does_not_yield_once_fails_the_run_and_says_so(app: App, yields: int, is_async: bool) -> None:
    @app.task(retry=Retry(times=0))
    async def work() -> None:
        pass

    def plain(job: JobContext) -> Generator[None, None, None]:
        for _ in range(yields):
            yield

    async def on_loop(job: JobContext) -> AsyncGenerator[None, None]:
        for _ in range(yields):
            yield

    if is_async:
        app.middleware(on_loop)
    else:
        app.middleware(plain)
    work.enqueue()
    assert run_within_deadline(Worker(app)) is None

    assert "must yield once" in dead(app).errors[-1].message


# -- what is done to the process ---------------------------------------------------------------------------------


def test_an_async_task_that_blocks_the_loop_delays_no_threads(app: App) -> None:
    blocked, go = threading.Event(), threading.Event()
    ran: list[int] = []

    @app.task
    async def block() -> None:
        blocked.set()
        go.wait(DEADLINE)

    @app.task
    def work() -> None:
        blocked.wait(DEADLINE)
        ran.append(1)
        if len(ran) == NEIGHBOURS:
            go.set()

    block.enqueue()
    work.enqueue_many([()] * NEIGHBOURS)
    assert run_within_deadline(Worker(app, 4)) is None

    assert len(ran) == NEIGHBOURS
    assert app.stats.totals()["processed"] == NEIGHBOURS + 1


@pytest.mark.parametrize("way", ["os._exit", "sys.exit", "return", "raise"])
def test_a_fork_in_a_task_ends_with_the_task_in_the_child(app: App, good_jobs: GoodJobs, way: str) -> None:
    ended: list[int] = []

    @app.task(retry=Retry(times=0))
    def bad() -> None:
        child = os.fork()
        if child:
            ended.append(reap(child))
        elif way == "os._exit":
            os._exit(0)
        elif way == "sys.exit":
            sys.exit(0)
        elif way == "raise":
            raise ValueError("in the child")

    good_jobs.survive(bad.enqueue)

    assert len(ended) == 1, "the child did not end"
    assert app.inspect.counts()["dead"] == 0
    assert app.stats.totals()["processed"] == NEIGHBOURS + 1


def reap(child: int) -> int:
    """Wait for a child with a deadline; one that outlives it is killed, and that is an error."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child goes on as a worker")


def test_a_task_that_changes_the_process_harms_nobody(app: App, good_jobs: GoodJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getswitchinterval()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))

    @app.task(retry=Retry(times=0))
    def bad() -> None:
        sys.setswitchinterval(0.1)
        sys.stdout.close()
        sys.stderr.close()

    good_jobs.survive(bad.enqueue)

    assert app.inspect.counts()["dead"] == 0
    assert sys.getswitchinterval() == before


def test_printing_what_has_no_bytes_fails_its_job_alone(app: App, good_jobs: GoodJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))

    @app.task(retry=Retry(times=0))
    def bad() -> None:
        print("\ud800")  # noqa: T201 - it is the point

    good_jobs.survive(bad.enqueue)

    assert dead(app).errors[-1].kind == "UnicodeEncodeError"


def test_a_task_that_ends_the_worker_beside_its_failure_still_settles(app: App) -> None:
    worker = Worker(app, 2)

    @app.task(retry=Retry(times=0))
    def bad() -> None:
        worker.stop()
        raise SystemExit

    bad.enqueue()
    assert run_within_deadline(worker) is None

    assert app.inspect.counts()["dead"] == 1


# -- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"slots": 0},
        {"slots": -1},
        {"slots": 2.5},
        {"slots": True},
        {"slots": "5"},
        {"slots": 10**9},
        {"queues": "mail"},
        {"queues": ["no spaces please"]},
        {"queues": [7]},
        {"queues": [""]},
        {"queues": []},
        {"shutdown_timeout": -1},
        {"shutdown_timeout": "5"},
        {"beat": 0},
        {"beat": -1},
        {"beat": float("nan")},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused_where_they_are_written(app: App, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings)) + "|queue"):
        Worker(app, **settings)


def test_a_plain_function_that_returns_a_coroutine_is_told_to_be_async(app: App) -> None:
    async def later() -> None: ...

    @app.task
    def forgot() -> object:
        return later()

    job = forgot.enqueue()
    Worker(app, slots=2).run(burst=True)

    found = app.inspect.job(job.id)
    assert found is not None
    assert found.state == "dead"
    assert "async def" in found.errors[-1].message


def test_a_cancelled_thread_hears_it_at_its_next_call_of_ours(app: App) -> None:
    begun = threading.Event()

    @app.task
    def long() -> None:
        begun.set()
        for step in range(10_000):
            current_job().progress(step, 10_000)
            time.sleep(0.001)

    job = long.enqueue()
    worker = Worker(app, slots=2, beat=0.05)
    thread = threading.Thread(target=lambda: worker.run(burst=True))
    thread.start()
    assert begun.wait(10)
    assert job.cancel()
    thread.join(10)

    assert not thread.is_alive()
    assert job.state() == "cancelled"
