"""Finished runs: a store keeps the last of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from laneway.core.instant import as_datetime
from laneway.core.plain import plain

__all__ = ["Run", "read_runs"]


class Run(Struct, frozen=True, array_like=True, gc=False):
    """A finished run, or a job that was cancelled before it ran."""

    id: str
    task: str
    queue: str
    lane: str | None
    enqueued: int  #: microseconds, as the other two
    started: int  #: 0: it never ran
    finished: int
    outcome: str  #: done, retrying, dead, cancelled; unreadable: another program wrote into the store

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values."""
        known = {name: getattr(self, name) for name in ("id", "task", "queue", "lane", "outcome")}
        return {**known, **{name: plain(getattr(self, name)) for name in ("enqueued_at", "started_at", "finished_at")}}

    @property
    def enqueued_at(self) -> datetime:
        """When the store took it."""
        return as_datetime(self.enqueued)

    @property
    def started_at(self) -> datetime | None:
        """When the run began."""
        return as_datetime(self.started) if self.started else None

    @property
    def finished_at(self) -> datetime:
        """When the run ended."""
        return as_datetime(self.finished)


_runs = msgspec.json.Decoder(list[Run])


def read_runs(listed: bytes) -> list[Run]:
    """Return finished runs, the oldest first. They are stored in portions: an unreadable portion is shown as a single run."""
    try:
        return _runs.decode(b"[" + listed + b"]")
    except (ValueError, RecursionError):
        return [Run("(unreadable)", "(unreadable)", "", None, 0, 0, 0, "unreadable")]
