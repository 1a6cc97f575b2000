"""Lifespans: generators around a worker's life.

A lifespan is a function that yields once. Code before the `yield` runs before the worker claims anything, code after it when the
last run has ended. It yields a mapping or nothing; all mappings together are `current_job().resources`. An async lifespan runs on
the event loop of the async tasks, so that a pool that it opens belongs to that loop.

`Lifespans` says in which order they are entered and left. It calls plain ones itself, and hands out a coroutine for each async
one: a worker, an isolated run and a test each have their own way to wait for it.

Enters: generator functions.  Leaves: resources, in between.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from laneway.desk.middleware import takes
from laneway.errors import DeclarationError, LifespanError
from laneway.logs import log

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncLifespan", "Lifespan", "Lifespans", "Step", "check_lifespan"]

#: A generator function; `Iterator` and `AsyncIterator` are how their authors mostly write the type.
Lifespan = Callable[..., Iterator[Mapping[str, Any] | None]]
AsyncLifespan = Callable[..., AsyncIterator[Mapping[str, Any] | None]]
#: Entering or leaving an async lifespan: to be awaited on its event loop.
Step = Coroutine[Any, Any, None]

#: Instead of a value: the generator has ended.
_ENDED: Any = object()


def check_lifespan(function: Lifespan | AsyncLifespan) -> None:
    """Refuse a function that cannot be a lifespan."""
    name = getattr(function, "__qualname__", repr(function))
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        bare = inspect.unwrap(function) if callable(function) else function
        wrapped = bare is not function and (inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare))
        hint = "; leave out what wraps it, such as @contextmanager" if wrapped else ""
        raise DeclarationError(f"{name} is not a lifespan: it must be a function that yields once, where the worker works{hint}")
    try:
        inspect.signature(function).bind(*[None][: takes(function)])
    except TypeError:
        raise DeclarationError(f"{name} cannot be called: a lifespan takes the worker, or nothing") from None


class Lifespans:
    """The lifespans around one worker, isolated run or test: entered in the order of their declaration, left in reverse."""

    def __init__(self, functions: Sequence[Lifespan | AsyncLifespan], worker: object) -> None:
        self._functions = functions
        self._worker = worker
        self._entered: list[_Life | _AsyncLife] = []
        self._found: dict[str, Any] = {}
        self._owners: dict[str, str] = {}  # the lifespan of each resource
        self.resources: Mapping[str, Any] = MappingProxyType(self._found)
        self._at: _Life | _AsyncLife | None = None  # the one that is being entered or left
        self._enough = False  # no more are entered
        self.errors: list[BaseException] = []  #: raised when lifespans were left

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._functions

    @property
    def at(self) -> str:
        """The name of the lifespan that is being entered or left."""
        return "" if self._at is None else self._at.name

    def cancel(self) -> None:
        """Cancel the async lifespan that is being entered or left, from any thread, and enter no more. A plain one goes on."""
        self._enough = True
        if isinstance(self._at, _AsyncLife):
            self._at.cancel()

    def entering(self) -> Iterator[Step]:
        """Enter all, one after the other; raises LifespanError. The caller awaits each step before it asks for the next."""
        for function in self._functions:
            if self._enough:
                return
            life = self._at = _begin(function, self._worker)
            if isinstance(life, _AsyncLife):
                yield self._aenter(life)
            else:
                with _blaming(life.name):
                    self._take(life, life.enter())

    def leaving(self) -> Iterator[Step]:
        """Leave those that were entered. Whatever they raise is logged and kept in `errors`."""
        while self._entered:
            life = self._at = self._entered.pop()
            if isinstance(life, _AsyncLife):
                yield self._aleave(life)
            else:
                try:
                    life.leave()
                except BaseException as error:  # noqa: BLE001 - the others are left all the same
                    self._failed(life.name, error)

    @contextlib.contextmanager
    def around(self, wait: Callable[[Step], object]) -> Generator[None]:
        """Run a block inside of all. `wait` runs a step to its end."""
        try:
            for step in self.entering():
                wait(step)
            yield
        finally:
            for step in self.leaving():
                wait(step)

    @contextlib.asynccontextmanager
    async def aaround(self) -> AsyncGenerator[None]:
        """Run an async block inside of all, on its event loop."""
        try:
            for step in self.entering():
                await step
            yield
        finally:
            for step in self.leaving():
                await step

    async def _aenter(self, life: _AsyncLife) -> None:
        with _blaming(life.name):
            self._take(life, await life.enter())

    async def _aleave(self, life: _AsyncLife) -> None:
        try:
            await life.leave()
        except Exception as error:  # noqa: BLE001 - as above; a cancellation goes on
            self._failed(life.name, error)

    def _take(self, life: _Life | _AsyncLife, value: object) -> None:
        if value is _ENDED:
            raise LifespanError(f"lifespan {life.name} did not yield: it must yield once")
        self._entered.append(life)
        if value is None:
            return
        if not isinstance(value, Mapping):
            kind = type(value).__name__
            raise LifespanError(f'lifespan {life.name} yielded a {kind}: use a mapping, such as {{"db": pool}}, or nothing')
        for key, found in cast("Mapping[str, Any]", value).items():
            if key in self._found:
                raise LifespanError(f"lifespans {self._owners[key]} and {life.name} both yield {key!r}: rename one of them")
            self._found[key], self._owners[key] = found, life.name

    def _failed(self, name: str, error: BaseException) -> None:
        log.error("lifespan %s raised %s when it was left: %s", name, type(error).__name__, error, exc_info=error)
        self.errors.append(error)


class _Life:
    """One lifespan."""

    def __init__(self, name: str, generator: Generator[object]) -> None:
        self.name = name
        self._generator = generator

    def enter(self) -> object:
        return next(self._generator, _ENDED)

    def leave(self) -> None:
        if next(self._generator, _ENDED) is not _ENDED:
            self._generator.close()
            raise _yielded_twice()


class _AsyncLife:
    """One async lifespan. It has a task of its own from its start to its end: cancel scopes and task groups demand that."""

    def __init__(self, name: str, generator: AsyncGenerator[object]) -> None:
        self.name = name
        self._generator = generator
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Event

    async def enter(self) -> object:
        import asyncio  # noqa: PLC0415 - loaded already: it runs this

        loop = asyncio.get_running_loop()
        entered: asyncio.Future[object] = loop.create_future()
        self._leaving = asyncio.Event()
        task = self._task = loop.create_task(self._live(entered), name=f"lifespan {self.name}")
        try:
            return await entered
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise

    async def leave(self) -> None:
        assert self._task is not None  # noqa: S101 - it was entered
        self._leaving.set()
        await self._task

    def cancel(self) -> None:
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _live(self, entered: asyncio.Future[object]) -> None:
        try:
            value = await anext(self._generator, _ENDED)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            if not entered.done():
                entered.set_exception(error)
            return
        if entered.done():  # no caller waits for it any more
            await self._generator.aclose()
            return
        entered.set_result(value)
        if value is _ENDED:
            return
        try:
            await self._leaving.wait()
        except BaseException as error:  # noqa: BLE001 - its own task group has failed, and cancels this task
            await self._end_early(error)
            return
        if await anext(self._generator, _ENDED) is not _ENDED:
            await self._generator.aclose()
            raise _yielded_twice()

    async def _end_early(self, cancelled: BaseException) -> None:
        """Raise in the generator that its task is cancelled. It ends, and no caller waits for it now: so the error is logged."""
        why: BaseException | None = None
        try:
            await self._generator.athrow(cancelled)
        except StopAsyncIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - as in `_live`
            why = error
        log.error("lifespan %s has ended while its worker runs: what it had opened may be closed", self.name, exc_info=why)


def _begin(function: Lifespan | AsyncLifespan, worker: object) -> _Life | _AsyncLife:
    """Call a generator function; its code begins when it is entered."""
    name, made = f"{function.__module__}.{function.__qualname__}", function(*[worker][: takes(function)])
    if isinstance(made, AsyncIterator):
        return _AsyncLife(name, cast("AsyncGenerator[object]", made))  # as was checked
    return _Life(name, cast("Generator[object]", made))


@contextlib.contextmanager
def _blaming(name: str) -> Generator[None]:
    """Raise what a lifespan raises as an error of one line that names it."""
    try:
        yield
    except LifespanError:
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise LifespanError(f"lifespan {name} raised {type(error).__name__}{said and ': '}{said}") from error


def _yielded_twice() -> RuntimeError:
    return RuntimeError("it yielded twice: a lifespan must yield once")
