"""Runs that go on after their timeout: they do not yield, and can only be ended with their process.

Enters: a worker's board.  Leaves: which runs are late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from laneway.worker.board import ASYNC, ISOLATED, Board, Entry

__all__ = ["Late", "Overdue", "late"]

#: How long a worker that is about to be ended has to write its stacks, seconds.
STACKS_WITHIN = 0.25
#: How long a worker that is about to be ended has to settle what has just run, seconds.
SETTLE_WITHIN = 1.0


class Late(NamedTuple):
    """The runs of a worker that have not ended in time, and whether any other run still makes progress."""

    tokens: frozenset[int]
    others: bool


def late(entries: Sequence[Entry], loop_blocked: bool, now: int, grace: int) -> Late:
    """Judge a board: times in microseconds.

    Isolated runs are left to their worker. While the event loop is blocked, no run on it makes progress.
    """
    found = {entry.token for entry in entries if entry.deadline and now > entry.deadline + grace and entry.where != ISOLATED}
    stuck = {entry.token for entry in entries if entry.where == ASYNC} if loop_blocked else set[int]()
    return Late(frozenset(found), any(entry.token not in found | stuck for entry in entries))


class Overdue:
    """The late runs of one worker."""

    def __init__(self) -> None:
        self.tokens: frozenset[int] = frozenset()  #: runs that do not end
        self.since = 0.0  #: since when, monotonic
        self._others_at = float("-inf")  # when others last ran beside them, monotonic
        self._loop_blocked = 0  # the turn in which the event loop is blocked; 0: it is not
        self._loop_told = 0  # the turn for which that was last logged

    def look(self, board: Board, grace: int) -> Late:
        """Read a worker's board; a run may take `grace` microseconds to end after its timeout."""
        entries, now, turned = board.entries(), time.monotonic_ns() // 1000, board.loop
        blocked = turned > 0 and now - turned > grace and any(entry.where == ASYNC for entry in entries)
        self._loop_blocked = turned if blocked else 0
        found = late(entries, blocked, now, grace)
        if found.others:
            self._others_at = time.monotonic()
        return found

    def may_be_ended(self, found: Late) -> bool:
        """Return whether the worker may be ended: its late runs are logged, and nothing else runs, or has just run.

        The outcome of a run that has just ended may not be in the store yet: it would run again.
        """
        ready = max(self.since + STACKS_WITHIN, self._others_at + SETTLE_WITHIN)
        return bool(found.tokens) and not found.others and time.monotonic() > ready

    def are_new(self, tokens: frozenset[int]) -> bool:
        """Return whether there are late runs that were not late before."""
        if tokens <= self.tokens:
            return False
        self.tokens |= tokens
        self.since = time.monotonic()
        return True

    def loop_is_blocked_anew(self) -> bool:
        """Return, once, that the event loop is blocked."""
        told, self._loop_told = self._loop_told, self._loop_blocked or self._loop_told
        return self._loop_blocked not in (0, told)
