"""Findings: the answers of an examination, by `laneway doctor` and `app.inspect.examine()`.

A store examines itself (`Inspect.examine`): its file, its server, its settings. What is the same for all stores, workers, queues
and schedules, is examined in `laneway.desk.checks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Literal

from laneway.core.plain import Plain

__all__ = ["LEVELS", "Finding", "check_latency", "megabytes"]

#: The worst first.
LEVELS = ("problem", "warning", "note", "ok")

#: The number of round trips to a server that are measured.
TRIPS = 5
#: Round trips that are slow, seconds: a worker makes one for each few jobs, an enqueue waits for one.
SLOW_TRIP, VERY_SLOW_TRIP = 0.005, 0.05


class Finding(Plain, frozen=True):
    """One thing that was examined."""

    what: str  #: a short name that stays the same: `eviction`, `disk`
    #: `problem`: jobs do not run, or are lost; `warning`: they may be, or soon; `note`: worth knowing; `ok`: as it should be
    level: Literal["ok", "note", "warning", "problem"]
    found: str  #: what was found, and why it matters; without a full stop
    advice: str = ""  #: what to do; empty: nothing

    def __str__(self) -> str:
        return f"{self.found}. {self.advice}" if self.advice else self.found


def check_latency(ask: Callable[[], object]) -> Finding:
    """Judge how long a round trip to a server usually takes: `ask` makes one."""
    took: list[float] = []
    for _ in range(TRIPS):
        begun = time.perf_counter()
        ask()
        took.append(time.perf_counter() - begun)
    seconds = median(took)
    text = f"a round trip takes {seconds * 1000:.1f} ms"
    if seconds < SLOW_TRIP:
        return Finding("latency", "ok", text)
    advice = "Run workers near the server; look at its load, and at commands that take long"
    return Finding("latency", "warning" if seconds >= VERY_SLOW_TRIP else "note", f"{text}: each enqueue waits for one", advice)


def megabytes(size: int) -> str:
    """Return a number of bytes for people.

    >>> megabytes(1_234_567_890), megabytes(90_000)
    ('1,235 MB', '0.1 MB')
    """
    return f"{size / 1e6:,.0f} MB" if size >= 9_500_000 else f"{size / 1e6:.1f} MB"
