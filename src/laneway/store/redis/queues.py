"""The registry of queues: all that ever had a job, or were paused, with their numbers.

Queues are never forgotten, so the number of queues tells whether a list of them is still complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laneway.errors import StoreError
from laneway.store.redis.keys import SHARED_KEYS, STORE
from laneway.store.redis.scripts import script
from laneway.store.redis.tokens import STEP
from laneway.store.redis.wire import Command, Wire

__all__ = ["Queues"]

#: The most queues: their numbers are part of tokens.
NUMBERS = STEP

QUEUES = STORE + SHARED_KEYS["QUEUES"]


class Queues:
    """What this process knows of the registry."""

    #: The command that returns the number of queues: sent along with commands that depend on it.
    asks: Command = ("HLEN", QUEUES)

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.numbers: dict[str, int] = {}

    def number(self, queue: str, until: float | None = None, *, copied: bool = False) -> int:
        """Return a queue's number; a new queue gets one. While a copy has closed the store, only those that it brings."""
        digest = script("register").digest
        number = int(self._wire.ask(("EVALSHA", digest, "1", STORE, queue, str(NUMBERS), "copy" if copied else ""), until))
        if number < 0:
            raise StoreError(f'{self._wire} has {NUMBERS:,} queues already, and no room for "{queue}": use lanes inside a queue')
        self.numbers[queue] = number
        return number

    def read(self, until: float | None = None) -> list[str]:
        """Return all queues that are in the registry now."""
        self.learn(self._wire.ask(("HGETALL", QUEUES), until))
        return list(self.numbers)

    def learn(self, answer: Sequence[Any]) -> None:
        """Read the registry. Entries that cannot be a queue are ignored."""
        pairs = zip(answer[::2], answer[1::2], strict=True)
        self.numbers = {
            name.decode(errors="replace"): int(number) for name, number in pairs if number.isdigit() and len(number) < 5
        }
