"""Isolated runs: a process for each, and all that a job may do works there too."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetharm import Yard, open_yard, tell
from laneway import App, Cancel, JobHandle, Retry, RetryIn, Snooze, Worker, current_job
from laneway.desk.context import JobContext
from laneway.errors import JobFailed
from laneway.store.contract import ClaimRequest, WorkerInfo
from test_fleet_harm import CRASHED, TIMED_OUT
from workbench import ALL_DONE, DEADLINE, Running, burst, info, until, url, working

BIG = 900_000


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """An app on a file, whose worker runs inside this program."""
    made = App(url(tmp_path))
    yield made
    made.close()


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., list[str]]:
    """Call it with a word to write it down, from any process; without one to read what was written."""
    path = tmp_path / "told"
    path.touch()

    def tell_or_read(word: object = None) -> list[str]:
        if word is not None:
            with path.open("a") as file:
                file.write(f"{word}\n")
        return path.read_text().splitlines()

    return tell_or_read


Told = Callable[..., list[str]]


# -- values ------------------------------------------------------------------------------------------------------


def test_a_run_has_a_process_of_its_own_and_its_result_comes_back(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    def work(a: int, b: list[str]) -> dict[str, Any]:
        return {"sum": a, "list": b, "pid": os.getpid()}

    handles = [work.enqueue(n, ["ä", "\0"]) for n in range(3)]
    burst(app)

    results = [handle.result() for handle in handles]
    assert [(result["sum"], result["list"]) for result in results] == [(n, ["ä", "\0"]) for n in range(3)]
    assert len({os.getpid(), *(result["pid"] for result in results)}) == 4


def test_an_async_task_is_isolated_too(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    async def work(a: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        return a, os.getpid()

    handle = work.enqueue(7)
    burst(app)

    value, pid = handle.result()
    assert value == 7
    assert pid != os.getpid()


def test_big_arguments_and_results_make_the_trip(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    def echo(text: str) -> str:
        return text[::-1]

    handles = [echo.enqueue("x" * BIG + str(n)) for n in range(4)]
    burst(app)

    assert [handle.result() for handle in handles] == [str(n) + "x" * BIG for n in range(4)]


def test_a_result_that_cannot_be_kept_is_told_of(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    def work() -> Any:
        return object()

    handle = work.enqueue()
    burst(app)

    with pytest.raises(JobFailed, match="its result cannot be kept"):
        handle.result()


# -- outcomes ----------------------------------------------------------------------------------------------------


def test_an_exception_keeps_its_traceback(app: App) -> None:
    @app.task(isolate=True, retry=Retry(times=0))
    def work() -> None:
        def inner_function() -> None:
            raise KeyError("lost key")

        inner_function()

    handle = work.enqueue()
    burst(app)

    (error,) = info(app, handle).errors
    assert (error.kind, error.message) == ("KeyError", "'lost key'")
    assert "in inner_function" in error.traceback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), BaseException("odd")], ids=repr)
def test_whatever_is_raised_is_an_ordinary_failure_and_no_crash(app: App, error: BaseException) -> None:
    @app.task(isolate=True, retry=Retry(times=0))
    def work() -> None:
        raise error

    @app.task(isolate=True, retry=Retry(times=0))
    async def awork() -> None:
        raise error

    handles = [work.enqueue(), awork.enqueue()]
    burst(app)

    name = type(error).__qualname__
    assert [info(app, handle).errors[-1].kind.rpartition(".")[2] for handle in handles] == [name, name]


def test_snooze_retry_in_and_cancel_mean_the_same_as_elsewhere(app: App) -> None:
    @app.task(isolate=True)
    def work(how: str) -> None:
        raise {"snooze": Snooze(600), "retry": RetryIn(600), "cancel": Cancel("enough")}[how]

    snoozed, retrying, cancelled = (work.enqueue(how) for how in ("snooze", "retry", "cancel"))
    burst(app)

    assert (snoozed.state(), info(app, snoozed).attempt) == ("scheduled", 0)
    assert (retrying.state(), info(app, retrying).attempt) == ("retrying", 1)
    assert cancelled.state() == "cancelled"


def test_attempts_are_counted_and_known_inside(app: App, told: Told) -> None:
    @app.task(isolate=True, retry=Retry(times=2, backoff=0))
    def work() -> None:
        told(current_job().attempt)
        raise ValueError

    handle = work.enqueue()
    with working(app):
        until(lambda: handle.state() == "dead")

    assert told() == ["1", "2", "3"]


def test_a_lane_of_isolated_jobs_stays_in_order(app: App, told: Told) -> None:
    @app.task(isolate=True, lane="lane")
    def step(lane: str, n: int) -> None:
        time.sleep(0.02 if n == 0 else 0)
        told(f"{lane}{n}")

    for n in range(5):
        step.enqueue("a", n)
        step.enqueue("b", n)
    burst(app)

    order = told()
    assert [word for word in order if word[0] == "a"] == [f"a{n}" for n in range(5)]
    assert [word for word in order if word[0] == "b"] == [f"b{n}" for n in range(5)]


# -- what a job may use ------------------------------------------------------------------------------------------


def test_progress_and_log_lines_reach_the_store_while_it_runs(app: App, tmp_path: Path) -> None:
    @app.task(isolate=True)
    def work() -> None:
        current_job().progress(3, 10)
        current_job().log("half way")
        while not (tmp_path / "go").exists():
            time.sleep(0.01)

    handle = work.enqueue()
    with working(app):
        until(lambda: handle.state() == "running" and info(app, handle).log == ["half way"], "its log in the store")
        assert info(app, handle).progress == (3.0, 10.0)
        (tmp_path / "go").touch()
        until(lambda: handle.state() == "done")


def test_the_last_words_of_a_run_that_failed_are_kept(app: App) -> None:
    @app.task(isolate=True, retry=Retry(times=0))
    def work() -> None:
        current_job().log("the last word")
        raise ValueError

    handle = work.enqueue()
    burst(app)

    assert info(app, handle).log == ["the last word"]


def test_middlewares_and_hooks_run_in_the_child(app: App, told: Told) -> None:
    @app.on_start
    def start() -> None:
        told(f"start {os.getpid()}")

    @app.middleware
    def around(job: JobContext) -> Generator[None]:
        told(f"before {os.getpid()}")
        yield
        told(f"after {os.getpid()}")

    @app.on_stop
    def stop() -> None:
        told(f"stop {os.getpid()}")

    @app.task(isolate=True)
    def work() -> None:
        told(f"run {os.getpid()}")

    work.enqueue()
    burst(app)

    words = [word.split() for word in told()]
    (child,) = {pid for word, pid in words if word == "run"}
    assert int(child) != os.getpid()
    assert [word for word, pid in words if pid == child] == ["start", "before", "run", "after", "stop"]
    assert [word for word, pid in words if pid != child] == ["start", "stop"]


def test_an_isolated_job_enqueues_others(app: App, told: Told) -> None:
    @app.task
    def plain(word: str) -> None:
        told(f"{word} {os.getpid()}")

    @app.task(isolate=True)
    def work() -> None:
        plain.enqueue("from apart")
        app.enqueue(plain.name, "by name")

    work.enqueue()
    burst(app)

    assert sorted(told()) == [f"by name {os.getpid()}", f"from apart {os.getpid()}"]
    assert app.inspect.counts() == ALL_DONE


def test_an_isolated_job_may_wait_for_the_result_of_another(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    def inner() -> int:
        return 41

    @app.task(isolate=True, keep_result=60)
    def outer() -> int:
        return inner.enqueue().result(timeout=10) + 1

    handle = outer.enqueue()
    burst(app)

    assert handle.result() == 42


def test_a_child_that_outlives_its_run_holds_nobody_up(app: App, tmp_path: Path) -> None:
    """A daemon that a job forks has all that the job had, the line to its worker too."""

    @app.task(isolate=True)
    def work() -> None:
        if not os.fork():
            signal.alarm(round(2 * DEADLINE))
            while not (tmp_path / "go").exists():
                time.sleep(0.01)
            os._exit(0)

    handle = work.enqueue()
    running = Running(Worker(app, 2), burst=True)
    try:
        until(lambda: handle.state() == "done", "the end of the job before that of its daemon")
    finally:
        (tmp_path / "go").touch()
        running.join()


def test_programs_that_an_isolated_job_starts_can_be_waited_for(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    def work() -> str:
        return subprocess.run([sys.executable, "-c", "print('hello')"], capture_output=True, text=True, check=True).stdout

    handle = work.enqueue()
    burst(app)

    assert handle.result() == "hello\n"


# -- hooks that misbehave ----------------------------------------------------------------------------------------


def test_programs_that_an_isolated_job_starts_are_ended_with_it(app: App, tmp_path: Path) -> None:
    @app.task(isolate=True, timeout=0.5, retry=Retry(times=0))
    def wait_for_a_program(file: str) -> None:
        with subprocess.Popen(["/bin/sleep", "60"]) as program:
            Path(file).write_text(str(program.pid))
            program.wait()

    wait_for_a_program.enqueue(str(tmp_path / "pid"))
    burst(app)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2], "its end")


def test_a_slow_on_stop_does_not_count_as_the_jobs_time(app: App, told: Told) -> None:
    us = os.getpid()

    @app.on_stop
    def tidy_up() -> None:
        if os.getpid() != us:
            time.sleep(1.0)

    @app.task(isolate=True, timeout=0.3, retry=Retry(times=0))
    def work() -> None:
        told("ran")

    handle = work.enqueue()
    burst(app)

    assert (handle.state(), told()) == ("done", ["ran"])


def test_an_on_stop_that_crashes_does_not_undo_the_run(app: App, told: Told) -> None:
    us = os.getpid()

    @app.on_stop
    def tidy_up() -> None:
        if os.getpid() != us:
            os._exit(1)

    @app.task(isolate=True)
    def work() -> None:
        told("ran")

    handle = work.enqueue()
    burst(app)

    assert (handle.state(), told()) == ("done", ["ran"])


def test_a_slow_on_start_does_not_count_as_the_jobs_time(app: App) -> None:
    us = os.getpid()

    @app.on_start
    def warm_up() -> None:
        if os.getpid() != us:
            time.sleep(0.7)

    @app.task(isolate=True, timeout=0.3, retry=Retry(times=0))
    def work() -> None: ...

    handle = work.enqueue()
    burst(app)

    assert handle.state() == "done", info(app, handle).errors[-1].message


# -- a worker inside a program -----------------------------------------------------------------------------------


def suspect(app: App, handle: JobHandle[Any], lost: str) -> None:
    """Claim a job as a worker that then dies."""
    app.store.beat([WorkerInfo("gone")])
    (claim,) = app.store.exchange("gone", [], [ClaimRequest("default", 1)], 1).claims
    assert claim.unit.id == handle.id
    app.store.recover("gone", "its worker ended with signal SIGSEGV", {claim.token: lost})


def test_a_suspect_runs_alone_in_a_worker_inside_a_program(app: App, told: Told) -> None:
    @app.task
    def work() -> None:
        told(f"{os.getpid()} {current_job().attempt}")

    handle = work.enqueue()
    suspect(app, handle, "crash")
    burst(app)

    (run,) = told()
    pid, attempt = run.split()
    assert (int(pid) != os.getpid(), attempt) == (True, "1")
    assert handle.state() == "done"


def test_a_suspect_that_crashes_alone_three_times_is_dead(app: App, told: Told) -> None:
    us = os.getpid()

    @app.task
    def work() -> None:
        assert os.getpid() != us
        told("ran")
        os.kill(os.getpid(), signal.SIGKILL)

    handle = work.enqueue()
    suspect(app, handle, "crash")
    burst(app)

    assert told() == ["ran"] * 3
    (*_, error) = info(app, handle).errors
    assert error.kind == CRASHED
    assert "signal SIGKILL, 3 times" in error.message


def test_a_claim_lost_by_its_timeout_has_failed_and_does_not_run(app: App, told: Told) -> None:
    @app.task(timeout=5, retry=Retry(times=1, backoff=600))
    def work() -> None:
        told("ran")

    handle = work.enqueue()
    suspect(app, handle, "timeout")
    burst(app)

    assert told() == []
    assert (handle.state(), info(app, handle).attempt) == ("retrying", 1)
    assert info(app, handle).errors[-1].kind == TIMED_OUT


def test_a_worker_may_run_again_after_isolated_runs_and_leaves_no_process(app: App) -> None:
    @app.task(isolate=True)
    def work() -> None: ...

    for _ in range(3):
        work.enqueue()
        burst(app)

    assert app.inspect.counts() == ALL_DONE
    us = os.getpid()
    children = Path(f"/proc/{us}/task/{us}/children")
    until(lambda: not _zygotes(), f"the end of whoever forked; children: {children.read_text()}")


def _zygotes() -> list[int]:
    """Return children of this program that fork for a worker in it."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"\nPPid:\t{os.getpid()}\n" in (folder / "status").read_text()
            if is_ours and b"zygote of a worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_whoever_forks_may_be_killed_and_the_job_runs_again_uncharged(app: App, told: Told, tmp_path: Path) -> None:
    @app.task(isolate=True)
    def work() -> None:
        told(current_job().attempt)
        while not (tmp_path / "go").exists():
            time.sleep(0.01)

    handle = work.enqueue()
    with working(app):
        until(lambda: len(told()) == 1, "the first run")
        (zygote,) = _zygotes()
        os.kill(zygote, signal.SIGKILL)
        until(lambda: len(told()) == 2, "the second run")
        (tmp_path / "go").touch()
        until(lambda: handle.state() == "done")

    assert told() == ["1", "1"]


