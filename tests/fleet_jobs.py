"""The app that fleets run in the tests of faults: its jobs write down when they start and when they end.

The fleets load it by its path. The tests declare the same tasks on an app of their own.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_evidence import append
from laneway import App, current_job
from laneway.desk.task import Task

__all__ = ["Tasks", "app", "declare"]


@contextmanager
def _on_record(lane: str, seq: int) -> Generator[None]:
    """Note a start and an end."""
    job, path = current_job(), os.environ["FLEET_EVIDENCE"]
    append(path, "start", job.id, lane, seq, job.token, job.attempt)
    yield
    append(path, "end", job.id, lane, seq, job.token, job.attempt)


def step(lane: str, seq: int, seconds: float) -> None:
    """Take a while."""
    with _on_record(lane, seq):
        time.sleep(seconds)


def hold(lane: str, seq: int, gate: str) -> None:
    """Go on when there is a file of this name."""
    with _on_record(lane, seq):
        while not Path(gate).exists():
            time.sleep(0.002)


def hog(lane: str, seq: int, gate: str) -> None:
    """Hold the interpreter, so that no other thread of the process sees anything, until there is a file of this name."""
    with _on_record(lane, seq):
        while not Path(gate).exists():
            ctypes.PyDLL(None).usleep(500_000)  # PyDLL keeps the interpreter's lock, and the processor is free


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one app."""

    step: Task[[str, int, float], Any, Any]
    hold: Task[[str, int, str], Any, Any]
    hog: Task[[str, int, str], Any, Any]


def declare(on: App) -> Tasks:
    """Declare the tasks on an app."""
    return Tasks(
        step=on.task(name="step", lane="lane")(step),
        hold=on.task(name="hold", lane="lane")(hold),
        hog=on.task(name="hog", lane="lane")(hog),
    )


app = App(os.environ.get("FLEET_STORE", "sqlite://"), dead_after=float(os.environ.get("FLEET_DEAD_AFTER", "15")))
declare(app)
