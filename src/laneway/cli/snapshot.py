"""A look at a store: what `status` and the demo show, gathered in one go."""

from __future__ import annotations

from msgspec import Struct

from laneway.app import App
from laneway.store.inspect import Counts, JobInfo, QueueInfo, Run

__all__ = ["Details", "Snapshot"]


class Snapshot(Struct, frozen=True):
    """The figures of a store at a moment."""

    store: str
    counts: Counts
    queues: list[QueueInfo]
    totals: dict[str, int]
    recent: list[Run]

    @classmethod
    def of(cls, app: App, runs: int) -> Snapshot:
        """Look at an app's store."""
        queues = app.inspect.queues()
        return cls(app.url, app.inspect.counts(), queues, app.stats.totals(), app.stats.recent(runs))

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return sum(number for state, number in self.counts.items() if state != "dead")


class Details(Struct, frozen=True):
    """Single jobs worth showing."""

    running: list[JobInfo]
    blocked: list[JobInfo]
    dead: list[JobInfo]  #: newest last

    @classmethod
    def of(cls, app: App) -> Details:
        """Look at an app's jobs."""
        jobs = app.inspect.jobs
        return cls(jobs("running"), jobs("blocked", limit=1000), sorted(jobs("dead", limit=1000), key=lambda job: job.due_at))
