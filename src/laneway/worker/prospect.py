"""What the next exchange is for: jobs that may be there, and outcomes that are still to be written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec import Struct

from laneway.core.instant import SECOND
from laneway.core.outcome import Settled
from laneway.errors import StoreMoved
from laneway.logs import log
from laneway.store.contract import Exchange

__all__ = ["OpenExchange", "Later", "Prospect"]

#: Outcomes that could not be settled are sent again after this time, seconds.
LATER = 0.05
#: A worker whose store was moved looks again after this time, seconds: the store may have been reopened.
MOVED = 5.0
NEVER = float("inf")


class OpenExchange(Struct, gc=False):
    """An exchange that was begun, and whose answer was not read yet."""

    hear: Callable[[], Exchange]
    settled: list[Settled]
    limit: int
    loads: dict[str, int]  #: of the queues known at that time
    unsure: bool  #: the previous answer got lost
    at: float
    rings: int  #: how many times the store had rung when it was begun


class Prospect:
    """Whether there may be something to claim."""

    def __init__(self) -> None:
        self.look = True  #: there may be now
        self.due = NEVER  #: or at this time, monotonic seconds
        self.rings = 0  #: how many times the store has rung
        self._moved = False  # the store was moved: nothing can be claimed

    def come(self) -> None:
        """Check whether `due` has passed."""
        if self.due <= time.monotonic():
            self.look, self.due = True, NEVER

    def answered(self, answer: Exchange, asked: OpenExchange, *, new_queues: bool) -> None:
        """Learn from an answer; new queues were not asked for claims."""
        if self._moved and not asked.settled:  # outcomes are taken by a store that was moved, too
            self._moved = False
            log.warning("worker claims again: the store was reopened")
        # A ring since the request may be for a job that came after it.
        self.look = answer.more or new_queues or self.rings != asked.rings
        self.due = NEVER if answer.next_due is None else time.monotonic() + answer.next_due / SECOND

    def moved(self, error: StoreMoved) -> None:
        """Log, once, that the store was moved; look again later."""
        self.look, self.due = False, time.monotonic() + MOVED
        if not self._moved:
            self._moved = True
            log.error("%s. This worker claims nothing more, and finishes what it runs", error)

    @property
    def is_something(self) -> bool:
        """Whether there may be something to claim, now or later."""
        return self.look or self.due != NEVER


class Later:
    """Outcomes that another client's transaction kept from being written: they go with a later exchange."""

    def __init__(self) -> None:
        self.outcomes: list[Settled] = []
        self.at = NEVER

    def keep(self, outcomes: Iterable[Settled]) -> None:
        """Keep outcomes for a later exchange."""
        self.outcomes += outcomes
        self.at = time.monotonic() + LATER

    def take(self) -> list[Settled]:
        """Take all kept outcomes."""
        taken, self.outcomes, self.at = self.outcomes, [], NEVER
        return taken