def test_isolated_runs_of_a_worker_are_ended_with_it(app: App, tmp_path: Path) -> None:
    """After the shutdown timeout nothing may go on that somebody else will run."""

    @app.task(isolate=True)
    def work() -> None:
        (tmp_path / "pid.new").write_text(str(os.getpid()))
        (tmp_path / "pid.new").rename(tmp_path / "pid")
        time.sleep(60)

    work.enqueue()
    running = Running(Worker(app, 2, shutdown_timeout=0.2))
    until((tmp_path / "pid").exists, "the start")
    pid = int((tmp_path / "pid").read_text())
    running.worker.stop()
    running.join()

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    until(is_gone, "the end of the isolated process")


def test_many_isolated_runs_at_once(app: App) -> None:
    @app.task(isolate=True, keep_result=60)
    def work(n: int) -> int:
        return n

    handles = [work.enqueue(n) for n in range(60)]
    since = time.monotonic()
    burst(app, 20)
    tell(f"60 isolated runs on 20 slots: {time.monotonic() - since:.2f} s")

    assert [handle.result() for handle in handles] == list(range(60))
    assert threading.active_count() < 60


# -- in a fleet --------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_takes_its_isolated_runs_with_it_and_they_are_no_suspects(tmp_path: Path) -> None:
    with open_yard(tmp_path) as yard:
        fleet = _start(yard)
        handle = yard.enqueue("hold_isolated", "go")
        first = yard.until_mark("holding", handle)

        os.kill(fleet.workers[0], signal.SIGKILL)
        second = yard.until_mark("holding", handle, times=2)
        with pytest.raises(ProcessLookupError):
            os.kill(first.pid, 0)
        assert second.attempt == 1
        yard.gate("go").touch()
        yard.until_done([handle])
        assert yard.app.store_inspect.totals().get("crashed", 0) == 0


