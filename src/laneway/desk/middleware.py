"""Middlewares: generators around an enqueue or a run.

A middleware is a function that yields once. Code before the `yield` runs before, code after it runs after, and an error of the
enqueue or the run is raised at it. It may change a draft before it yields; it cannot hide an error. An async middleware is only
for async tasks.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import cast

from laneway.errors import DeclarationError

__all__ = ["AsyncMiddleware", "Middleware", "aaround", "around", "check_middleware", "takes"]

#: A generator function; `Iterator` and `AsyncIterator` are how their authors mostly write the type.
Middleware = Callable[..., Iterator[None]]
AsyncMiddleware = Callable[..., AsyncIterator[None]]


def check_middleware(function: Middleware) -> None:
    """Refuse a function that is not a generator function."""
    if not inspect.isgeneratorfunction(function):
        name = getattr(function, "__qualname__", repr(function))
        raise DeclarationError(f"{name} is not a middleware: it must yield once, where the work is to happen")


def takes(function: Callable[..., object]) -> int:
    """Return the number of positional values that a function of the user's program takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 99
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


@contextlib.contextmanager
def around(middlewares: Sequence[Middleware], values: Sequence[object]) -> Generator[None]:
    """Run a block inside all middlewares for each value, the first middleware outermost."""
    running: list[tuple[Middleware, Generator[None, None, None]]] = []
    failure: BaseException | None = None
    try:
        for value in values:
            for middleware in middlewares:
                generator = cast("Generator[None, None, None]", middleware(value))  # as was checked
                if next(generator, generator) is generator:
                    raise RuntimeError(f"{middleware.__qualname__} did not yield: a middleware must yield once")
                running.append((middleware, generator))
        yield
    except BaseException as error:  # noqa: BLE001 - raised at every yield, then raised again
        failure = error
    for middleware, generator in reversed(running):
        failure = _finish(middleware, generator, failure)
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback refers to this frame: the cycle would keep the call's objects, such as a connection


def _finish(
    middleware: Middleware, generator: Generator[None, None, None], failure: BaseException | None
) -> BaseException | None:
    """Let a middleware end, and return the error for the next one: an error that it caught goes on."""
    try:
        if failure is None:
            next(generator)
        else:
            generator.throw(failure)
    except StopIteration:
        return failure
    except BaseException as error:  # noqa: BLE001 - its own, or the same again
        return error
    generator.close()
    return failure or RuntimeError(f"{middleware.__qualname__} yielded twice: a middleware must yield once")


@contextlib.asynccontextmanager
async def aaround(
    middlewares: Sequence[Middleware], async_middlewares: Sequence[AsyncMiddleware], value: object
) -> AsyncGenerator[None]:
    """Put middlewares around an async block: the plain ones outermost, then the async ones."""
    with around(middlewares, (value,)):
        failure: BaseException | None = None
        running: list[AsyncGenerator[None, None]] = []
        try:
            for middleware in async_middlewares:
                generator = cast("AsyncGenerator[None, None]", middleware(value))
                if await anext(generator, generator) is generator:
                    raise RuntimeError(f"{middleware.__qualname__} did not yield: a middleware must yield once")
                running.append(generator)
            yield
        except BaseException as error:  # noqa: BLE001 - raised at every yield, then raised again
            failure = error
        for generator in reversed(running):
            failure = await _afinish(generator, failure)
        if failure is not None:
            raise failure


async def _afinish(generator: AsyncGenerator[None, None], failure: BaseException | None) -> BaseException | None:
    try:
        if failure is None:
            await anext(generator)
        else:
            await generator.athrow(failure)
    except StopAsyncIteration:
        return failure
    except BaseException as error:  # noqa: BLE001 - its own, or the same again
        return error
    await generator.aclose()
    return failure or RuntimeError("an async middleware yielded twice: it must yield once")
