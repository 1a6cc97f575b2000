"""Looking around: which exchanges of a busy lane also look for other jobs.

A worker that runs the jobs of one lane asks the store after each of them. If it has several queues, finding out that nothing
else is due takes the server longer than settling the job and claiming the next. So for a moment after an exchange has found
nothing else, the next exchanges look no further than to the lane's next job. Whatever else this process asks of the store ends
that moment, since it may have added a job. A worker that is busy with a lane finds jobs of other processes at most `EVERY` later.

Enters: answers of exchanges.  Leaves: whether the next one may look no further.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set

from laneway.core.instant import SECOND
from laneway.store.contract import ClaimRequest
from laneway.store.postgres.wire import PostgresWire

__all__ = ["LookAround"]

#: How long it is good enough to know that nothing else is due, microseconds.
EVERY = 2_000


class LookAround:
    """When an exchange that handed a lane on has last looked around, and found nothing else."""

    def __init__(self, wire: PostgresWire) -> None:
        self._wire = wire
        self._queues: Set[str] = frozenset()  # where it has looked
        self._good_until = 0.0  # how long that is good enough, monotonic seconds
        self._until = 0  # and by the store's clock
        self._next_due: int | None = None  # when the next job is due, as far as known, by the store's clock
        self._calls = 0  # how often this process had asked the store for anything

    def forget(self) -> None:
        """Let the next exchange look around."""
        self._good_until = 0.0

    def is_good_until(self, lane_of: str, wants: Sequence[ClaimRequest]) -> int:
        """Return until when an exchange that hands on a lane of a queue need not look around, by the store's clock.

        To be called just before it is sent.
        """
        known = self._wire.calls == self._calls and time.monotonic() < self._good_until
        self._calls = self._wire.calls + 1
        wanted = {want.queue for want in wants if want.most > 0} if known else set[str]()
        return self._until if lane_of in wanted and wanted == self._queues else 0

    def found_nothing(self, wants: Sequence[ClaimRequest], now: int, due_in: int | None) -> None:
        """Note that nothing else is due now, by the store's clock, in these queues; the next job is in so many microseconds."""
        self._queues = frozenset([want.queue for want in wants if want.most > 0])
        self._next_due = None if due_in is None else now + due_in
        self._until = now + (EVERY if due_in is None else min(EVERY, due_in))
        self._good_until, self._calls = time.monotonic() + EVERY / SECOND, self._wire.calls

    def due_in(self, now: int) -> int | None:
        """Return in how many microseconds the next job is due, as far as known."""
        return None if self._next_due is None else max(self._next_due - now, 0)
