"""The books: all counts of a store, as one value.

The books are read when a transaction begins, changed in memory, and written back before it commits. So jobs are never counted
by a query, and a thousand jobs cost no more book-keeping than one. The first queues of a store are in the books: a second row
to write would make a step of one job slower by a third. Later queues have a row each, since a thousand queues in one value
would cost milliseconds per step.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from laneway.errors import StoreCorrupt
from laneway.store.sql.port import Queue
from laneway.store.transfer import Move

__all__ = ["IN_BOOKS", "Books", "decode", "decode_queue", "encode"]

#: The most queues in the books.
IN_BOOKS = 16


class Books(Struct, array_like=True):
    """The counts of the whole store. Stored as an array: new fields come last."""

    now: int = 0  #: the highest time seen, microseconds: the store's time never goes back
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
    queues: list[Queue] = []  #: the first queues; others are in laneway_queue
    arrived: dict[str, dict[str, int]] = {}  #: queue → task → how many came since `arrived_at`
    arrived_at: int = 0  #: begin of this interval of ten seconds, microseconds; see `Turn.arrive`
    closed: int = 0  #: statistics up to here are summed, microseconds
    move: Move | None = None  #: the store's part in a copy


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
    """Read the counts of a queue."""
    try:
        return _queue.decode(data)
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"what is counted of a queue (laneway_queue) cannot be read: {error}. Restore a backup") from error
