"""The shop whose dashboard is tested in a browser. Its fleet and its dashboard load this file by its path.

The tests declare the same tasks on an app of their own. Nobody serves the queue `mail`: what is in it waits until somebody acts.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laneway import App, Retry, current_job
from laneway.desk.collector import Collector
from laneway.desk.task import Task

__all__ = ["SERVED", "Tasks", "app", "declare"]

#: The queues that the fleet serves.
SERVED = "default,slow,billing,flaky,sync"


def add(a: int, b: int = 1) -> int:
    """Return a sum."""
    return a + b


def mail(to: str, subject: str = "hello", *, password: str = "") -> None:
    """Wait in a queue that nobody serves."""


def hold(gate: str) -> None:
    """Go on when there is a file of this name, or when somebody does not want it any more."""
    job = current_job()
    job.log("holding")
    job.progress(1, 4)
    while not Path(gate).exists():
        if job.cancelled:
            job.progress(2, 4)
        time.sleep(0.005)


def charge(customer: str, till: str) -> None:
    """Fail for good until there is a file of this name."""
    if not Path(till).exists():
        raise ValueError(f"no money at {customer}")


def flaky(host: str) -> None:
    """Fail, to be tried again in ten minutes."""
    raise TimeoutError(f"{host} did not answer")


def nightly() -> None:
    """Run at night."""


def sync(lanes: dict[str, list[Any]]) -> None:
    """Take what has gathered."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one app."""

    add: Task[..., Any, Any]
    mail: Task[..., Any, Any]
    hold: Task[..., Any, Any]
    charge: Task[..., Any, Any]
    ship: Task[..., Any, Any]
    flaky: Task[..., Any, Any]
    sync: Collector[Any, Any]


def declare(on: App) -> Tasks:
    """Declare the tasks on an app."""
    on.task(name="nightly", schedule="0 3 * * *")(nightly)
    on.task(name="never", queue="mail", schedule="0 4 29 2 *")(nightly)
    return Tasks(
        add=on.task(name="add", keep_result=600)(add),
        mail=on.task(name="mail", queue="mail")(mail),
        hold=on.task(name="hold", queue="slow")(hold),
        charge=on.task(name="charge", queue="billing", lane="customer", retry=Retry(times=0))(charge),
        ship=on.task(name="ship", queue="billing", lane="customer", halt_on_death=True, retry=Retry(times=0))(charge),
        flaky=on.task(name="flaky", queue="flaky", retry=Retry(times=3, backoff=600))(flaky),
        sync=on.collector(name="sync")(sync),
    )


app = App(os.environ.get("BROWSER_STORE", "sqlite://"))
declare(app)
