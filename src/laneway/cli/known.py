"""What is known by name: queues, tasks, lanes and jobs. Who asks for something else is told what it may have meant.

Enters: an app and a name.  Leaves: the thing, or NotFound with the nearest name.  Called by: the commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from laneway.cli.command import asked, plural
from laneway.config import safe_url
from laneway.errors import ConfigError, NotFound, UnknownJob, UnknownLane, UnknownQueue, did_you_mean

if TYPE_CHECKING:
    from laneway.app import App
    from laneway.declared import Declared
    from laneway.store.inspect import JobInfo, LaneInfo, Run

__all__ = [
    "check_queue",
    "check_task",
    "collects",
    "find_job",
    "find_lane",
    "find_run",
    "job_ids",
    "lane_names",
    "queue_names",
    "task_names",
    "unknown_job",
]

#: So many jobs are looked through for one that may be meant.
NEAR = 1000


def queue_names(app: App) -> list[str]:
    """Name the queues that have had jobs, and those of the app's tasks."""
    return sorted({*(queue.name for queue in app.inspect.queues()), *(task.queue for task in _tasks(app).values())})


def task_names(app: App) -> list[str]:
    """Name the app's tasks, those that workers know, and those that ran lately."""
    told = {name for worker in app.inspect.workers() for name in worker.tasks}
    return sorted({*_tasks(app), *told, *(run.task for run in app.stats.recent(NEAR))})


def _tasks(app: App) -> Mapping[str, Declared]:
    """The app's tasks and collectors, as far as they can be loaded: who only looks can do without."""
    from laneway.locate import load_tasks  # noqa: PLC0415 - the help needs none of it

    try:
        load_tasks(app)
    except ConfigError:
        return {}
    return app.declared


def job_ids(app: App) -> list[str]:
    """Name the newest jobs in the store."""
    return [job.id for job in app.inspect.jobs(limit=NEAR, newest=True)]


def lane_names(app: App, queue: str | None = None) -> list[str]:
    """Name the lanes that have something to do."""
    return sorted({lane.lane for lane in app.inspect.lanes(queue, order="name", limit=NEAR)})


def collects(app: App, queue: str | None) -> bool:
    """Say whether a queue is a collector's."""
    return any(found.collects for found in app.inspect.queues() if found.name == queue)


def check_queue(app: App, queue: str | None) -> None:
    """Refuse a queue that nobody knows."""
    if queue is None or queue in (known := queue_names(app)):
        return
    listed = f" Queues: {', '.join(known[:10])}" if known else " It has none yet"
    raise UnknownQueue(f'no queue "{queue}" is in {safe_url(app.url)}.{did_you_mean(queue, known)}{listed}', queue=queue)


def check_task(app: App, task: str | None) -> None:
    """Refuse a task that nobody knows and no job is of."""
    if task is None or task in (known := task_names(app)) or app.inspect.jobs(task=task, limit=1):
        return
    raise NotFound(f'no job of a task "{task}" is in the store, and none is named so.{did_you_mean(task, known)}', task=task)


def find_lane(app: App, name: str, queue: str | None) -> LaneInfo:
    """Return a lane by its name; the queue can be left out if only one has such a lane."""
    found = app.store_inspect.lanes(queue, "name", 10, None, name)
    if not found:
        check_queue(app, queue)
        raise _unknown_lane(app, name, queue)
    if len(found) > 1:
        raise click.UsageError(f"queues {', '.join(lane.queue for lane in found)} have a lane {name}: choose one with --queue")
    return found[0]


def _unknown_lane(app: App, name: str, queue: str | None) -> UnknownLane:
    where = f" of queue {queue}" if queue else ""
    dead = app.inspect.count("dead", queue=queue, lane=name)
    if dead:
        again = asked([("--state", "dead"), ("--lane", name), ("--queue", queue)])
        more = f", and {plural(dead, 'dead one')} {'is' if dead == 1 else 'are'} left of it: laneway jobs list {' '.join(again)}"
    else:
        more = f".{did_you_mean(name, lane_names(app, queue))}"
    return UnknownLane(f'nothing waits or runs in a lane "{name}"{where}{more}', queue=queue, lane=name)


def find_job(app: App, id_: str) -> JobInfo | None:
    """Return a job by its id, or by the end of it, as a worker's lines show it."""
    if found := app.inspect.job(id_):
        return found
    end = id_.removeprefix("…")
    fitting = [known for known in job_ids(app) if known.endswith(end)] if len(end) > 5 else []
    return app.inspect.job(fitting[0]) if len(fitting) == 1 else None


def find_run(app: App, id_: str) -> Run | None:
    """Return the last run of a job that has left the store, by its id or the end of it."""
    end = id_.removeprefix("…")
    return next((run for run in app.stats.recent(NEAR) if run.id == id_ or (len(end) > 5 and run.id.endswith(end))), None)


def unknown_job(app: App, id_: str) -> UnknownJob:
    """Say that a job is not in the store, and what may be meant."""
    known = job_ids(app)
    end = id_.removeprefix("…")
    ends = [other for other in known if len(end) > 3 and other.endswith(end)]
    near = f' Did you mean "{ends[0]}"?' if ends else did_you_mean(id_, known)
    return UnknownJob(f'no job "{id_}" is in {safe_url(app.url)}: it has finished, or never was.{near}', id=id_)
