"""Declaring: decorators with options, which wait for their function and are typed by it; and modules that declare."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from laneway.desk.collector import Collector, KeyedCollector
from laneway.desk.task import Task
from laneway.errors import ConfigError, DeclarationError

__all__ = ["Declare", "DeclareCollector", "DeclareKeyed", "check_function", "import_module", "origin"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C")


class _Declaring:
    """A decorator with its options."""

    def __init__(self, declare: Callable[[Callable[..., Any], Mapping[str, Any]], Any], options: Mapping[str, Any]) -> None:
        self._declare = declare
        self._options = options


class Declare(_Declaring):
    """`@app.task(...)`, waiting for its function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._declare(function, self._options)


class DeclareCollector(_Declaring):
    """`@app.collector(...)`, waiting for its function."""

    def __call__(self, function: Callable[[dict[str, list[T]]], C], /) -> Collector[T, C]:
        return self._declare(function, self._options)  # type: ignore[no-any-return]


class DeclareKeyed(_Declaring):
    """`@app.collector(lane=...)`, waiting for its function."""

    def __call__(self, function: Callable[[dict[str, list[T]]], C], /) -> KeyedCollector[T, C]:
        return self._declare(function, self._options)  # type: ignore[no-any-return]


def check_function(where: str, function: object) -> None:
    """Refuse what is not a function."""
    if not inspect.isroutine(function):
        raise DeclarationError(f"{where} is for functions, not {function!r}; a name goes in name=")


def import_module(name: str) -> None:
    """Import a module; with `.*` at its end all modules of a package."""
    package = importlib.import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        if not hasattr(package, "__path__"):
            raise ConfigError(
                f'imports: "{name}" names all modules of a package, and {package.__name__} is none: leave out the ".*"'
            )
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)


def origin(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the name and the file of a function: a module that is loaded again declares the same ones anew."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return function.__qualname__, "" if code is None else code.co_filename
