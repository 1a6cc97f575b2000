"""What the tests of harm and of a fleet's life share: fleets as real processes, and an app whose jobs do harm.

A `Yard` is one store in a folder, with the fleets that work on it and the marks that jobs leave there. Fleets load this very
module as their app; the tests enqueue by name. At a yard's end every fleet must stop cleanly and leave nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fleetbench import Process, family, signal_all, tell
from laneway import App, JobHandle, Retry, current_job
from laneway.desk.context import JobContext
from laneway.store.inspection import JobInfo
from workbench import DEADLINE, until, url

__all__ = ["Fleet", "Mark", "Yard", "app", "open_yard", "tell"]

PR_SET_CHILD_SUBREAPER = 36


class Mark(NamedTuple):
    """Something that happened inside a fleet."""

    what: str
    job: str  #: its id; empty outside of jobs
    pid: int
    at: float  #: monotonic
    attempt: int


# -- what the tests do -------------------------------------------------------------------------------------------


class Fleet:
    """What one `laneway worker` command started."""

    def __init__(self, yard: Yard, log: Path, app_name: str, options: Iterable[str], env: dict[str, str]) -> None:
        self.log = log
        self._yard = yard
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "HARM_"))}
        self.since = time.monotonic()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "laneway", "worker", app_name, *options], cwd=yard.folder,
                env={**kept, "HARM_FOLDER": str(yard.folder), **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self.pid = self.process.pid

    # -- what it says ------------------------------------------------------------------------------------

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until_said(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Wait until the log has something so many times; return the last."""
        found: list[re.Match[str]] = []

        def has_said() -> bool:
            found[:] = re.finditer(pattern, self.said, re.MULTILINE)
            return len(found) >= times

        try:
            until(has_said, f"{pattern!r} in the log")
        except AssertionError as error:
            raise AssertionError(f"{error}. It says:\n{self.said}") from None
        return found[times - 1]

    # -- its processes -----------------------------------------------------------------------------------

    def members(self) -> list[Process]:
        """Return its living processes."""
        return [process for process in self.remains() if process.lives]

    def remains(self) -> list[Process]:
        """Return its processes and zombies, once orphans are buried."""
        left: list[Process] = []
        for process in family({self.pid}):
            orphan = process.parent == os.getpid() and process.pid != self.pid
            if process.lives or not orphan or os.waitpid(process.pid, os.WNOHANG)[0] != process.pid:
                left.append(process)
        return left

    def titled(self, start: str) -> list[int]:
        """Return the pids of those whose title starts so, after "laneway: "."""
        return [process.pid for process in self.members() if process.title.startswith(f"laneway: {start}")]

    @property
    def workers(self) -> list[int]:
        return self.titled("worker")

    def until_workers(self, number: int) -> list[int]:
        """Wait until so many of its workers are known to the store."""

        def pids() -> list[int]:
            living = set(self.workers)
            return [worker.pid for worker in self._yard.app.inspect.workers() if worker.pid in living]

        until(lambda: len(pids()) == number, f"{number} workers of the fleet")
        return pids()

    # -- its end -----------------------------------------------------------------------------------------

    def wait(self, timeout: float = DEADLINE) -> int:
        """Wait until it has ended; return its exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            left = "\n".join(map(str, self.remains()))
            raise AssertionError(f"the fleet did not end within {timeout:g} s:\n{left}\n{self.said}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Ask it to stop; return how long that took."""
        since = time.monotonic()
        self.process.send_signal(number)
        code = self.wait()
        took = time.monotonic() - since
        assert code == 0, f"exit code {code}:\n{self.said}"
        self.assert_gone()
        return took

    def assert_gone(self) -> None:
        """Nothing is left of it: no process, and no zombie."""
        assert self.members() == [], "processes outlived their fleet"
        until(lambda: not self.remains(), "the last zombie's end")

    def end(self) -> None:
        """End it whatever it does."""

        def nobody_left() -> bool:
            members = self.members()
            signal_all([process.pid for process in members], signal.SIGKILL)
            self.process.poll()
            return not members

        until(nobody_left, "the end of the fleet")


