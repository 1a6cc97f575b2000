"""The retry policy: how many times, how long between, and for which errors. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from laneway.core.instant import FAR

__all__ = ["Backoff", "Retry", "grow"]

#: Seconds, or a function of the retries before this one (0 first).
Backoff = float | Callable[[int], float]


def grow(retries: int) -> float:
    """The default backoff: about 15, 16, 31, 96, 271 … seconds and some jitter, three weeks over 25 retries."""
    return min(retries**4 + 15 + random.random() * 30 * (retries + 1), FAR)  # noqa: S311 - jitter is no secret


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed job runs again.

    >>> Retry(times=3, backoff=10).allows(1, ValueError("no"))
    True
    >>> Retry(times=3, backoff=lambda retries: 2**retries).delay(3)
    8
    """

    times: int = 5  #: retries after the first run
    backoff: Backoff = grow  #: the wait before a retry
    on: tuple[type[BaseException], ...] = (Exception,)  #: only these errors are retried
    give_up_on: tuple[type[BaseException], ...] = ()  #: these never are

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 0:
            raise ValueError(f"Retry(times={self.times!r}): use a whole number, 0 for no retry")
        if not callable(self.backoff):
            _check_seconds(self.backoff)
        for name in ("on", "give_up_on"):
            value: object = getattr(self, name)
            kinds = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
                raise ValueError(f"Retry({name}={value!r}): use exception classes, such as {name}=(TimeoutError,)")
            object.__setattr__(self, name, kinds)

    def allows(self, attempt: int, error: BaseException) -> bool:
        """Return whether a job that failed in this attempt (1 is the first) is to run again."""
        return attempt <= self.times and isinstance(error, self.on) and not isinstance(error, self.give_up_on)

    def delay(self, retries: int) -> float:
        """Return the seconds to wait after this many earlier retries, or raise ValueError if the user's function is wrong."""
        return _check_seconds(self.backoff(retries) if callable(self.backoff) else self.backoff)


def _check_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= FAR:
        raise ValueError(f"a backoff of {value!r}: use seconds from 0 to ten years")
    return value
