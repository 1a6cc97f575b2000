"""Laneway: background jobs for Python.

Every job runs in a lane. Jobs in one lane never overlap and never overtake. Lanes run in parallel.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway.app import App
    from laneway.context import Cancel, LaneFailures, RetryIn, Snooze, current_job
    from laneway.errors import LanewayError
    from laneway.handle import JobHandle, LaneHandle
    from laneway.retry import Retry
    from laneway.worker import Worker

__all__ = [
    "App",
    "Cancel",
    "current_job",
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

#: Where each name lives. It is loaded when somebody asks for it: a fleet's supervisor never does, and starts in half the time.
_ROOMS = {
    "App": "laneway.app",
    "Cancel": "laneway.context",
    "current_job": "laneway.context",
    "JobHandle": "laneway.handle",
    "LaneFailures": "laneway.context",
    "LaneHandle": "laneway.handle",
    "LanewayError": "laneway.errors",
    "Retry": "laneway.retry",
    "RetryIn": "laneway.context",
    "Snooze": "laneway.context",
    "Worker": "laneway.worker",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_ROOMS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