class Yard:
    """A store, its fleets, and what they did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = App(url(folder), enqueue_timeout=30)  # a job that holds the interpreter may hold a writer's lock with it
        self.fleets: list[Fleet] = []
        self._marks = folder / "marks"
        self._marks.touch()

    def start(
        self, *options: str, processes: int = 2, slots: int = 4, app_name: str = __file__, ready: bool = True, **env: str
    ) -> Fleet:
        """Start a fleet, and wait until its workers are there."""
        log = self.folder / f"fleet-{len(self.fleets) + 1}.log"
        fleet = Fleet(self, log, app_name, ["-p", str(processes), "-s", str(slots), *options], env)
        self.fleets.append(fleet)
        if ready:
            fleet.until_workers(processes)
        return fleet

    def write(self, code: str, name: str = "app.py") -> Path:
        """Write an app's file; its first line makes the app on this yard's store."""
        path = self.folder / name
        fresh = self.folder / f".{name}.new"
        fresh.write_text(f"from laneway import App, Retry, current_job\napp = App({self.app.url!r})\n{code}", encoding="utf-8")
        fresh.replace(path)
        return path

    # -- jobs --------------------------------------------------------------------------------------------

    def enqueue(self, task: str, *args: Any, queue: str | None = None) -> JobHandle[Any]:
        name = task if "." in task else f"fleetharm.{task}"
        return self.app.enqueue(name, *args) if queue is None else self.app.using(queue=queue).enqueue(name, *args)

    def surround(
        self, task: str, *args: Any, number: int = 40, queue: str | None = None
    ) -> tuple[JobHandle[Any], list[JobHandle[Any]]]:
        """Enqueue a harmful job in the middle of its neighbours; return it and them."""
        before = [self.enqueue("neighbour", queue=queue) for _ in range(number // 2)]
        harmful = self.enqueue(task, *args, queue=queue)
        return harmful, [*before, *(self.enqueue("neighbour", queue=queue) for _ in range(number - len(before)))]

    def job(self, handle: JobHandle[Any]) -> JobInfo:
        found = self.app.inspect.job(handle.id)
        assert found is not None, f"job {handle.id} is not in the store any more"
        return found

    def until_state(self, handle: JobHandle[Any], *states: str, timeout: float = DEADLINE) -> str:
        """Wait until a job is in one of these states; return it."""
        end = time.monotonic() + timeout
        while (state := handle.state()) not in states:
            assert time.monotonic() < end, f"{handle.task} is {state} after {timeout:g} s\n{self.logs()}"
            time.sleep(0.002)
        return state

    def until_done(self, handles: Iterable[JobHandle[Any]], timeout: float = DEADLINE) -> None:
        end = time.monotonic() + timeout
        for handle in handles:
            self.until_state(handle, "done", timeout=max(end - time.monotonic(), 0.1))

    def error(self, handle: JobHandle[Any]) -> tuple[str, str]:
        """Return the kind and the message of a job's last error."""
        last = self.job(handle).errors[-1]
        return last.kind, last.message

    # -- marks -------------------------------------------------------------------------------------------

    def marks(self, what: str | None = None, job: JobHandle[Any] | None = None) -> list[Mark]:
        lines = self._marks.read_bytes().split(b"\n")[:-1]
        found = [msgspec.json.decode(line, type=Mark) for line in lines]
        return [mark for mark in found if what in (None, mark.what) and (job is None or mark.job == job.id)]

    def until_mark(self, what: str, job: JobHandle[Any] | None = None, times: int = 1) -> Mark:
        try:
            until(lambda: len(self.marks(what, job)) >= times, f"{times} × the mark {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None
        return self.marks(what, job)[times - 1]

    def gate(self, name: str) -> Path:
        """Return a file that jobs wait for: `touch` opens it."""
        return self.folder / name

    def logs(self) -> str:
        return "\n".join(f"-- fleet {fleet.pid}:\n{fleet.said}" for fleet in self.fleets)

    def close(self, *, clean: bool) -> None:
        """Stop what still runs; if all went well so far, it must stop well too."""
        try:
            for fleet in self.fleets:
                if clean and fleet.process.poll() is None:
                    fleet.stop()
                elif clean:
                    fleet.assert_gone()
        finally:
            for fleet in self.fleets:
                fleet.end()
            self.app.close()


@contextlib.contextmanager
def open_yard(folder: Path) -> Generator[Yard]:
    """Open a yard. Meanwhile orphans of its fleets come to this process."""
    _adopt_orphans(True)
    yard = Yard(folder)
    clean = False
    try:
        yield yard
        clean = True
    finally:
        try:
            yard.close(clean=clean)
        finally:
            tell(yard.logs())
            _adopt_orphans(False)


def _adopt_orphans(adopt: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) == 0, os.strerror(ctypes.get_errno())


# -- what the fleets run -----------------------------------------------------------------------------------------

FOLDER = Path(os.environ.get("HARM_FOLDER", "/nowhere"))

app = App(url(FOLDER) if "HARM_FOLDER" in os.environ else "sqlite://", dead_after=float(os.environ.get("HARM_DEAD_AFTER", "15")))


def mark(what: str, job: JobContext | None = None) -> None:
    """Leave a mark: one write, so that it is whole whatever happens next."""
    line = msgspec.json.encode((what, job.id if job else "", os.getpid(), time.monotonic(), job.attempt if job else 0))
    fd = os.open(FOLDER / "marks", os.O_WRONLY | os.O_APPEND)
    os.write(fd, line + b"\n")
    os.close(fd)


def wait_for(gate: str) -> None:
    while not (FOLDER / gate).exists():
        time.sleep(0.005)


@app.on_death
def died(job: JobContext, error: BaseException) -> None:
    mark(f"died of {type(error).__name__}", job)


@app.on_start
def started() -> None:
    mark("start")
    if "HARM_ON_START" in os.environ:
        os._exit(int(os.environ["HARM_ON_START"]))


@app.on_stop
def stopped() -> None:
    mark("stop")


@app.task
def neighbour() -> None:
    """A short job that must not suffer."""
    mark("neighbour", current_job())
    time.sleep(0.01)


@app.task
def hold(gate: str) -> None:
    """Run until there is a file of this name."""
    mark("holding", current_job())
    wait_for(gate)
    mark("held", current_job())


@app.task
def call_around(gate: str) -> None:
    """Call functions all the time, until there is a file of this name."""

    def deep(number: int) -> int:
        return number and deep(number - 1)

    mark("holding", current_job())
    while not (FOLDER / gate).exists():
        for _ in range(100):
            deep(50)


@app.task(isolate=True)
def hold_isolated(gate: str) -> None:
    mark("holding", current_job())
    wait_for(gate)
    mark("held", current_job())


@app.task
async def hold_async(gate: str) -> None:
    mark("holding", current_job())
    while not (FOLDER / gate).exists():
        await asyncio.sleep(0.005)
    mark("held", current_job())


# Harm to the process.


def exit_now() -> None:
    os._exit(1)


def segfault() -> None:
    ctypes.string_at(0)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


CRASHES: dict[str, Callable[[], None]] = {"exit_now": exit_now, "segfault": segfault, "kill_self": kill_self}


@app.task
def crash(how: str) -> None:
    mark("crashing", current_job())
    CRASHES[how]()


@app.task
async def crash_async(how: str) -> None:
    mark("crashing", current_job())
    CRASHES[how]()


@app.task(isolate=True)
def crash_isolated(how: str) -> None:
    mark("crashing", current_job())
    CRASHES[how]()


@app.task
def crash_first(how: str) -> None:
    """Crash once."""
    mark("crashing", current_job())
    marker = FOLDER / f"crashed-{current_job().id}"
    if not marker.exists():
        marker.touch()
        CRASHES[how]()
    mark("survived", current_job())


@app.task(isolate=True, retry=Retry(times=0))
def eat_limited() -> None:
    """Allocate more than this process may have."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    bytearray(2 << 30)


kept: list[bytes] = []


@app.task
def eat(megabytes: int, gate: str) -> None:
    """Allocate, keep it, and go on until there is a file."""
    mark("holding", current_job())
    kept.append(b"x" * (megabytes << 20))
    wait_for(gate)
    mark("held", current_job())


@app.task
def fork_and_return() -> None:
    if not os.fork():
        return
    os.wait()
    mark("parent", current_job())


@app.task(retry=Retry(times=0))
def fork_and_raise() -> None:
    if not os.fork():
        raise ValueError("in the child")
    _, status = os.wait()
    mark(f"child {os.waitstatus_to_exitcode(status)}", current_job())


@app.task
async def fork_async() -> None:
    if not os.fork():
        return
    os.wait()
    mark("parent", current_job())


# Endless runs. The names of these functions are looked for in the log.

ONCE = Retry(times=1, backoff=600)


def spin_on() -> None:
    while True:
        pass


def sleep_in_c() -> None:
    time.sleep(600)


def hold_interpreter(seconds: int = 600) -> None:
    ctypes.PyDLL(None).sleep(seconds)  # PyDLL keeps the interpreter's lock during the call


def swallow_everything() -> None:
    while True:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(0.01)


ENDLESS: dict[str, Callable[[], None]] = {
    function.__name__: function for function in (spin_on, sleep_in_c, hold_interpreter, swallow_everything)
}


@app.task(timeout=1.0, retry=ONCE)
def endless(how: str) -> None:
    mark("endless", current_job())
    ENDLESS[how]()


@app.task(timeout=1.0, retry=ONCE, isolate=True)
def endless_isolated(how: str) -> None:
    mark("endless", current_job())
    ENDLESS[how]()


@app.task(timeout=1.0, retry=ONCE)
async def endless_async() -> None:
    mark("endless", current_job())
    await asyncio.sleep(600)


@app.task(timeout=1.0, retry=ONCE, isolate=True)
async def endless_async_isolated(how: str = "") -> None:
    mark("endless", current_job())
    if how:
        ENDLESS[how]()
    await asyncio.sleep(600)


@app.task(timeout=1.0, retry=ONCE)
async def blocks_the_loop() -> None:
    mark("endless", current_job())
    sleep_in_c()


@app.task(timeout=1.0, retry=ONCE)
async def swallows_cancellation() -> None:
    mark("endless", current_job())
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


@app.task
def hold_the_interpreter(seconds: int) -> None:
    mark("holding", current_job())
    hold_interpreter(seconds)
    mark("held", current_job())
