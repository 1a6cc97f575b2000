"""Freshness: whether a worker's claims are surely its own.

A process that was frozen or cut off from its store may have been taken for dead, and its claims given to others. So a worker
knows when it last spoke with the store. After half the time that others wait before they take it for dead, a claim that has not
started does not start any more: it goes back.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable

__all__ = ["Freshness", "clock"]

#: Seconds that go on while the machine sleeps, where there is such a clock.
clock = functools.partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1)))


class Freshness:
    """What a worker knows about its contact with the store."""

    def __init__(self, limit: float = float("inf")) -> None:
        self.limit = limit  #: so long after the store was spoken with claims are surely our own, seconds
        self.spoken = clock()  #: when the store was last spoken with
        self.fence = 0  #: claims up to this token are not ours, whatever the time
        self._slept = clock()  # when the worker's thread last went to sleep
        self._frozen = False  # it slept for longer than it ever does, and the store was not spoken with since
        self._returned = float("-inf")  # when this worker last made itself known again

    def is_silent(self, now: float) -> bool:
        """Say whether the store was not spoken with for too long."""
        return now - self.spoken > self.limit

    def goes_to_sleep(self) -> None:
        """Note that the worker's thread is about to sleep, and whether it was frozen before."""
        now = clock()
        self._frozen = self.was_frozen(now)
        self._slept = now

    def was_frozen(self, now: float) -> bool:
        """Say whether this process stood still for long, since the store was last spoken with."""
        return self._frozen or now - self._slept > self.limit

    def spoke(self, at: float) -> None:
        """The store has answered what was asked then."""
        self.spoken = at
        self._frozen = False

    def distrust(self, tokens: Iterable[int]) -> None:
        """None of these claims, and no older one, is surely ours."""
        self.fence = max([self.fence, *tokens])

    def returns(self) -> None:
        """This worker makes itself known again."""
        self._returned = clock()

    @property
    def has_just_returned(self) -> bool:
        """Nobody can have taken us for dead again since our return: a death that we hear of now is the one before it."""
        return clock() - self._returned <= 2 * self.limit

    def returned_for_nothing(self, before: float) -> None:
        """The store knew us all the time: forget the return."""
        self._returned = before

    @property
    def returned(self) -> float:
        """When this worker last made itself known again."""
        return self._returned
