"""Notes: progress and log lines of running jobs go to the store, once a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from laneway.desk.context import JobContext
from laneway.errors import StoreUnavailable
from laneway.logs import log
from laneway.store.contract import Store
from laneway.worker.duties.service import Service

__all__ = ["NoteTaker"]


class NoteTaker(Service):
    """Writes the notes of running jobs."""

    name = "notes"

    def __init__(self, store: Store, running: Callable[[], Iterable[JobContext]]) -> None:
        super().__init__()
        self._store = store
        self._running = running

    def tick(self) -> None:
        """Write notes that are new."""
        self.flush(*list(self._running()))

    def flush(self, *jobs: JobContext) -> None:
        """Write the notes of these jobs."""
        told = [(job.id, job.token, msgspec.json.encode(job.notes)) for job in jobs if job.notes_changed]
        for job in jobs:
            job.notes_changed = False
        if told:
            try:
                self._store.note(told)
            except StoreUnavailable as error:
                log.debug("notes not written: %s", error)
