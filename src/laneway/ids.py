"""Ids of jobs, workers and fleets: ordered by time, and unique.

No lock is held: a signal handler may enqueue.
"""

from __future__ import annotations

import functools
import os
import re

from laneway.clock import now_micros

__all__ = ["is_made", "moment_of", "new_id", "new_ids"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: read aloud without mistakes
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]  # ten bits each
_RANDOM = (_ALPHABET * 8).encode()  # a letter for each byte, all equally likely
_MIXED = [_ALPHABET[at : at + 8] * 32 for at in (0, 8, 16, 24)]  # the last two bits of the time, and three random ones
_last = 0

#: Whether an id may be one that `new_id` made; such ids never come twice.
is_made = re.compile(r"[0-9a-hjkmnp-tv-z]{20}").fullmatch


def new_id() -> str:
    """Return a new id: 20 letters and digits, ordered by time, increasing within this process.

    52 bits of microseconds and 48 random ones. The random ones come from the kernel, so that a forked
    child does not repeat its parent's.
    """
    time = _take_moments(1)
    chance = os.urandom(10)
    tail = chance[1:].translate(_RANDOM).decode()
    return _slow_letters(time >> 12) + _PAIRS[time >> 2 & 1023] + _MIXED[time & 3][chance[0]] + tail


def new_ids(number: int) -> list[str]:
    """Return `number` new ids, each a microsecond after the one before."""
    first = _take_moments(number)
    chance = os.urandom(10 * number)
    tails = chance[number:].translate(_RANDOM).decode()
    # Four ids in a row begin alike.
    heads = [_slow_letters(time >> 10) + _PAIRS[time & 1023] for time in range(first >> 2, (first + number >> 2) + 1)]
    quarters = range(first & 3, (first & 3) + number)
    return [
        f"{heads[quarter >> 2]}{_MIXED[quarter & 3][byte]}{tails[at : at + 9]}"
        for quarter, byte, at in zip(quarters, chance, range(0, 9 * number, 9), strict=False)
    ]


def moment_of(made: str) -> int:
    """Return when an id was made, microseconds.

    >>> before = now_micros()
    >>> 0 <= moment_of(new_id()) - before < 60_000_000
    True
    """
    time = functools.reduce(lambda bits, letter: bits << 5 | _ALPHABET.index(letter), made[:10], 0)
    return time << 2 | _ALPHABET.index(made[10]) >> 3


def _take_moments(number: int) -> int:
    """Return the first of `number` microseconds that no other id of this process has.

    No lock: a signal handler that enqueues would wait for the thread that it has interrupted. Python switches threads and runs
    signal handlers only at calls and jumps back, and between reading and writing the counter there is none.
    """
    global _last  # noqa: PLW0603 - the one counter behind "increasing within this process"
    now = now_micros()
    _last = (first := now if now > _last else _last + 1) + number - 1
    return first


@functools.lru_cache(maxsize=4)
def _slow_letters(time: int) -> str:
    """Return the first eight letters of an id, which stay the same for 4 milliseconds."""
    return "".join([_PAIRS[time >> shift & 1023] for shift in (30, 20, 10, 0)])
