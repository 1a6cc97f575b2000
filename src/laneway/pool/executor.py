"""The pool as its users see it: a `concurrent.futures.Executor` with a bounded queue (back-pressure).

`submit` waits while the pool is full: that keeps a fast producer at the pace of its workers. Two callers must never be
made to wait, since the threads that could make room would wait for them: an event loop, and the pool's own workers. Their jobs
wait outside until there is room; the future is there at once.

Enters: functions and arguments.  Leaves: futures, or awaitables.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypedDict, TypeVar, Unpack

from laneway.errors import BadArguments, BadOption, ConfigError, QueueFull, did_you_mean
from laneway.pool.dispatch import Dispatch, Shared
from laneway.pool.job import PoolJob
from laneway.pool.scheduler import Scheduler, WorkerStats

if TYPE_CHECKING:
    import asyncio

__all__ = ["Options", "PoolUsing", "WorkerPool"]

P = ParamSpec("P")
T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of `pool.using`."""

    block: bool  #: False: QueueFull at once, if there is no room
    timeout: float | None  #: QueueFull after this many seconds
    topic: str | None  #: for policies that look at it


class PoolUsing(Executor):
    """A view of a pool, with options. It is an Executor like the pool; only the pool itself can be shut down."""

    def __init__(self, pool: WorkerPool | None, scheduler: Scheduler, options: Options) -> None:
        self._pool = pool  # keeps the pool alive as long as there is a view of it
        self._scheduler = scheduler
        self._options = options
        self._topic = options.get("topic")
        self._timeout = options.get("timeout")
        self._block = options.get("block", True) and self._timeout != 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let a worker call `fn(*args, **kwargs)`: every keyword is the function's own. Waits for room, if there is none."""
        _refuse_async(fn)
        job = PoolJob(self._scheduler, self._topic, fn, args, kwargs)
        if not self._scheduler.enter(job, stay=self._block):
            self._wait_outside(job)
        return job

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any],
        timeout: float | None = None, chunksize: int = 1, buffersize: int | None = None,  # noqa: ARG002
    ) -> Iterator[T]:  # fmt: skip
        """Call `fn` with the items of the iterables; the results come in their order.

        All are submitted before it returns, which waits for room as `submit` does. With `buffersize` at most that many are
        ahead of the next result, and the iterables may be endless. Raises TimeoutError if a result is not there `timeout`
        seconds after the call. `chunksize` means nothing in one process.
        """
        if buffersize is not None and (not isinstance(buffersize, int) or buffersize < 1):
            raise ConfigError(f"buffersize is how many jobs may be ahead, 1 or more, not {buffersize!r}")
        deadline = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables, strict=False)
        ahead: deque[Future[T]] = deque()
        try:
            for args in calls:
                ahead.append(self._submit_until(deadline, fn, args))
                if len(ahead) == buffersize:
                    break
        except BaseException:
            _cancel(ahead)
            raise
        return self._results(fn, calls, ahead, deadline)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await the result of a call in a worker. Only this coroutine waits, for room and for the result.

        Like `asyncio.to_thread` it takes context variables along. Cancelling takes the job back, if it has not started.
        """
        return await (await self.asubmit(fn, *args, **kwargs))

    async def asubmit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Await until there is room; return a future to await the result."""
        import asyncio  # noqa: PLC0415 - a program without coroutines never loads it

        _refuse_async(fn)
        job: PoolJob[T] = PoolJob(self._scheduler, self._topic, _in_context, (contextvars.copy_context(), fn, args, kwargs), {})
        if not self._scheduler.enter(job, stay=self._block):
            await self._await_outside(job)
        return asyncio.wrap_future(job)

    def _wait_outside(self, job: PoolJob[Any]) -> None:
        loop = _running_loop()
        if loop is not None:
            if self._timeout is not None:
                loop.call_later(self._timeout, _expire, self._scheduler, job)
            return
        if self._timeout is None and self._scheduler.is_ours(threading.current_thread()):
            return
        bed = threading.Lock()
        bed.acquire()
        if not self._scheduler.tell(job, bed.release):
            return
        try:
            in_time = bed.acquire(timeout=-1 if self._timeout is None else self._timeout)
        except BaseException:
            job.cancel()
            raise
        full = None if in_time else self._scheduler.give_up(job)
        if full is not None:
            raise full

    async def _await_outside(self, job: PoolJob[Any]) -> None:
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        entered = asyncio.Event()

        def let_in() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(entered.set)

        if not self._scheduler.tell(job, let_in):
            return
        try:
            async with asyncio.timeout(self._timeout):
                await entered.wait()
        except TimeoutError:
            full = self._scheduler.give_up(job)
            if full is not None:
                raise full from None
        except BaseException:
            job.cancel()
            raise

    def _results(
        self, fn: Callable[..., T], calls: Iterator[tuple[Any, ...]], ahead: deque[Future[T]], deadline: float | None
    ) -> Iterator[T]:
        try:
            while ahead:
                future = ahead[0]
                result = future.result(None if deadline is None else deadline - time.monotonic())
                ahead.popleft()
                del future
                for args in calls:
                    ahead.append(self._submit_until(deadline, fn, args))
                    break
                yield result
                del result
        finally:
            _cancel(ahead)

    def _submit_until(self, deadline: float | None, fn: Callable[..., T], args: tuple[Any, ...]) -> Future[T]:
        if deadline is None or self._timeout is not None or not self._block:
            return self.submit(fn, *args)
        try:
            return self.using(timeout=max(deadline - time.monotonic(), 0)).submit(fn, *args)
        except QueueFull:
            raise TimeoutError from None

    def using(self, **options: Unpack[Options]) -> PoolUsing:
        """Return a view with options: block, timeout, topic."""
        return PoolUsing(self._pool, self._scheduler, {**self._options, **_checked(options)})


