"""Workers as rows."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

from laneway.store.inspect import WorkerStatus
from laneway.store.sqlite.sql import SQL
from laneway.store.workers import Held, read_worker, status

__all__ = ["list_workers"]


def list_workers(connection: sqlite3.Connection, now: int) -> list[WorkerStatus]:
    """Return all workers that beat or hold claims, by host, pid and id."""
    held: defaultdict[str, list[Held]] = defaultdict(list)
    for worker, *claim in connection.execute(SQL["claims"]):
        held[worker].append(tuple(claim))
    rows = connection.execute(SQL["workers"]).fetchall()
    workers = [status(read_worker(id_, info), at, held[id_], now) for id_, _, at, info in rows]
    return sorted(workers, key=lambda worker: (worker.host, worker.pid, worker.id))