def _start(yard: Yard) -> Any:
    return yard.start(processes=1, slots=2)


# -- threads -----------------------------------------------------------------------------------------------------

#: Each child is a worker whose isolated runs all end for the first time, and at once.
ALL_AT_ONCE = """
import os, socket, sys, threading
import msgspec
from laneway.fleet.messages import MessageSocket
from laneway.core.outcome import Done, ErrorInfo, Retrying
from laneway.worker.isolate import _Sender, _Talk

sys.setswitchinterval(1e-5)
outcomes = (Done(), Retrying(5, ErrorInfo(kind="x", message="y")))

def hear(barrier, line):
    talk = _Talk(MessageSocket.pair()[0], line)
    barrier.wait()
    assert talk.read_run() == [outcomes]

def be_worker():
    barrier, threads = threading.Barrier(6), []
    for _ in range(6):
        ours, theirs = socket.socketpair()
        _Sender(theirs).send("outcomes", outcomes)
        threads.append(threading.Thread(target=hear, args=(barrier, ours)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

for _ in range(60):
    pid = os.fork()
    if not pid:
        be_worker()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "a worker crashed"
"""


def test_isolated_runs_that_end_at_once_do_not_crash_their_worker() -> None:
    ended = subprocess.run([sys.executable, "-c", ALL_AT_ONCE], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