class WorkerPool(PoolUsing):
    """Named threads that run jobs; at most `capacity` jobs wait.

    >>> with WorkerPool(2) as pool:
    ...     future = pool.submit(divmod, 17, 5)
    ...     list(pool.map(str.upper, ["a", "b"]))
    ['A', 'B']
    >>> future.result()
    (3, 2)
    """

    def __init__(self, size: int, dispatch: Dispatch | None = None, capacity: int | None = None) -> None:
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"a pool has one worker or more, not {size!r}")
        if capacity is not None and (not isinstance(capacity, int) or capacity < 0):
            raise ConfigError(f"capacity is how many jobs may wait, 0 or more, not {capacity!r}")
        if dispatch is not None and not isinstance(dispatch, Dispatch):
            raise ConfigError(f"dispatch is a policy, as in dispatch=LeastBusyFirst(), not {dispatch!r}")
        self.size = size
        self.capacity = size if capacity is None else capacity
        super().__init__(None, Scheduler(size, dispatch or Shared(), self.capacity), {})
        # A pool without references need not be closed; the scheduler handles the end of the interpreter.
        weakref.finalize(self, self._scheduler.close).atexit = False

    def using(self, **options: Unpack[Options]) -> PoolUsing:
        """Return a view with options.

        `block=False`: QueueFull, if there is no room. `timeout=2.5`: QueueFull, if there is none for that many seconds.
        `topic="mail"`: for policies that look at it.
        """
        return PoolUsing(self, self._scheduler, _checked(options))

    def stats(self) -> dict[str, WorkerStats]:
        """Return the state of each worker, by name ("worker_0", ...): queued, busy, done."""
        return self._scheduler.stats()

    def close(self) -> None:
        """Take no more jobs. Jobs that were taken are run."""
        self._scheduler.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pool is closed and all its jobs are over; return False if that takes longer than `timeout`."""
        return self._scheduler.wait(timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the pool and wait for its jobs unless `wait` is False; `cancel_futures` cancels those that have not started."""
        self.close()
        if cancel_futures:
            self._scheduler.cancel_all()
        if wait:
            self.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import asyncio  # noqa: PLC0415

        self.close()
        await asyncio.to_thread(self.wait)


def _checked(options: Options) -> Options:
    for name in options:
        if name not in Options.__annotations__:
            known = ", ".join(Options.__annotations__)
            raise BadOption(f'using() has no option "{name}".{did_you_mean(name, Options.__annotations__)} Known: {known}')
    block, timeout, topic = options.get("block", True), options.get("timeout"), options.get("topic")
    if not isinstance(block, bool):
        raise BadOption(f"block is True or False, not {block!r}")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0):
        raise BadOption(f"timeout is how many seconds to wait for room, not {timeout!r}")
    if not isinstance(topic, str | None):
        raise BadOption(f"topic is a name, not {topic!r}")
    return options


def _refuse_async(fn: object) -> None:
    """Refuse async functions: their coroutine would never be awaited. Called for every job: quick for plain functions."""
    code = getattr(fn, "__code__", None)
    if code is not None:
        is_async = bool(code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
    else:
        is_async = inspect.iscoroutine(fn) or _is_async(fn) or (callable(fn) and _is_async(type(fn).__call__))
    if is_async:
        name = getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__)
        raise BadArguments(
            f"{name} is async, and a pool's threads call plain functions: await it where your event loop runs, or give it a loop "
            f"of its own in a thread: pool.submit(asyncio.run, {name}(...))"
        )


def _is_async(fn: object) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    if "asyncio" not in sys.modules:
        return None
    import asyncio  # noqa: PLC0415

    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def _expire(scheduler: Scheduler, job: PoolJob[Any]) -> None:
    full = scheduler.give_up(job)
    if full is not None:
        with contextlib.suppress(InvalidStateError):  # cancelled at this moment
            job.set_exception(full)


def _in_context(context: contextvars.Context, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
    try:
        return context.run(fn, *args, **kwargs)
    except StopIteration as error:  # asyncio cannot pass it on: the awaiting coroutine would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()
