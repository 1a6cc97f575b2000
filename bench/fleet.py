"""What a fleet costs: its start, its memory, and a process for each run.

make bench ARGS="start memory isolated"
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from any_store import COMMAND, first_job
from harness import Table, alternate
from laneway import App

PROGRAM = """
import time
from laneway import App
app = App("sqlite:///jobs.db")

@app.task
def first() -> None:
    with open("ran", "a") as file:
        file.write(f"{time.time()}\\n")

@app.task
def plain() -> None: ...

@app.task(isolate=True)
def apart() -> None: ...
"""


def program(where: Path) -> App:
    """Write the app that the fleets run, and return one that enqueues for it."""
    (where / "app.py").write_text(PROGRAM)
    return App(f"sqlite:///{where / 'jobs.db'}")


def start(where: Path) -> None:
    """From exec to the first line of the first job, with the job waiting."""
    first_job("", program(where), where)


def memory(where: Path) -> None:
    """What processes share counts in part: PSS."""
    app = program(where)
    table = Table(
        "memory of a fleet that has run 2,000 jobs, MiB of PSS", "", "with zygote", "fleet", "workers alone", "a worker RSS"
    )
    for processes in (1, 2):
        for _ in range(2000):
            app.enqueue("app.plain")
        fleet = subprocess.Popen([*COMMAND, "-p", str(processes)], cwd=where, stderr=subprocess.DEVNULL)
        while sum(app.inspect.counts().values()):
            time.sleep(0.05)
        time.sleep(1.0)
        supervisor = psutil.Process(fleet.pid)
        used = {process: process.memory_full_info() for process in (supervisor, *supervisor.children(recursive=True))}
        workers = [memory for process, memory in used.items() if "worker" in process.cmdline()[0]]
        rest = [memory for process, memory in used.items() if process.pid != fleet.pid]
        sums = [sum(each.pss for each in part) / 2**20 for part in (rest, used.values(), workers)]
        table.row(f"{processes} worker{'s' * (processes > 1)} and their zygote", *sums, workers[0].rss / 2**20)
        fleet.terminate()
        fleet.wait()


def isolated(where: Path) -> None:
    """A process for each run against a thread."""
    app = program(where)
    number = 100

    def drain(task: str) -> Callable[[], float]:
        def once() -> float:
            for _ in range(number):
                app.enqueue(task)
            began = time.perf_counter()
            subprocess.run([*COMMAND, "--burst", "-s", "1"], cwd=where, stderr=subprocess.DEVNULL, check=True)
            return time.perf_counter() - began

        return once

    def nothing() -> float:
        began = time.perf_counter()
        subprocess.run([*COMMAND, "--burst", "-s", "1"], cwd=where, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began

    empty, plain, apart = alternate(nothing, drain("app.plain"), drain("app.apart"))
    table = Table("100 no-op jobs one after another, milliseconds each", "", "ms")
    table.row("in a thread", (plain - empty) / number * 1000)
    table.row("isolated", (apart - empty) / number * 1000)


PARTS = {"start": start, "memory": memory, "isolated": isolated}
