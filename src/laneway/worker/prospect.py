"""What the next exchange is for: jobs that may be there, and outcomes that are still to be written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec import Struct

from laneway.core.instant import SECOND
from laneway.core.outcome import Settled
from laneway.store.contract import Exchange

__all__ = ["OpenExchange", "Later", "Prospect"]

#: What could not be settled is sent again after this time, seconds.
LATER = 0.05
NEVER = float("inf")


class OpenExchange(Struct, gc=False):
    """An exchange that was begun, and whose answer is to be heard."""

    hear: Callable[[], Exchange]
    settled: list[Settled]
    limit: int
    loads: dict[str, int]  #: of the queues that were known then
    unsure: bool  #: the answer before it got lost
    at: float
    rings: int  #: how often the store had rung when it was begun


class Prospect:
    """Whether there may be something to claim."""

    def __init__(self) -> None:
        self.look = True  #: now
        self.due = NEVER  #: or then, monotonic seconds
        self.rings = 0  #: how often the store has said so

    def come(self) -> None:
        """See whether the time has come."""
        if self.due <= time.monotonic():
            self.look, self.due = True, NEVER

    def answered(self, answer: Exchange, asked: OpenExchange, *, new_queues: bool) -> None:
        """Learn from an answer; nothing was asked of queues that are new."""
        # What rang since this was asked may have come after it.
        self.look = answer.more or new_queues or self.rings != asked.rings
        self.due = NEVER if answer.next_due is None else time.monotonic() + answer.next_due / SECOND

    @property
    def is_something(self) -> bool:
        """Something may be there, now or later."""
        return self.look or self.due != NEVER


class Later:
    """Outcomes that somebody else's transaction kept from being written: they go with a later exchange."""

    def __init__(self) -> None:
        self.outcomes: list[Settled] = []
        self.at = NEVER

    def keep(self, outcomes: Iterable[Settled]) -> None:
        """Keep outcomes for a later exchange."""
        self.outcomes += outcomes
        self.at = time.monotonic() + LATER

    def take(self) -> list[Settled]:
        """Take all that was kept."""
        taken, self.outcomes, self.at = self.outcomes, [], NEVER
        return taken
