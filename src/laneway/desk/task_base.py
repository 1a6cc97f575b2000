"""What is declared: a function with its policy, as a worker sees it. The base of tasks and collectors."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from laneway.core.retry import Retry
from laneway.desk.synonyms import MISSING_OF_TASKS, explains_missing
from laneway.errors import DeclarationError
from laneway.locks import lock_held_over_forks

if TYPE_CHECKING:
    from laneway.core.cron import Schedule
    from laneway.desk.app import App

__all__ = ["INTROSPECTION_LOCK", "TaskBase", "function_name", "single_parameters"]


#: Held by a thread that reads annotations: msgspec crashes when two threads inspect a type for the first time together.
INTROSPECTION_LOCK = lock_held_over_forks()


@explains_missing(MISSING_OF_TASKS, "TASK.")
class TaskBase:
    """A function that workers run, and how."""

    __name__: str
    #: Retries unless the declaration says otherwise.
    retries = 5

    def __init__(self, app: App, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            name = options.get("name") or function_name(function)
            raise DeclarationError(f"{name} yields: a task is a plain or async function")
        self.app = app
        self.function = function
        self.name: str = options.get("name") or function_name(function)
        self.queue: str = options.get("queue", "default")
        self.retry: Retry = options.get("retry") or Retry(times=self.retries)
        self.timeout: float | None = options.get("timeout")
        self.isolate: bool = options.get("isolate", False)
        self.kind: Literal["cpu", "io"] | None = options.get("kind")
        self.keep_result: float | None = options.get("keep_result")
        self.halt_on_death: bool = options.get("halt_on_death", False)
        self.schedule: Schedule | None = None
        self.is_async = inspect.iscoroutinefunction(function)
        functools.update_wrapper(cast("Callable[..., Any]", self), function, updated=())

    def prepare(self) -> None:
        """Read the annotations, while there are no threads yet. A mistake in them is reported where they are used."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def function_name(function: Callable[..., object]) -> str:
    """Return a function's module and name; for a program's own module the name it has when imported."""
    module = function.__module__
    if module in ("__main__", "__mp_main__"):  # the second in children that multiprocessing spawned
        main = sys.modules[module]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{function.__qualname__}".replace("<locals>.", "")


def single_parameters(function: Callable[..., object]) -> list[str]:
    """Return the names of the parameters that take one value each."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
