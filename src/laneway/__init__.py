"""Laneway: background jobs for Python.

Every job runs in a lane. Jobs in one lane never overlap and never overtake. Lanes run in parallel.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway.core.retry import Retry
    from laneway.desk.app import App
    from laneway.desk.context import Cancel, JobContext, LaneFailures, RetryIn, Snooze, current_job
    from laneway.desk.enqueue import Draft
    from laneway.desk.handle import JobHandle, LaneHandle
    from laneway.errors import LanewayError
    from laneway.worker import Worker

__all__ = [
    "App",
    "Cancel",
    "current_job",
    "Draft",
    "JobContext",
    "JobHandle",
    "LaneFailures",
    "LaneHandle",
    "LanewayError",
    "Retry",
    "RetryIn",
    "Snooze",
    "Worker",
]

__version__ = "0.1.0.dev0"

#: The module of each name. It is imported on first use: a fleet's supervisor never does, and starts in half the time.
_ROOMS = {
    "App": "laneway.desk.app",
    "Cancel": "laneway.desk.context",
    "current_job": "laneway.desk.context",
    "Draft": "laneway.desk.enqueue",
    "JobContext": "laneway.desk.context",
    "JobHandle": "laneway.desk.handle",
    "LaneFailures": "laneway.desk.context",
    "LaneHandle": "laneway.desk.handle",
    "LanewayError": "laneway.errors",
    "Retry": "laneway.core.retry",
    "RetryIn": "laneway.desk.context",
    "Snooze": "laneway.desk.context",
    "Worker": "laneway.worker",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_ROOMS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
