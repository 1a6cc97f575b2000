"""Threads: where blocking calls go. The dashboard has few of its own, so that a store that does not answer cannot take all
threads of the program it is mounted in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

__all__ = ["in_thread"]

T = TypeVar("T")

#: The most at a time.
MOST = 16

_limit: RunVar[anyio.CapacityLimiter] = RunVar("laneway_web_threads")  # one for each event loop


async def in_thread(call: Callable[[], T]) -> T:
    """Call something that blocks, and wait for it without blocking others."""
    limit = _limit.get(None)
    if limit is None:
        limit = anyio.CapacityLimiter(MOST)
        _limit.set(limit)
    return await anyio.to_thread.run_sync(call, limiter=limit)
