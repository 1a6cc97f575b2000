"""One look at a store: what health, metrics, the figures and the live stream are made of.

Counts are those the store keeps; none of them looks at jobs. How long the oldest due job of a queue has waited (its lag) is not
among them yet: it is found by its first ready job, where a queue is small enough to be asked for it. Of a larger one it is None,
not known; how long the queue is says enough then.

Enters: an app.  Leaves: `Seen`.  Called by: `api`, `health`, `live`, `metrics`. Blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from laneway.app import App
from laneway.instant import as_datetime
from laneway.job import STATES
from laneway.store.inspect import Counts, QueueInfo, WorkerStatus

__all__ = ["WAITING", "Seen", "lags_of", "look", "total"]

#: What waits, as states.
WAITING = ("scheduled", "ready", "retrying", "blocked")
#: In a queue where more wait nobody searches for the one that waits longest.
MANY = 2_000


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
    return Seen(counts, queues, lags_of(app, queues), app.store_inspect.totals(), app.inspect.workers())


def total(counted: Iterable[Counts]) -> Counts:
    """Add counts up."""
    totals: Counts = dict.fromkeys(STATES, 0)
    for counts in counted:
        for state, number in counts.items():
            totals[state] += number
    return totals


def lags_of(app: App, queues: Sequence[QueueInfo]) -> dict[str, float | None]:
    """Return how long the oldest due job of each queue has waited, as far as that is known."""
    lags: dict[str, float | None] = {}
    ready = [queue for queue in queues if queue.counts["ready"]]
    now = as_datetime(app.store.schedules().now) if ready else None
    for queue in queues:
        if now is None or not queue.counts["ready"]:
            lags[queue.name] = 0.0
        elif sum(queue.counts[state] for state in WAITING) > MANY:
            lags[queue.name] = None
        else:
            first = app.inspect.jobs("ready", queue=queue.name, limit=1)
            lags[queue.name] = max((now - first[0].due_at).total_seconds(), 0.0) if first else 0.0
    return lags
