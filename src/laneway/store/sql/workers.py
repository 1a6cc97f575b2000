"""Workers as rows."""

from __future__ import annotations

from collections import defaultdict

from laneway.store.inspection import WorkerStatus
from laneway.store.sql.port import Reading
from laneway.store.workers import Held, read_worker, status

__all__ = ["list_workers"]


def list_workers(reading: Reading) -> list[WorkerStatus]:
    """Return all workers that beat or hold claims, by host, pid and id."""
    held: defaultdict[str, list[Held]] = defaultdict(list)
    for worker, *claim in reading.rows("claims"):
        held[worker].append(tuple(claim))
    rows = reading.rows("workers")
    workers = [status(read_worker(id_, info), at, held[id_], reading.now) for id_, _, at, info in rows]
    return sorted(workers, key=lambda worker: (worker.host, worker.pid, worker.id))
