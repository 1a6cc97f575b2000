"""The load of a store: how many jobs come, how long a job takes, what waits, and the workers.

A store keeps its last runs. All jobs that came since the first of them was enqueued have either run since, or still wait: so
arrivals can be counted, even where jobs come faster than they are done. Some jobs were enqueued long before they ran, for later
or to be retried: the oldest tenth of the runs does not set the begin of the count.

Enters: an app with an open store.  Leaves: `Observed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laneway.capacity import Crew, Load
from laneway.core.instant import SECOND
from laneway.desk.app import App
from laneway.errors import NotFound
from laneway.present.words import plural
from laneway.store.inspection import QueueInfo
from laneway.store.runs import Run
from laneway.worker.shares.learn import Learner

__all__ = ["ENOUGH", "FEW", "LONG", "Observed", "arrivals", "job_seconds", "observed"]

#: The number of runs that the store keeps.
RUNS = 1000
#: Nothing is concluded from fewer runs.
FEW = 10
#: A conclusion from fewer runs, or from a shorter time in seconds, is a guess.
ENOUGH = 100
LONG = 10


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed load of a store."""

    load: Load
    crew: Crew
    slots: int | None  #: of the worker with the most; None: there is no worker
    app_memory: int | None  #: of the largest worker, bytes, shared memory included: at worst all of it is copied
    runs: int  #: the number of runs that this is based on
    over: float  #: seconds in which the counted jobs came
    ago: float  #: seconds since the last run ended
    paused: tuple[str, ...]  #: queues whose jobs are not counted as waiting
    computing: tuple[str, ...]  #: tasks of which workers have learned that they compute

    @property
    def enough(self) -> bool:
        """Whether this is more than a guess."""
        return self.runs >= ENOUGH and self.over >= LONG


def observed(app: App) -> Observed:
    """Observe a store; raise NotFound if there are too few runs."""
    runs = [run for run in app.stats.recent(RUNS) if run.started]
    if len(runs) < FEW:
        raise NotFound(
            f"too little to tell: {plural(len(runs), 'run')} so far, {FEW} are needed. Let workers run a while, "
            "or give the figures: laneway plan --rate 100 --seconds 0.05"
        )
    queues = app.inspect.queues()
    workers = [worker for worker in app.inspect.workers() if worker.phase == "working" and 0 < worker.slots <= 10**6]
    last = max(run.finished for run in runs)
    now = max(app.store.schedules().now, last)
    waiting = _waiting(queues, "ready", "blocked")
    came, over = arrivals(runs, waiting + _waiting(queues, "running"), now)
    return Observed(
        # A damaged store may hold any figure. Values outside of these limits are cut, since no option of the user's is wrong.
        load=Load(
            rate=_between(0, came / over, 10**9),
            seconds=_between(10**-6, job_seconds(runs), 10**9),
            backlog=int(_between(0, waiting, 10**15)),
        ),
        crew=Crew(sum(worker.slots for worker in workers), len(workers), len({worker.host for worker in workers})),
        slots=max((worker.slots for worker in workers), default=None),
        app_memory=int(_between(0, max((worker.rss for worker in workers), default=0), 10**15)) or None,
        runs=len(runs),
        over=over,
        ago=(now - last) / SECOND,
        paused=tuple(queue.name for queue in queues if queue.paused),
        computing=tuple(task for task, kind in sorted(Learner(app.stats.learned()).kinds.items()) if kind == "cpu"),
    )


def arrivals(runs: Sequence[Run], unfinished: int, now: int) -> tuple[int, float]:
    """Return how many jobs came, and in how many seconds."""
    moments = sorted(moment for _, moment in _jobs(runs))
    counted = moments[len(moments) // 10 :]
    return len(counted) + unfinished, max((now - counted[0]) / SECOND, 0.001)


def job_seconds(runs: Sequence[Run]) -> float:
    """Return how long a job takes, with its retries. Lanes of a collector that ran together share their time."""
    together = {(run.task, run.queue, run.started, run.finished) for run in runs}
    spent = sum(max(finished - started, 0) for _, _, started, finished in together)
    return max(spent / SECOND / len(_jobs(runs)), 1e-6)


def _jobs(runs: Sequence[Run]) -> set[tuple[str, int]]:
    """Return the jobs of some runs. A retry is the same job; a later run of a collector's lane is another."""
    return {(run.id, run.enqueued) for run in runs}


def _waiting(queues: Sequence[QueueInfo], *states: str) -> int:
    return sum(number for queue in queues if not queue.paused for state, number in queue.counts.items() if state in states)


def _between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)
