"""Workers: their identity, their state, and their claims.

A worker's information may have been written by another program: a worker whose entry cannot be read is known by its id and its
claims, and affects no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from laneway.core.instant import FIRST, LAST, as_datetime
from laneway.store.contract import WorkerInfo
from laneway.store.inspection import RunningJob, WorkerStatus

__all__ = ["Held", "live_of", "read_worker", "serving_of", "status"]

#: id, task, queue, lane, token
Held = tuple[str, str, str, str | None, int]

_info = msgspec.json.Decoder(WorkerInfo)


def read_worker(id_: str, info: bytes | None) -> WorkerInfo:
    """Return a worker's identity. The id under which the entry is stored counts, not the one inside it."""
    try:
        return WorkerInfo(id_) if info is None else msgspec.structs.replace(_info.decode(info), id=id_)
    except (ValueError, RecursionError):  # a ValueError: malformed, of another shape, or not UTF-8
        return WorkerInfo(id_, phase="unreadable")


def status(worker: WorkerInfo, at: int | None, held: list[Held], now: int) -> WorkerStatus:
    """Return the state of a worker."""
    started_at, last_beat = _moment(worker.since), _moment(at)
    runs = dict(worker.runs)
    return WorkerStatus(
        id=worker.id, host=worker.host, pid=worker.pid, fleet=worker.fleet, version=worker.version, queues=worker.queues,
        tasks=worker.tasks, slots=worker.slots, phase=worker.phase, started_at=started_at, uptime=_age(started_at, now),
        last_beat=last_beat, beat_age=_age(last_beat, now), rss=worker.rss, pss=worker.pss,
        balance=worker.balance,
        jobs=[RunningJob(*claim, started_at=_moment(runs.get(claim[-1]))) for claim in held],
    )  # fmt: skip


def live_of(workers: Sequence[WorkerStatus], dead_after: float) -> list[WorkerStatus]:
    """Return the workers whose last beat is recent enough."""
    return [worker for worker in workers if worker.beat_age is not None and worker.beat_age < dead_after]


def serving_of(queue: str, working: Sequence[WorkerStatus]) -> list[WorkerStatus]:
    """Return the workers that would claim from a queue."""
    return [worker for worker in working if not worker.queues or queue in worker.queues]


def _moment(instant: int | None) -> datetime | None:
    """Return an instant as a datetime, if it is known and the calendar has it."""
    return as_datetime(instant) if instant and FIRST <= instant <= LAST else None


def _age(moment: datetime | None, now: int) -> float | None:
    return None if moment is None else max((as_datetime(now) - moment).total_seconds(), 0.0)
