"""The end of a burst: a fleet ends when all its workers are idle at once, and the store has nothing to do for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from laneway.fleet.member import Member
from laneway.fleet.position import Position
from laneway.fleet.store_thread import StoreThread

__all__ = ["Burst"]


class Burst:
    """Sees when a fleet has done what there was to do."""

    def __init__(self, store_thread: StoreThread, queues: Sequence[str]) -> None:
        self._store_thread = store_thread
        self._queues = queues
        self._idle: dict[str, int] = {}  # the workers that were idle when the store was asked

    def is_done(self, positions: Sequence[Position], members: Collection[Member]) -> bool:
        """Say whether there is nothing more to do. It takes a few looks: the store is asked in between."""
        there = [position.member for position in positions if position.open]
        if any(member is None for member in there) or len(members) != len(there):
            return False
        idle = {member.id: member.board.idle for member in members}
        if not all(number % 2 for number in idle.values()) or self._store_thread.busy:
            self._idle = {}
        elif idle != self._idle:
            # What a dead worker held may have come back after the others looked for the last time: the store knows.
            self._idle = idle
            self._store_thread.ask(idle)
        elif self._store_thread.answer[0] is self._idle:
            # Nothing changed since we asked: it was so for all of them at one moment, and there was nothing to do.
            ready, self._idle = self._store_thread.answer[1], {}
            return not any(ready.get(queue) for queue in self._queues or ready)
        return False
