"""Health: whether work gets done, in words.

Four things are wrong: the store cannot be reached; work is due, and for a while no worker has claimed or settled anything,
although one could; a due job has waited longer than is allowed; rows of the app's outbox do not become jobs. Paused queues are
meant to wait and do not count. Workers whose slots are all taken are not idle: whether what waits behind them waits too long,
the lag shows.

Whether nothing moves is only seen by looking twice, so a `Pulse` remembers what it saw last. What one look is enough for, that no
worker serves a queue, is said at once.

Enters: `Snapshot`.  Leaves: `Health`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from laneway.errors import StoreError
from laneway.outbox.database import OutboxURL
from laneway.outbox.status import LAGS, look
from laneway.present.snapshot import Snapshot, working_of
from laneway.store.inspection import QueueInfo, WorkerStatus
from laneway.store.workers import serving_of

__all__ = ["Health", "Pulse", "with_outbox"]

#: What changes when a worker claims or settles.
MOVES = ("processed", "failed", "retried", "dead", "cancelled")


class Health(Struct, frozen=True, kw_only=True):
    """How it is."""

    status: str  #: ok or failing
    reasons: list[str]  #: what is wrong, in words; nothing if it is ok
    lag: float | None = None  #: seconds that the oldest due job of queues that are not paused has waited; None: the store is away
    due: int = 0  #: jobs that are due in queues that are not paused
    workers: int = 0  #: that work


def with_outbox(health: Health, outbox: OutboxURL | None) -> Health:
    """Return the health of a store and of the app's outbox, which fails if a row waits too long, or none can be seen."""
    if outbox is None:
        return health
    try:
        oldest, _ = look(outbox)
    except StoreError as error:
        why = f"the outbox cannot be read: {error}"
    else:
        if oldest <= LAGS:
            return health
        why = f"outbox: a row has waited {oldest:.0f} s, more than {LAGS:g} s, and is not a job yet"
    return structs.replace(health, status="failing", reasons=[*health.reasons, why])


class Pulse:
    """Looks whether anything moves."""

    def __init__(self, max_lag: float, max_stall: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_lag = max_lag
        self._max_stall = max_stall
        self._clock = clock
        self._lock = threading.Lock()
        self._before: object = None
        self._since = clock()  # when something moved last, or nothing was due

    def judge(self, seen: Snapshot) -> Health:
        """Say how it is."""
        due = [queue for queue in seen.queues if queue.counts["ready"] and not queue.paused]
        working = working_of(seen.workers)
        late = [
            f"lag: a due job of queue {queue.name} has waited {queue.lag:.0f} s, more than {self._max_lag:g} s"
            for queue in due
            if queue.lag > self._max_lag
        ]
        reasons = [*self._stalled(due, working, self._still(seen, due)), *late]
        return Health(
            status="failing" if reasons else "ok", reasons=reasons, lag=max((queue.lag for queue in due), default=0.0),
            due=sum(queue.counts["ready"] for queue in due), workers=len(working),
        )  # fmt: skip

    def _still(self, seen: Snapshot, due: Sequence[QueueInfo]) -> float:
        """Return for how long nothing has moved although work is due."""
        moved = (*(seen.totals.get(name, 0) for name in MOVES), frozenset(job.token for one in seen.workers for job in one.jobs))
        with self._lock:
            now = self._clock()
            if not due or moved != self._before:
                self._since = now
            self._before = moved
            return now - self._since

    def _stalled(self, due: Sequence[QueueInfo], working: Sequence[WorkerStatus], still: float) -> list[str]:
        said: list[str] = []
        for queue in due:
            serving = serving_of(queue.name, working)
            waits = max(queue.lag, still)
            if waits < self._max_stall or (serving and still < self._max_stall):
                continue
            if not serving:
                who = "no worker runs" if not working else f"none of {len(working)} workers serves it"
                said.append(f"queue {queue.name} has {queue.counts['ready']} due, for {waits:.0f} s, and {who}: start one")
            elif any(worker.busy < worker.slots for worker in serving):
                said.append(
                    f"no claims: queue {queue.name} has {queue.counts['ready']} due, and for {still:.0f} s its "
                    f"{len(serving)} workers, which have free slots, have claimed nothing"
                )
        return said
