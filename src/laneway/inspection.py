"""What `app.inspect` and `app.stats` offer: the store's inspection side, for people."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from laneway.errors import ConfigError, UnknownWorker, did_you_mean
from laneway.job import STATES
from laneway.store.inspect import Counts, Filter, JobInfo, Page, QueueInfo, Run, WorkerStatus

if TYPE_CHECKING:
    from laneway.store.inspect import Inspect

__all__ = ["Inspection", "Stats"]


class Inspection:
    """Look at jobs, queues and workers, and act on them."""

    def __init__(self, store: Callable[[], Inspect], declared: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._declared = declared  # queues that tasks name

    def counts(self) -> Counts:
        """Count the jobs in each state: scheduled, ready, retrying, blocked, running, dead."""
        return self._store().counts()

    def jobs(
        self, state: str | None = None, *, queue: str | None = None, task: str | None = None, lane: str | None = None,
        limit: int = 100, after: str | None = None,
    ) -> Page:  # fmt: skip
        """List jobs by arrival. The next page is `jobs(..., after=page.next)`; a job's id will do as well."""
        if state is not None and state not in STATES:
            raise ConfigError(f'no job in the store is "{state}".{did_you_mean(state, STATES)} States: {", ".join(STATES)}')
        if not 1 <= limit <= 10_000:
            raise ConfigError(f"limit={limit}: use 1 to 10,000")
        return self._store().jobs(Filter(state, queue, task, lane), limit, after)

    def job(self, id: str) -> JobInfo | None:  # noqa: A002 - the glossary's word
        """Return a job that is in the store, or None: it has finished, or never was."""
        return self._store().job(id)

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job, or make one that waits for its retry due now. False if it is neither."""
        return self._store().retry(id)

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a job: at once if it waits, at the next beat if it runs. False if it is dead."""
        return self._store().cancel(id)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a job: at once if it waits or is dead, when its run has ended if it runs."""
        return self._store().delete(id)

    def queues(self) -> list[QueueInfo]:
        """List the queues with their counts."""
        return self._store().queues()

    def pause(self, queue: str) -> None:
        """Stop claims from a queue. What runs goes on, and enqueueing too."""
        self._store().pause(queue, paused=True, declared=self._declared())

    def resume(self, queue: str) -> None:
        """Let a paused queue go on."""
        self._store().pause(queue, paused=False, declared=self._declared())

    def workers(self) -> list[WorkerStatus]:
        """List the workers with what they run, by host and pid."""
        return self._store().workers()

    def quiet(self, worker: WorkerStatus | str) -> None:
        """Ask a worker to claim nothing more, from its next beat on. What runs goes on."""
        self._tell(worker, "quiet")

    def stop(self, worker: WorkerStatus | str) -> None:
        """Ask a worker to end, from its next beat on, when what runs has ended."""
        self._tell(worker, "stop")

    def _tell(self, worker: WorkerStatus | str, command: str) -> None:
        id_ = worker.id if isinstance(worker, WorkerStatus) else worker
        if not self._store().tell(id_, command):
            raise UnknownWorker(f'no worker "{id_}" beats in the store: it has ended, or was taken for dead', id=id_)


class Stats:
    """Figures kept by the store."""

    def __init__(self, store: Callable[[], Inspect]) -> None:
        self._store = store

    def totals(self) -> dict[str, int]:
        """Return what has happened since the store began: enqueued, processed (done), failed (attempts), retried, dead."""
        totals = self._store().totals()
        return {name: totals[name] for name in ("enqueued", "processed", "failed", "retried", "dead")}

    def recent(self, limit: int = 100) -> list[Run]:
        """Return the last finished runs, newest first; the store keeps 1,000."""
        return self._store().recent(limit)
