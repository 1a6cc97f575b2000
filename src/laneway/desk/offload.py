"""Calls that wait for the store, from an event loop: in threads of ours, since the loop's own may be busy with other work."""

from __future__ import annotations

import contextvars
import itertools
import os
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from laneway.errors import BulkError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["is_on_a_loop", "offload", "offload_many", "portions"]

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
    """Call a function in a thread, in the caller's context, and await its result. If the caller is cancelled, it goes on."""
    import asyncio  # noqa: PLC0415 - loaded already: it runs this
    from functools import partial  # noqa: PLC0415

    executor = _threads.executor or _threads.start()
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(executor, call)


async def offload_many(push: Callable[[list[T]], int], items: Iterable[T] | AsyncIterable[T], chunk: int) -> int:
    """Push items in chunks, each in a thread; the items are made on the event loop. Return the number accepted."""
    accepted = 0
    async for portion in portions(items, chunk):
        try:
            accepted += await offload(push, portion)
        except BulkError as error:
            raise BulkError.of(error.reason, accepted + error.accepted) from error.reason
    return accepted


async def portions(items: Iterable[T] | AsyncIterable[T], chunk: int) -> AsyncIterator[list[T]]:
    """Yield items in lists of this length."""
    chunk = max(chunk, 1) if isinstance(chunk, int) else 1  # the push refuses it
    if not isinstance(items, AsyncIterable):
        rest = iter(items)
        while portion := list(itertools.islice(rest, chunk)):
            yield portion
        return
    portion = list[T]()
    async for item in items:
        portion.append(item)
        if len(portion) >= chunk:
            yield portion
            portion = list[T]()
    if portion:
        yield portion


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
