"""The end of a burst: a fleet ends when all its workers are idle at once, and the store has nothing to do for them.

Or when none of its workers can start: a fleet that stays tries again, and a burst must come to an end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from laneway.errors import ConfigError
from laneway.fleet.member import Member
from laneway.fleet.position import Position
from laneway.fleet.store_thread import StoreThread

__all__ = ["Burst"]

#: The number of workers that may fail one after the other in a position.
TRIES = 4
#: How long the error waits for the log to tell the ends of the last workers, seconds: a store that is away delays them for ever.
LAST_ENDS = 3.0


class Burst:
    """Finds out when a fleet has done all jobs."""

    def __init__(self, store_thread: StoreThread, queues: Sequence[str]) -> None:
        self._store_thread = store_thread
        self._queues = queues
        self._idle: dict[str, int] = {}  # the workers that were idle when the store was asked, by id
        self._error_at = 0.0  # from then on the error does not wait for the log, monotonic; 0: there is no error

    def is_done(self, positions: Sequence[Position], members: Collection[Member]) -> bool:
        """Return whether there is nothing more to do. This takes a few calls: the store is asked in between."""
        self._check_failures([position.failures for position in positions if position.open], any_member=bool(members))
        there = [position.member for position in positions if position.open]
        if any(member is None for member in there) or len(members) != len(there):
            return False
        idle = {member.id: member.board.idle for member in members}
        if not all(number % 2 for number in idle.values()) or self._store_thread.busy:
            self._idle = {}
        elif idle != self._idle:
            # Claims of a dead worker may have come back after the others last looked: the store knows.
            self._idle = idle
            self._store_thread.ask(idle)
        elif self._store_thread.answer[0] is self._idle:
            # Nothing has changed since the question: all workers were idle at one moment, and there was nothing to do.
            ready, self._idle = self._store_thread.answer[1], {}
            return not any(ready.get(queue) for queue in self._queues or ready)
        return False

    def _check_failures(self, failures: Sequence[int], *, any_member: bool) -> None:
        """Raise an error if no worker can start: behind what the log has to tell of the last ones, if that comes soon."""
        if not failures or min(failures) < TRIES:
            self._error_at = 0.0
        elif not any_member:
            now = time.monotonic()
            self._error_at = self._error_at or now + LAST_ENDS
            if not self._store_thread.busy or now >= self._error_at:
                raise ConfigError(f"no worker could start, {TRIES} times in a row: the log says why. No job was run since")
