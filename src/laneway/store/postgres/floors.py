"""Floors: where the walks of exchanges begin, so that they do not read the dead entries of claimed jobs again and again.

docs/design.md explains them. They are kept for each queue, for jobs without lanes and for lanes.

Enters: answers of exchanges.  Leaves: where the next walks begin.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from laneway.store.contract import ClaimRequest
from laneway.store.postgres.turn import NOTHING_BEFORE

__all__ = ["Floor", "FloorPair", "Floors", "is_slow"]

#: For how long walks begin where the last one did, seconds. Then they begin at the front, and find jobs that other processes gave
#: back.
FLOOR_HOLDS = 1.0
#: If an exchange with walks from the front reads more than FRONT_TAKES blocks and entries of indexes for each queue, plus
#: EACH_TAKES for each job that it settles or claims, it has met many dead ones: vacuum has not come yet, or cannot remove them,
#: since a transaction is open somewhere. A block or an entry takes about a microsecond (the measured duration says nothing: the
#: server may be busy). Walks begin at the front again only after FRONT_SHARE times that duration, or RUNG_SHARE times if the
#: store has rung meanwhile or jobs were put back there, and at most FRONT_LATEST seconds.
FRONT_TAKES, EACH_TAKES, FRONT_SHARE, RUNG_SHARE, FRONT_LATEST = 100, 30, 20, 4, 60.0

#: Due, place and sequence number of a job: a walk begins there.
Floor = tuple[int, int, int]
NO_FLOOR: Floor = (0, 0, 0)
#: Where walks of jobs without lanes begin, and of lanes.
FloorPair = tuple[Floor, Floor]
NO_FLOORS: FloorPair = (NO_FLOOR, NO_FLOOR)


class Floors:
    """Where walks begin, by queue."""

    def __init__(self) -> None:
        self.lowered = 0  #: how many times floors were lowered: an exchange that was sent before must not raise them
        self.front_at = 0.0  #: when walks may begin at the front again, monotonic seconds
        self._rung_at = 0.0  # and when they may if the store has rung
        self._last: dict[str, FloorPair] = {}  # where the last walks have found jobs
        self._last_until = 0.0
        self._empty: dict[str, FloorPair] = {}  # no due job is before this point, by the last walks

    def put_back(self) -> None:
        """Let the next walks begin at the front: something was put back there."""
        self._last, self._empty, self.front_at = {}, {}, 0.0
        self.lowered += 1

    def rung(self) -> None:
        """Let walks begin at the front sooner: something may have been put back there."""
        self.front_at = min(self.front_at, self._rung_at)

    def begin(self, wants: Sequence[ClaimRequest], limit: int) -> tuple[bool, list[FloorPair]]:
        """Return whether the next walks may begin at the front, and where they begin first, for each want."""
        now = time.monotonic()
        full = now >= self.front_at
        if full and limit > 0 and now > self._last_until:
            self._last_until, self._last = now + FLOOR_HOLDS, {}
            return full, [NO_FLOORS for _ in wants]
        return full, [self._of(want.queue) for want in wants]

    def raise_to(self, rows: list[Any], wants: Sequence[ClaimRequest], nothing: int, now: int, *, found_late: bool) -> None:
        """Let later walks begin where these have found something, or near the store's time where they have found nothing.

        `found_late`: they went from the front past many dead entries, and have left jobs there. Walks begin at the front again
        only after a while, so the next ones begin at the jobs that were found, also where the front was taken to be empty.
        """
        for number, want in enumerate(wants):
            mine = [row for row in rows if row[4] == want.queue and row[0] % 1000 == 500]
            plain = next((row[8:11] for row in mine if row[5] is None), NO_FLOOR)
            laned = next((row[8:11] for row in mine if row[5] is not None), NO_FLOOR)
            self._last[want.queue] = (plain, laned)
            before, bits, here = self._empty.get(want.queue, NO_FLOORS), nothing >> 2 * number, (now - NOTHING_BEFORE, 0, 0)
            if found_late:
                before = _lower(before[0], plain), _lower(before[1], laned)
            self._empty[want.queue] = (
                max(plain, before[0], here if bits & 1 else NO_FLOOR), max(laned, before[1], here if bits & 2 else NO_FLOOR),
            )  # fmt: skip

    def lower_to(self, due: int) -> None:
        """Let walks begin at this due time at the latest: a job that has it became the holder of its lane."""
        self.lowered += 1
        for floors in (self._last, self._empty):
            floors.update({queue: (plain, min(laned, (due, 0, 0))) for queue, (plain, laned) in list(floors.items())})

    def was_slow(self, read: int) -> None:
        """Let walks begin at the front later: an exchange has read so many entries and blocks there."""
        now = time.monotonic()
        self._rung_at, self.front_at = (now + min(share * read / 1_000_000, FRONT_LATEST) for share in (RUNG_SHARE, FRONT_SHARE))

    def _of(self, queue: str) -> FloorPair:
        """Return where walks begin: where the last one did, or where those of the other kind have found nothing."""
        plain, laned = self._last.get(queue, NO_FLOORS)
        no_plain, no_laned = self._empty.get(queue, NO_FLOORS)
        return max(plain, no_plain), max(laned, no_laned)


def is_slow(read: int, queues: int, jobs: int) -> bool:
    """Return whether an exchange of so many queues and jobs has met many dead entries, by the entries and blocks that it read."""
    return read > FRONT_TAKES * max(queues, 1) + EACH_TAKES * jobs


def _lower(floor: Floor, found: Floor) -> Floor:
    """Return the floor below which nothing waits, if a walk from the front has found this first; NO_FLOOR: nothing."""
    return floor if found == NO_FLOOR else min(floor, found)
