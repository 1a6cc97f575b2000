"""Freshness: whether a worker certainly still holds its claims.

A process that was frozen or cut off from its store may have been declared dead, and its claims given to other workers. So a
worker remembers when the store last answered. After half of `dead_after` without an answer it starts no more claims, and gives
them back.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable

__all__ = ["Freshness", "clock"]

#: A clock in seconds that also runs while the machine sleeps, where there is one.
clock = functools.partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1)))


class Freshness:
    """What a worker knows about its contact with the store."""

    def __init__(self, limit: float = float("inf")) -> None:
        self.limit = limit  #: for this long after `spoken` the claims are certainly held, seconds
        self.spoken = clock()  #: when the last request was sent that the store answered
        self.fence = 0  #: claims up to this token are lost, whatever the time
        self._slept = clock()  # when the worker's thread last went to sleep
        self._frozen = False  # the thread slept for too long, and the store has not answered since
        self.returned = float("-inf")  #: when this worker last registered again

    def is_silent(self, now: float) -> bool:
        """Return whether the store has not answered for too long."""
        return now - self.spoken > self.limit

    def goes_to_sleep(self) -> None:
        """Note that the worker's thread is about to sleep, and whether it was frozen before."""
        now = clock()
        self._frozen = self.was_frozen(now)
        self._slept = now

    def was_frozen(self, now: float) -> bool:
        """Return whether this process was frozen for long since the store's last answer."""
        return self._frozen or now - self._slept > self.limit

    def spoke(self, at: float) -> None:
        """Note that the store has answered a request that was sent at that time."""
        self.spoken = at
        self._frozen = False

    def distrust(self, tokens: Iterable[int]) -> None:
        """Treat these claims, and all older ones, as lost."""
        self.fence = max([self.fence, *tokens])

    def returns(self) -> None:
        """Note that this worker registers again."""
        self.returned = clock()

    @property
    def has_just_returned(self) -> bool:
        """Whether this worker registered so recently that it cannot have been declared dead since: a reported death is older."""
        return clock() - self.returned <= 2 * self.limit

    def returned_for_nothing(self, before: float) -> None:
        """Forget the last registration: the store knew this worker all the time."""
        self.returned = before
