"""Merging: payloads that meet in one lane of a collector.

Equal payloads become one, with the larger score and the earlier arrival: a state that comes back is the newest. So it does not
matter in which order parts are merged, how they were cut, or whether one is merged twice: nothing is lost, and the result is the
same. The result is sorted: the lowest score first, ties by arrival. Their headers are joined, each once: see `headers.py`. Only
the order of headers, and which are dropped if there are very many, depends on how the parts were cut.

Pure values, no I/O. The stores implement the same rule by themselves where payloads are many.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from laneway.core.headers import join_headers

__all__ = ["Arrived", "merge"]


class Arrived(NamedTuple):
    """A payload with its place: the fields are in the order of comparison."""

    score: float
    arrival: int  #: grows with every arrival in the store
    body: bytes  #: canonical JSON: equal payloads have the same
    headers: str = ""  #: see `Payload.headers`


def merge(*parts: Iterable[Arrived]) -> list[Arrived]:
    """Return the payloads of all parts as those of one lane, the oldest first."""
    found: dict[bytes, Arrived] = {}
    for part in parts:
        for payload in part:
            known = found.setdefault(payload.body, payload)
            if known is not payload:
                found[payload.body] = _one(known, payload)
    return sorted(found.values())


def _one(known: Arrived, other: Arrived) -> Arrived:
    earlier, later = (known, other) if known.arrival <= other.arrival else (other, known)
    return Arrived(max(known.score, other.score), earlier.arrival, known.body, join_headers(earlier.headers, later.headers))
