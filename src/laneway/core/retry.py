"""The retry policy: how many times, how long between, and for which errors. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from laneway.core.instant import FAR

__all__ = ["Backoff", "Retry", "grow", "stored_policy", "with_stored"]

#: Seconds; seconds for each retry, the last for all after it; or a function of the retries before this one (0 first).
Backoff = float | list[float] | tuple[float, ...] | Callable[[int], float]


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
    >>> policy = Retry(times=5, backoff=[10, 30, 60], max_delay=45)
    >>> [policy.delay(retries) for retries in range(5)]
    [10, 30, 45, 45, 45]
    """

    times: int = 5  #: retries after the first run
    backoff: Backoff = grow  #: the wait before a retry
    on: tuple[type[BaseException], ...] = (Exception,)  #: only these errors are retried
    give_up_on: tuple[type[BaseException], ...] = ()  #: these never are
    max_delay: float | None = None  #: no wait is longer, seconds
    jitter: float = 0.0  #: each wait is up to this part longer or shorter, by chance: jobs that failed together come back apart

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 0:
            raise ValueError(f"Retry(times={self.times!r}): use a whole number, 0 for no retry")
        backoff = self.backoff
        if isinstance(backoff, list | tuple):
            if not backoff:
                raise ValueError("Retry(backoff=[]): name at least one wait, in seconds")
            waits = cast("Sequence[object]", backoff)
            object.__setattr__(self, "backoff", tuple([_check_seconds(wait) for wait in waits]))
        elif not callable(backoff):
            _check_seconds(backoff)
        if self.max_delay is not None and not _is_seconds(self.max_delay):
            raise ValueError(f"Retry(max_delay={self.max_delay!r}): use seconds from 0 to ten years")
        if not _is_seconds(self.jitter) or self.jitter > 1:
            raise ValueError(f"Retry(jitter={self.jitter!r}): use a part from 0 to 1, such as 0.1 for 10 %")
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
        backoff = self.backoff
        if callable(backoff):
            wait = _check_seconds(backoff(retries))
        else:
            wait = backoff if isinstance(backoff, int | float) else backoff[min(retries, len(backoff) - 1)]
        if self.jitter:
            wait *= 1 + self.jitter * (2 * random.random() - 1)  # noqa: S311 - jitter is no secret
        return min(wait, FAR if self.max_delay is None else self.max_delay)


def _is_seconds(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= FAR


def _check_seconds(value: object) -> float:
    if not _is_seconds(value):
        raise ValueError(f"a backoff of {value!r}: use seconds from 0 to ten years")
    return cast("float", value)


def stored_policy(policy: Retry) -> list[object]:
    """Return what can be stored of a policy with a job: numbers, and neither errors nor functions."""
    stored: list[object] = [policy.times, None if callable(policy.backoff) else policy.backoff]
    return stored if policy.max_delay is None and not policy.jitter else [*stored, policy.max_delay, policy.jitter]


def with_stored(policy: Retry, stored: Sequence[Any]) -> Retry:
    """Return a task's policy with what was stored with a job. A job without a backoff of its own has all waits of its task.

    What cannot be read is a ValueError or a TypeError.
    """
    times, backoff, *limits = stored
    if backoff is None and not limits:
        return replace(policy, times=times)
    max_delay, jitter = limits or (None, 0.0)
    return replace(
        policy, times=times, backoff=policy.backoff if backoff is None else backoff, max_delay=max_delay, jitter=jitter
    )
