"""A load of three kinds of jobs: that do nothing, that compute, and that wait. And who works it off: Laneway, Sidekiq, or bare
processes.

All jobs are enqueued first. Then the processes start, say that they are ready, and wait at a gate. It opens when all of them are
there and the machine is calm, and what counts is the time from then to the end of the last job: so it makes no difference who
starts faster.

A job that computes runs a loop; how often it goes round for a given CPU time is measured, in Python and in Ruby, in the same run.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from laneway import App
from raw_redis import Server
from sidekiq_peer import tuned

__all__ = ["Fleet", "Load", "Ran", "Sidekiqs", "Spinners", "calibrated", "calm", "noise"]

RUBY = Path(__file__).with_name("sidekiq")
#: What one job takes: CPU seconds of those that compute, seconds of those that wait.
COMPUTES, WAITS = 0.015, 0.5
#: Says how often the loop of a job is to go round: measured just before, since the speed of a machine drifts.
Rounds = Callable[[], int]
#: The machine is calm if others use less of it, percent; nobody waits longer for it, seconds.
CALM, PATIENCE = 10.0, 8.0

PROGRAM = """
import json, os, time
from laneway import App

app = App({url!r})
ends = {{}}


@app.task(name="noop", queue="noop")
def noop() -> None:
    ends["noop"] = time.time()


@app.task(name="cpu", queue="cpu"{cpu})
def cpu(rounds: int) -> None:
    total = 0
    for number in range(rounds):
        total += number * number % 7
    ends["cpu"] = time.time()


@app.task(name="io", queue={io_queue!r}{io})
def io(seconds: float) -> None:
    time.sleep(seconds)
    ends["io"] = time.time()


@app.on_start
def wait_at_the_gate() -> None:
    open(f"ready-{{os.getpid()}}", "w").close()
    while not os.path.exists("gate"):
        time.sleep(0.005)


@app.on_stop
def say() -> None:
    with open(f"ran-{{os.getpid()}}", "w") as file:
        json.dump({{"ends": ends, "cpu": time.process_time()}}, file)
"""

SPINNER = """
import os, sys, time
jobs, rounds = int(sys.argv[1]), int(sys.argv[2])
open(f"ready-{os.getpid()}", "w").close()
while not os.path.exists("gate"):
    time.sleep(0.005)

def cpu(rounds):
    total = 0
    for number in range(rounds):
        total += number * number % 7

for _ in range(jobs):
    cpu(rounds)
with open(f"ran-{os.getpid()}", "w") as file:
    file.write('{"ends": {"cpu": %r}, "cpu": %r}' % (time.time(), time.process_time()))
