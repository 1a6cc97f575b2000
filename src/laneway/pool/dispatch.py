"""Dispatch: which worker gets a job.

A policy says, when its pool opens, how many workers each line has. Then, for every job, it chooses one of these lines only by the
numbers it is given. It keeps no state, starts no thread and reads no clock; so two pools may share one, and its tests are tables.

Enters: loads.  Leaves: the number of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from laneway.errors import ConfigError, UnknownTopic, did_you_mean

__all__ = ["Dispatch", "LeastBusyFirst", "RoundRobin", "Shared", "Topic"]


class Dispatch:
    """A policy. Only `choose` must be written.

    >>> class Last(Dispatch):
    ...     def choose(self, number, loads, topic):
    ...         return len(loads) - 1
    """

    apart = False  #: whether each line has a capacity of its own: then `choose` may look at nothing but the topic

    def lines(self, size: int) -> Sequence[int]:
        """Return the number of workers of each line: one by default."""
        return [1] * size

    def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:
        """Choose a line, by its number, for the next job.

        `number` is how many jobs have joined a line before it, `loads` how many wait or run at each line, `topic` the caller's
        option. It may be called again for the same job, if there was no room for it.
        """
        raise NotImplementedError


class Shared(Dispatch):
    """One line for all: the next free worker takes the next job."""

    def lines(self, size: int) -> Sequence[int]:
        """Return one line with all workers."""
        return [size]

    def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:  # noqa: ARG002
        """Return the only line."""
        return 0


class LeastBusyFirst(Dispatch):
    """The worker with the fewest jobs, waiting and running; of several the first.

    >>> LeastBusyFirst().choose(7, [2, 1, 3, 1], None)
    1
    """

    def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:  # noqa: ARG002
        """Choose the smallest load."""
        return loads.index(min(loads))


class RoundRobin(Dispatch):
    """One worker after the other, regardless of their loads.

    >>> [RoundRobin().choose(number, [0, 9, 0], None) for number in range(4)]
    [0, 1, 2, 0]
    """

    def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:  # noqa: ARG002
        """Choose the next line in turn."""
        return number % len(loads)


class Topic(Dispatch):
    """Workers of their own, and a capacity of its own, for each topic.

    Give each topic its number of workers, or only the topics: then the workers are dealt evenly, and the remaining ones go to the
    first topics.

    >>> Topic({"mail": 3, "img": 1}).lines(4)
    [3, 1]
    >>> Topic(["mail", "img"]).lines(5)
    [3, 2]
    """

    apart = True

    def __init__(self, topics: Mapping[str, int] | Iterable[str]) -> None:
        shares = cast("Mapping[str, int]", topics) if isinstance(topics, Mapping) else None
        are_names = isinstance(topics, Iterable) and not isinstance(topics, str)
        names = list(cast("Iterable[Any]", topics)) if are_names else []
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ConfigError(f'topics are a few different names, as in Topic({{"mail": 3, "img": 1}}), not {topics!r}')
        for name, workers in (shares or {}).items():
            if isinstance(workers, bool) or not isinstance(workers, int):
                raise ConfigError(f'the topic "{name}" has {workers!r} workers: use a whole number from 1 on')
        self._numbers = {name: number for number, name in enumerate(names)}
        self._sizes = None if shares is None else list(shares.values())

    def lines(self, size: int) -> Sequence[int]:
        """Return the workers of each topic."""
        if self._sizes is None:
            each, more = divmod(size, len(self._numbers))
            sizes = [each + (number < more) for number in range(len(self._numbers))]
        else:
            sizes = self._sizes
        if sum(sizes) != size or min(sizes) < 1:
            said = ", ".join(f"{name}: {number}" for name, number in zip(self._numbers, sizes, strict=True))
            raise ConfigError(f"the pool has {size} workers, and its topics need one each and all of them together ({said})")
        return sizes

    def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:  # noqa: ARG002
        """Choose the topic's line."""
        if topic not in self._numbers:
            raise UnknownTopic(self._unknown(topic), topic=topic)
        return self._numbers[topic]

    def _unknown(self, topic: str | None) -> str:
        known = ", ".join(self._numbers)
        if topic is None:
            return f"this pool goes by topics: say which with pool.using(topic=...). Known: {known}"
        return f'this pool has no topic "{topic}".{did_you_mean(topic, self._numbers)} Known: {known}'
