"""The books: all that a store counts, as one value.

Read when a turn begins, changed in memory, written back before it commits. So nobody ever counts jobs, and a thousand jobs
cost no more book-keeping than one.

Jobs become due by time alone, with nobody writing anything. So a queue's counts hold as of its `ripe` time; who looks at
the queue next counts what has become due since, which is each job once in its life.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, field

from laneway.errors import StoreCorrupt
from laneway.store.sqlite.sql import SQL

__all__ = [
    "BLOCKED",
    "DEAD",
    "READY",
    "RETRYING",
    "RUNNING",
    "SCHEDULED",
    "Books",
    "Execute",
    "Queue",
    "decode",
    "encode",
    "ranks",
    "ripen",
]

#: Where a queue counts its jobs.
SCHEDULED, READY, RETRYING, BLOCKED, RUNNING, DEAD = range(6)

Execute = Callable[[str, tuple[Any, ...]], sqlite3.Cursor]


class Queue(Struct, array_like=True):
    """A queue and how many of its jobs are in each state."""

    name: str
    paused: bool = False
    ripe: int = 0  #: jobs due up to here are counted as ready, later ones as scheduled or retrying
    counts: list[int] = field(default_factory=lambda: [0] * 6)
    paused_by: str = ""
    paused_at: int = 0  #: microseconds
    collects: bool = False  #: it is a collector's: lanes are counted, and dead payloads

    def move(self, before: int | None, after: int | None, number: int = 1) -> None:
        """Count jobs out of one state and into another; None is outside the store."""
        if before is not None:
            self.counts[before] -= number
        if after is not None:
            self.counts[after] += number

    def waiting(self, due: int, failed: bool) -> int:
        """Say as what a waiting job counts."""
        if due <= self.ripe:
            return READY
        return RETRYING if failed else SCHEDULED


class Books(Struct):
    """What the whole store counts."""

    now: int = 0  #: the highest time seen, microseconds: the store's now never goes back
    seq: int = 0  #: the last sequence number given to a place
    token: int = 0  #: the last token given to a claim
    score: float = 0.0  #: the last score given to a payload that had none
    runs: int = 0  #: finished runs, the number of the last one in laneway_recent
    enqueued: int = 0  #: of a collector payloads, and so are those processed, dead and cancelled
    merged: int = 0  #: payloads that became one with an equal one
    processed: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    recovered: int = 0
    refused: int = 0
    queues: list[Queue] = []
    arrived: dict[str, dict[str, int]] = {}  #: queue → task → how many came since
    arrived_at: int = 0  #: this stretch of ten seconds began, microseconds; see statistics.py
    closed: int = 0  #: statistics up to here are added up, microseconds


_books = msgspec.json.Decoder(Books)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> Books:
    """Read the books."""
    try:
        return _books.decode(data)
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"the books of the store (laneway_meta) cannot be read: {error}. Restore a backup") from error


def ripen(execute: Execute, queue: Queue, now: int) -> bool:
    """Bring a queue's counts up to a time; say whether they changed."""
    changed = False
    if queue.ripe < now and (queue.counts[SCHEDULED] or queue.counts[RETRYING]):
        for rank in ranks(execute, queue.name):
            due, failed = execute(SQL["ripen"], (queue.name, rank, queue.ripe, now)).fetchone()
            queue.move(RETRYING, READY, failed)
            queue.move(SCHEDULED, READY, due - failed)
            changed = changed or due > 0
    queue.ripe = max(queue.ripe, now)
    return changed


def ranks(execute: Execute, queue: str) -> Iterator[int]:
    """Walk the priorities in use among a queue's waiting jobs, as ranks: the highest priority first."""
    rank: int | None = -1000
    while (rank := execute(SQL["next_rank"], (queue, rank)).fetchone()[0]) is not None:
        yield rank
