"""Tokens: the numbers of claims.

A token is a counter of its queue times `STEP`, plus the queue's number. So two queues never give the same token, and a token
has the number of its queue. A number belongs to one shard of a queue (see `keys`): a queue with several would have as many
numbers. The scripts count (`_claims.lua`); here tokens are only read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

__all__ = ["STEP", "queue_number", "tokens_from"]

#: How far apart the tokens of a queue are, and so how many queues there may be.
STEP = 4096


def tokens_from(first: int) -> Iterator[int]:
    """Return the tokens of claims that a script gave one after the other."""
    return itertools.count(first, STEP)


def queue_number(token: int) -> int:
    """Return the number of the queue that gave a token."""
    return token % STEP
