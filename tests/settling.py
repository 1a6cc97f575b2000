"""What tests settle claims with."""

from __future__ import annotations

from laneway.core.job import Claim
from laneway.core.outcome import Outcome, Settled

__all__ = ["settled_alike"]


def settled_alike(claim: Claim, outcome: Outcome, started: int = 0, finished: int = 0, keep: int = 0) -> Settled:
    """Return a claim with the same outcome for all its units."""
    return Settled(claim, (outcome,) * len(claim.units), started, finished, keep)
