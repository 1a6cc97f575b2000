"""A pool of named threads for any Python program, and the policies by which it deals out jobs.

`thread_queue` hands items to threads, those of the worker too; `dispatch` has the policies, which are pure; `scheduler` keeps
capacity and order; `executor` is what users hold. Names are loaded when they are asked for: a worker needs `thread_queue` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway.errors import PoolClosed, QueueFull, UnknownTopic
    from laneway.pool.dispatch import Dispatch, LeastBusyFirst, RoundRobin, Shared, Topic
    from laneway.pool.executor import WorkerPool
    from laneway.pool.scheduler import WorkerStats

__all__ = [
    "Dispatch",
    "LeastBusyFirst",
    "PoolClosed",
    "QueueFull",
    "RoundRobin",
    "Shared",
    "Topic",
    "UnknownTopic",
    "WorkerPool",
    "WorkerStats",
]

_ROOMS = {
    "Dispatch": "laneway.pool.dispatch",
    "LeastBusyFirst": "laneway.pool.dispatch",
    "PoolClosed": "laneway.errors",
    "QueueFull": "laneway.errors",
    "RoundRobin": "laneway.pool.dispatch",
    "Shared": "laneway.pool.dispatch",
    "Topic": "laneway.pool.dispatch",
    "UnknownTopic": "laneway.errors",
    "WorkerPool": "laneway.pool.executor",
    "WorkerStats": "laneway.pool.scheduler",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_ROOMS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
