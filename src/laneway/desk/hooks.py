"""Hooks: functions of the user's program that are called at moments of a worker's life.

`on_start` and `on_stop` get the worker, `on_death` the job and its error, `on_crash` the error that ends the worker. A hook
takes as many of these as it has parameters. Hooks listen to the app's events: an error in a hook is only logged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from laneway.core.outcome import ErrorInfo
from laneway.desk.lifespan import AsyncLifespan, Lifespan, check_lifespan
from laneway.desk.middleware import AsyncMiddleware, Middleware, check_middleware, takes
from laneway.desk.run_log import log_failures
from laneway.errors import DeclarationError
from laneway.events import Death, Event, Events, WorkerCrashed, WorkerStarted, WorkerStopped

__all__ = ["Hooks"]

#: The event of each moment, and the values that its functions get.
MOMENTS: dict[str, tuple[type[Event], Callable[[Any], tuple[object, ...]]]] = {
    "on_start": (WorkerStarted, lambda event: (event.worker,)),
    "on_stop": (WorkerStopped, lambda event: (event.worker,)),
    "on_death": (Death, lambda event: (event.job, event.error)),
    "on_crash": (WorkerCrashed, lambda event: (event.error,)),
}


class Hooks:
    """The middlewares around runs, the lifespans around workers, and the functions to call at certain moments."""

    def __init__(self) -> None:
        self.middlewares: list[Middleware] = []
        self.async_middlewares: list[AsyncMiddleware] = []
        self.lifespans: list[Lifespan | AsyncLifespan] = []
        self.format_error: Callable[[BaseException], str] | None = None  #: how errors are stored
        self.events = Events()
        log_failures(self.events)

    def add_middleware(self, function: Middleware | AsyncMiddleware) -> None:
        """Add a middleware; an async one is for async tasks alone."""
        if inspect.isasyncgenfunction(function):
            self.async_middlewares.append(function)
        else:
            check_middleware(function)  # type: ignore[arg-type]
            self.middlewares.append(function)  # type: ignore[arg-type]

    def add_lifespan(self, function: Lifespan | AsyncLifespan) -> None:
        """Add a lifespan, inside of those before it."""
        check_lifespan(function)
        self.lifespans.append(function)

    def add(self, moment: str, function: Callable[..., object]) -> None:
        """Add a function for a moment."""
        if inspect.iscoroutinefunction(function) or not callable(function):
            raise DeclarationError(f"{moment} takes a plain function, not {function!r}")
        kind, values = MOMENTS[moment]
        wanted = takes(function)

        def call(event: Event) -> None:
            function(*values(event)[:wanted])

        call.__qualname__ = f"{moment} of {getattr(function, '__qualname__', function)}"
        self.events.listen(kind, call)

    def describe(self, error: BaseException) -> ErrorInfo:
        """Return an error as it is stored."""
        return ErrorInfo.of(error, self.format_error)
