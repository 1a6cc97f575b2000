"""Middlewares: generators around an enqueue.

A middleware is a function that yields once. What comes before the `yield` happens before, what comes after it happens
after, and an error of the enqueue is raised at it. It may change the draft before it yields; it cannot hide an error.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Sequence

from laneway.errors import DeclarationError

__all__ = ["Middleware", "around", "check_middleware"]

Middleware = Callable[..., Generator[None, None, None]]


def check_middleware(function: Middleware) -> None:
    """Refuse what is no generator function."""
    if not inspect.isgeneratorfunction(function):
        name = getattr(function, "__qualname__", repr(function))
        raise DeclarationError(f"{name} is no middleware: it must yield once, where the work is to happen")


@contextlib.contextmanager
def around(middlewares: Sequence[Middleware], values: Sequence[object]) -> Generator[None]:
    """Run something inside all middlewares for each value, the first middleware outermost."""
    failure: BaseException | None = None
    with contextlib.ExitStack() as stack:
        for value in values:
            for middleware in middlewares:
                stack.enter_context(contextlib.contextmanager(middleware)(value))
        try:
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None:  # a middleware caught it; who enqueues must know
        raise failure
