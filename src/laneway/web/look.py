"""One look at a store: what health, metrics, the figures and the live stream are made of.

Figures are those the store keeps: nothing here looks at jobs.

Enters: an app.  Leaves: `Seen`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from laneway.core.job import STATES
from laneway.desk.app import App
from laneway.store.inspection import Counts, QueueInfo, WorkerStatus

__all__ = ["WAITING", "Seen", "lags_of", "look", "total"]

#: What waits, as states.
WAITING = ("scheduled", "ready", "retrying", "blocked")


class Seen(Struct, frozen=True):
    """A store at a moment."""

    counts: Counts
    queues: list[QueueInfo]
    lags: dict[str, float | None]  #: queue → seconds its oldest due job has waited; 0: none is due; None: not known
    totals: dict[str, int]  #: since the store began
    workers: list[WorkerStatus]

    @property
    def lag(self) -> float | None:
        """The longest of all; None: not known."""
        known = [lag for lag in self.lags.values() if lag is not None]
        return max(known, default=0.0 if len(known) == len(self.lags) else None)


def look(app: App) -> Seen:
    """Look at a store."""
    queues = app.inspect.queues()
    counts = total(queue.counts for queue in queues)
    return Seen(counts, queues, lags_of(queues), app.store_inspect.totals(), app.inspect.workers())


def total(counted: Iterable[Counts]) -> Counts:
    """Add counts up."""
    totals: Counts = dict.fromkeys(STATES, 0)
    for counts in counted:
        for state, number in counts.items():
            totals[state] += number
    return totals


def lags_of(queues: Sequence[QueueInfo]) -> dict[str, float | None]:
    """Return how long the oldest due job of each queue has waited."""
    return {queue.name: queue.lag for queue in queues}
