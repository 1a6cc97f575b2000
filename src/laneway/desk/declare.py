"""Decorators with options, waiting for their function; what they return is typed by it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from laneway.desk.collector import Collector, KeyedCollector
from laneway.desk.task import Task

__all__ = ["Declare", "DeclareCollector", "DeclareKeyed"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C")


class Declare:
    """`@app.task(...)`, waiting for its function."""

    def __init__(self, declare: Callable[[Callable[..., Any], Mapping[str, Any]], Any], options: Mapping[str, Any]) -> None:
        self._declare = declare
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._declare(function, self._options)


class DeclareCollector:
    """`@app.collector(...)`, waiting for its function."""

    def __init__(self, declare: Callable[[Callable[..., Any], Mapping[str, Any]], Any], options: Mapping[str, Any]) -> None:
        self._declare = declare
        self._options = options

    def __call__(self, function: Callable[[dict[str, list[T]]], C], /) -> Collector[T, C]:
        return self._declare(function, self._options)  # type: ignore[no-any-return]


class DeclareKeyed:
    """`@app.collector(lane=...)`, waiting for its function."""

    def __init__(self, declare: Callable[[Callable[..., Any], Mapping[str, Any]], Any], options: Mapping[str, Any]) -> None:
        self._declare = declare
        self._options = options

    def __call__(self, function: Callable[[dict[str, list[T]]], C], /) -> KeyedCollector[T, C]:
        return self._declare(function, self._options)  # type: ignore[no-any-return]
