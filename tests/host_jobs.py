"""The app that fleets on several hosts run: the jobs of `fleet_jobs`, some that notice when they are told to stop, and clocks."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import fleet_jobs
from fleet_evidence import append
from laneway import App, Retry, current_job
from laneway.desk.task import Task

__all__ = ["Tasks", "app", "declare"]


def note(what: str) -> None:
    """Write down that something happened in a job, when by all clocks, and where: one line, in one write."""
    job = current_job()
    line = f"{what} {job.id} {job.token} {os.uname().nodename} {time.monotonic_ns()} {time.time_ns()}\n"
    file = os.open(os.environ["FLEET_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    os.write(file, line.encode())
    os.close(file)


def watch(lane: str, seq: int, gate: str) -> None:
    """Go on when there is a file of this name, and note if it is told to stop before."""
    job, told = current_job(), False
    append(os.environ["FLEET_EVIDENCE"], "start", job.id, lane, seq, job.token, job.attempt)
    while not Path(gate).exists():
        if job.cancelled and not told:
            told = True
            note("told")
        time.sleep(0.002)
    append(os.environ["FLEET_EVIDENCE"], "end", job.id, lane, seq, job.token, job.attempt)


async def astep(lane: str, seq: int, seconds: float) -> None:
    """Take a while, on the event loop. Who is told to stop does, and has not ended."""
    job = current_job()
    append(os.environ["FLEET_EVIDENCE"], "start", job.id, lane, seq, job.token, job.attempt)
    await asyncio.sleep(seconds)
    append(os.environ["FLEET_EVIDENCE"], "end", job.id, lane, seq, job.token, job.attempt)


async def ahold(lane: str, seq: int, gate: str) -> None:
    """Go on when there is a file of this name, on the event loop. Who is told to stop does, and has not ended."""
    job = current_job()
    append(os.environ["FLEET_EVIDENCE"], "start", job.id, lane, seq, job.token, job.attempt)
    while not os.path.exists(gate):
        await asyncio.sleep(0.002)
    append(os.environ["FLEET_EVIDENCE"], "end", job.id, lane, seq, job.token, job.attempt)


def later(name: str) -> None:
    """Note when it runs."""
    note(name)


def sends(name: str, seconds: float) -> None:
    """Enqueue `later` for so many seconds from now, by this host's own clock or whatever counts."""
    note(f"before-{name}")
    tasks.later.using(run_after=seconds).enqueue(name)
    note(f"after-{name}")


def fails_once(name: str) -> None:
    """Fail in the first attempt."""
    note(f"{name}-{current_job().attempt}")
    if current_job().attempt == 1:
        raise ValueError("once")


def ticks() -> None:
    """Run every second."""
    note("tick")


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one app."""

    watch: Task[[str, int, str], Any, Any]
    astep: Task[[str, int, float], Any, Any]
    ahold: Task[[str, int, str], Any, Any]
    later: Task[[str], Any, Any]
    sends: Task[[str, float], Any, Any]
    fails_once: Task[[str], Any, Any]


def declare(on: App, *, scheduled: bool = False) -> Tasks:
    """Declare the tasks on an app that has those of `fleet_jobs`."""
    if scheduled:
        on.task(name="ticks", schedule=timedelta(seconds=1))(ticks)
    return Tasks(
        watch=on.task(name="watch", lane="lane")(watch),
        astep=on.task(name="astep", lane="lane")(astep),
        ahold=on.task(name="ahold", lane="lane")(ahold),
        later=on.task(name="later")(later),
        sends=on.task(name="sends")(sends),
        fails_once=on.task(name="fails_once", retry=Retry(times=1, backoff=1.0))(fails_once),
    )


app = App(os.environ.get("FLEET_STORE", "sqlite://"), dead_after=float(os.environ.get("FLEET_DEAD_AFTER", "15")))
fleet_jobs.declare(app)
tasks = declare(app, scheduled="FLEET_TICKS" in os.environ)
