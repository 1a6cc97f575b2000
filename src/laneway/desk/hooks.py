"""Hooks: what a user's program wants to know of its workers.

`on_start` and `on_stop` get the worker, `on_death` the job and its error, `on_crash` the error that ends the worker. A hook
takes as many of these as it has parameters. One that raises is logged and harms nobody.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from laneway.core.outcome import ErrorInfo
from laneway.desk.middleware import AsyncMiddleware, Middleware, check_middleware
from laneway.errors import DeclarationError
from laneway.logs import log

__all__ = ["Hooks"]


class Hooks:
    """The middlewares around runs, and the functions to call at certain moments."""

    def __init__(self) -> None:
        self.middlewares: list[Middleware] = []
        self.async_middlewares: list[AsyncMiddleware] = []
        self.format_error: Callable[[BaseException], str] | None = None  #: how errors are stored
        self._functions: dict[str, list[tuple[Callable[..., object], int]]] = {}

    def add_middleware(self, function: Middleware | AsyncMiddleware) -> None:
        """Add a middleware; an async one is for async tasks alone."""
        if inspect.isasyncgenfunction(function):
            self.async_middlewares.append(function)
        else:
            check_middleware(function)  # type: ignore[arg-type]
            self.middlewares.append(function)  # type: ignore[arg-type]

    def add(self, moment: str, function: Callable[..., object]) -> None:
        """Add a function for a moment."""
        if inspect.iscoroutinefunction(function) or not callable(function):
            raise DeclarationError(f"{moment} takes a plain function, not {function!r}")
        self._functions.setdefault(moment, []).append((function, _takes(function)))

    def describe(self, error: BaseException) -> ErrorInfo:
        """Return an error as it is stored."""
        return ErrorInfo.of(error, self.format_error)

    def call(self, moment: str, *values: Any) -> None:
        """Call all functions of a moment."""
        for function, takes in self._functions.get(moment, ()):
            try:
                function(*values[:takes])
            except BaseException:  # noqa: BLE001 - SystemExit of a hook harms nobody either
                log.exception("%s of %s raised", moment, getattr(function, "__qualname__", function))


def _takes(function: Callable[..., object]) -> int:
    """Return how many positional values a function takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 99
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
