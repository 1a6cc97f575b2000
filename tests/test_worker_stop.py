"""How a worker stops, in a thread and in a process of its own."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from laneway import App, Worker, current_job
from laneway.errors import ConfigError
from laneway.worker.session import Session
from workbench import ALL_DONE, DEADLINE, SOON, Running, burst, until, url, wait, working

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
    until(lambda: running.worker._session is not None)
    start = time.monotonic()
    running.worker.stop()
    running.join()

    assert time.monotonic() - start < SOON


def test_a_stop_that_comes_just_before_the_worker_goes_to_sleep_is_heard(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Session._sleep
    slept: list[float] = []

    def sleep(loop: Session, *args: Any) -> None:
        worker.stop()
        start = time.monotonic()
        real(loop, *args)
        slept.append(time.monotonic() - start)

    monkeypatch.setattr(Session, "_sleep", sleep)
    worker = Worker(app)
    Running(worker).join()

    assert slept
    assert max(slept) < SOON


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
    assert f"1 job still runs and keeps its claim until this process ends: slow {handle.id}" in caplog.text
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
        until(lambda: worker._session is not None)
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
        until(lambda: worker._session is not None)
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

    assert time.monotonic() - start < SOON
    assert not (worker.folder / "finished").exists()


def test_an_idle_process_ends_at_once_on_a_signal(file_app: App, program: Callable[[int], Program]) -> None:
    _, hold = declare_for_program(file_app)
    hold.enqueue()
    worker = program(1)
    worker.started(1)
    worker.let_go()
    until(lambda: not sum(file_app.inspect.counts().values()))
    start = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)

    assert worker.ended() == 0, worker.errors
    assert time.monotonic() - start < SOON


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
