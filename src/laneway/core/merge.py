"""Merging: payloads that meet in one lane of a collector.

Equal payloads become one, with the larger score and the earlier arrival: a state that comes back is the newest. So it does not
matter in which order parts are merged, how they were cut, or whether one is merged twice: nothing is lost, and the result is the
same. The result is sorted: the lowest score first, ties by arrival.

Pure values, no I/O. The stores implement the same rule by themselves where payloads are many.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Arrived", "merge"]


class Arrived(NamedTuple):
    """A payload with its place: the fields are in the order of comparison."""

    score: float
    arrival: int  #: grows with every arrival in the store
    body: bytes  #: canonical JSON: equal payloads have the same


def merge(*parts: Iterable[Arrived]) -> list[Arrived]:
    """Return the payloads of all parts as those of one lane, the oldest first."""
    found: dict[bytes, Arrived] = {}
    for part in parts:
        for payload in part:
            known = found.setdefault(payload.body, payload)
            if known is not payload:
                found[payload.body] = Arrived(max(known.score, payload.score), min(known.arrival, payload.arrival), payload.body)
    return sorted(found.values())
