"""Positions of workers in a fleet, and how soon the next worker may take one."""

from __future__ import annotations

import time

from laneway.fleet.member import Member

__all__ = ["Position", "pause"]

#: A worker that lived this long, or ran a job, is replaced at once; else the next one waits, longer each time up to the second.
LIVED = 5.0
SLOWEST = 30.0


def pause(failures: int) -> float:
    """Return the delay after this many failures in a row, seconds."""
    return min(0.1 * 2.0 ** min(failures, 20), SLOWEST)  # after hours the power would overflow


class Position:
    """A position of the fleet, for one worker at a time. When its worker leaves, the next one may take it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.member: Member | None = None
        self.open = True  #: False: its worker was stopped by a command to it alone, and is not replaced
        self.free_at = 0.0  #: when the next worker may start, monotonic
        self.failures = 0  #: workers in a row that failed early

    def left(self, member: Member, surprise: bool) -> None:
        """Note that its worker is gone, or is about to end."""
        if self.member is not member:
            return
        self.member = None
        now = time.monotonic()
        if not surprise or now - member.since >= LIVED or any(member.board.counts.values()) or member.board.entries():
            self.failures = 0
        else:
            self.failures += 1
            self.free_at = now + pause(self.failures)
