"""The books: all that a store counts, as one value.

Read when a turn begins, changed in memory, written back before it commits. So nobody ever counts jobs, and a thousand jobs
cost no more book-keeping than one. The first queues of a store stand in the books: a second row to write would make a step of one
job slower by a third. From then on a new queue has a row of its own, since a thousand in one value cost milliseconds a step.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from laneway.errors import StoreCorrupt
from laneway.store.sql.port import Queue

__all__ = ["IN_BOOKS", "TOTALS", "Books", "decode", "decode_queue", "encode"]

#: So many queues stand in the books.
IN_BOOKS = 16

#: What is counted since the store began.
TOTALS = ("enqueued", "merged", "processed", "failed", "retried", "dead", "cancelled", "recovered", "refused")


class Books(Struct, array_like=True):
    """What the whole store counts. It is stored as an array: what is new comes last."""

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
    kept_dead: int = 0  #: dead jobs and payloads that are in the store now
    queues: list[Queue] = []  #: the first ones; others are in laneway_queue
    arrived: dict[str, dict[str, int]] = {}  #: queue → task → how many came since
    arrived_at: int = 0  #: this stretch of ten seconds began, microseconds; see `Turn.arrive`
    closed: int = 0  #: statistics up to here are added up, microseconds


_books = msgspec.json.Decoder(Books)
_queue = msgspec.json.Decoder(Queue)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> Books:
    """Read the books."""
    try:
        return _books.decode(data)
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"the books of the store (laneway_meta) cannot be read: {error}. Restore a backup") from error


def decode_queue(data: bytes) -> Queue:
    """Read what is counted of a queue."""
    try:
        return _queue.decode(data)
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"what is counted of a queue (laneway_queue) cannot be read: {error}. Restore a backup") from error