"""

_noise: list[float] = []


@dataclass(frozen=True)
class Load:
    """So many jobs of each kind, and what is known of them."""

    noop: int = 0
    cpu: int = 0
    io: int = 0
    io_queue: str = "io"  #: "calls-io" tells by its name what is in it
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])  #: what tasks declare

    def program(self, url: str) -> str:
        """Return the app, for a worker."""
        said = {task: f', kind="{kind}"' for task, kind in self.kinds.items()}
        return PROGRAM.format(url=url, io_queue=self.io_queue, cpu=said.get("cpu", ""), io=said.get("io", ""))

    def enqueue(self, url: str, rounds: int) -> None:
        """Enqueue all of it."""
        app = App(url)

        @app.task(name="noop", queue="noop")
        def noop() -> None: ...

        @app.task(name="cpu", queue="cpu")
        def cpu(rounds: int) -> None: ...

        @app.task(name="io", queue=self.io_queue)
        def io(seconds: float) -> None: ...

        noop.enqueue_many(() for _ in range(self.noop))
        cpu.enqueue_many((rounds,) for _ in range(self.cpu))
        io.enqueue_many((WAITS,) for _ in range(self.io))
        app.close()


@dataclass(frozen=True)
class Ran:
    """How it went."""

    ends: Mapping[str, float]  #: seconds until the last job of each kind had ended
    cpu: float  #: CPU seconds of all processes that ran jobs, their start included

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return max(self.ends.values())


class Fleet:
    """`laneway worker`, with these options, on a store of its own in a folder, or on a Redis server."""

    def __init__(self, where: Path, rounds: Rounds, *options: str, server: Server | None = None, processes: int = 1) -> None:
        self._where, self._rounds, self._server, self._processes = where, rounds, server, processes
        self._options = [*options, "-p", str(processes), "--burst"]

    def work(self, load: Load) -> Ran:
        """Work a load off, from nothing known."""
        where = emptied(self._where)
        url = f"sqlite:///{where / 'jobs.db'}"
        if self._server is not None:
            self._server.client.flushdb()
            url = self._server.url
        (where / "app.py").write_text(load.program(url))
        load.enqueue(url, self._rounds() if load.cpu else 0)
        return _timed(where, [[sys.executable, "-m", "laneway", "worker", *self._options]], self._processes)


class Spinners:
    """Bare processes that compute, with nothing around it."""

    def __init__(self, where: Path, rounds: Rounds, processes: int = 1) -> None:
        self._where, self._rounds, self._processes = where, rounds, processes

    def work(self, load: Load) -> Ran:
        """Work off what computes, an equal part in each process."""
        command = [sys.executable, "-c", SPINNER, str(load.cpu // self._processes), str(self._rounds())]
        return _timed(emptied(self._where), [command] * self._processes, self._processes)


class Sidekiqs:
    """Sidekiq at its best, in one or more processes, with so many threads each; its three queues have equal weights."""

    def __init__(self, where: Path, server: Server, rounds: Rounds, threads: int, processes: int = 1) -> None:
        self._where, self._server, self._rounds, self._processes = where, server, rounds, processes
        queues = ["-q", "noop,1", "-q", "cpu,1", "-q", "io,1"]
        self._command = ["sidekiq", "-r", str(RUBY / "load.rb"), "-c", str(threads), "-t", "20", *queues]

    def work(self, load: Load) -> Ran:
        """Work a load off."""
        where = emptied(self._where)
        self._server.client.flushdb()
        environment = {**os.environ, "REDIS_URL": self._server.url, **tuned()}
        numbers = [load.noop, load.cpu, load.io, self._rounds() if load.cpu else 0, WAITS]
        command = ["ruby", str(RUBY / "load_push.rb"), *map(str, numbers)]
        subprocess.run(command, cwd=where, env=environment, check=True, stderr=subprocess.DEVNULL)
        return _timed(where, [self._command] * self._processes, self._processes, environment, self._is_empty)

    def _is_empty(self) -> bool:
        return not any(self._server.client.llen(f"queue:{name}") for name in ("noop", "cpu", "io"))


def _timed(
    where: Path, commands: Sequence[Sequence[str]], ready: int, environment: Mapping[str, str] | None = None,
    is_empty: Callable[[], bool] | None = None,
) -> Ran:  # fmt: skip
    """Start processes, open the gate for them, and hear how it went. `is_empty` says when those may stop that would go on."""
    with (where / "log").open("w") as log, ExitStack() as ending:
        running = [
            ending.enter_context(subprocess.Popen(command, cwd=where, env=environment, stdout=log, stderr=log))
            for command in commands
        ]
        for process in running:
            ending.callback(process.terminate)
        while len(list(where.glob("ready-*"))) < ready:
            assert all(process.poll() is None for process in running), (where / "log").read_text()
            time.sleep(0.02)
        calm()
        began = time.time()
        (where / "gate").touch()
        if is_empty is not None:
            while not is_empty():
                time.sleep(0.1)
            for process in running:
                process.terminate()
        assert all(process.wait(120) == 0 for process in running), (where / "log").read_text()
    said = [json.loads(path.read_text()) for path in where.glob("ran-*")]
    assert len(said) == ready, (where / "log").read_text()
    kinds = {kind for each in said for kind in each["ends"]}
    ends = {kind: max(each["ends"].get(kind, 0.0) for each in said) - began for kind in sorted(kinds)}
    return Ran(ends, sum(each["cpu"] for each in said))


def calibrated(*, ruby: bool = False) -> int:
    """Return how often the loop of a job goes round in the CPU seconds of one job, as a program in its language measured it."""
    calm()
    program = ["ruby", str(RUBY / "spin.rb")] if ruby else [sys.executable, str(Path(__file__).with_name("spin.py"))]
    environment = {**os.environ, **(tuned() if ruby else {})}
    return int(subprocess.run([*program, str(COMPUTES)], env=environment, check=True, capture_output=True, text=True).stdout)


def calm() -> None:
    """Wait until nobody else uses much of the machine, but not for ever, and note what others used then."""
    deadline = time.monotonic() + PATIENCE
    while (used := psutil.cpu_percent(0.3)) > CALM and time.monotonic() < deadline:
        pass
    _noise.append(used)


def noise() -> str:
    """Say what others used of the machine before the measurements since the last call."""
    said = f"others used {statistics.median(_noise):.0f} % of the machine before a round, {max(_noise):.0f} % at most"
    _noise.clear()
    return said


def emptied(where: Path) -> Path:
    """Return a folder with nothing in it."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    return where
