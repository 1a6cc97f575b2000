"""Calls that wait for the store, from an event loop: in threads of ours, since the loop's own may be busy with other work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["is_on_a_loop", "offload"]

P = ParamSpec("P")
T = TypeVar("T")

#: How many calls wait at a time.
THREADS = 4


class _Threads:
    """The threads of this process."""

    executor: ThreadPoolExecutor | None = None

    def start(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only a program with an event loop needs it

        self.executor = ThreadPoolExecutor(THREADS, thread_name_prefix="laneway-async")
        return self.executor

    def forget(self) -> None:
        """A forked child has none of its parent's threads."""
        self.executor = None


_threads = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


async def offload(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread, and await what it returns. Whoever stops waiting for it does not stop it."""
    import asyncio  # noqa: PLC0415 - loaded already: it runs this
    from functools import partial  # noqa: PLC0415

    executor = _threads.executor or _threads.start()
    return await asyncio.get_running_loop().run_in_executor(executor, partial(function, *args, **kwargs))


def is_on_a_loop() -> bool:
    """Say whether an event loop runs in this thread."""
    if "asyncio" not in sys.modules:
        return False
    import asyncio  # noqa: PLC0415 - loaded already

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
