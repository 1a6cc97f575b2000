"""What is known by name: queues, tasks, lanes and jobs. An unknown name is refused, with the nearest one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

from laneway.config import safe_url
from laneway.errors import ConfigError, NotFound, UnknownQueue, did_you_mean

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.task_base import TaskBase

__all__ = [
    "NEAR", "check_queue", "check_task", "collects", "declared_tasks", "job_ids", "lane_names", "parameter_names", "queue_names",
    "task_names",
]  # fmt: skip

#: The most jobs that are searched for one that may be meant.
NEAR = 1000


def queue_names(app: App) -> list[str]:
    """Name the queues that have had jobs, and those of the app's tasks."""
    return sorted({*(queue.name for queue in app.inspect.queues()), *(task.queue for task in declared_tasks(app).values())})


def task_names(app: App) -> list[str]:
    """Name the app's tasks, those that workers know, and those that ran lately."""
    told = {name for worker in app.inspect.workers() for name in worker.tasks}
    return sorted({*declared_tasks(app), *told, *(run.task for run in app.stats.recent(NEAR))})


def declared_tasks(app: App) -> Mapping[str, TaskBase]:
    """Return the app's tasks and collectors; none if they cannot be loaded: a command that only shows something works without."""
    from laneway.desk.locate import load_tasks  # noqa: PLC0415 - the help needs none of it

    try:
        load_tasks(app)
    except ConfigError:
        return {}
    return app.declared


def parameter_names(app: App, task: str) -> list[str]:
    """Name the parameters of a task, if it is known here."""
    found = declared_tasks(app).get(task)
    return [] if found is None else list(inspect.signature(found.function).parameters)


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
    """Refuse an unknown queue."""
    if queue is None or queue in (known := queue_names(app)):
        return
    listed = f" Queues: {', '.join(known[:10])}" if known else " It has none yet"
    raise UnknownQueue(f'no queue "{queue}" is in {safe_url(app.url)}.{did_you_mean(queue, known)}{listed}', queue=queue)


def check_task(app: App, task: str | None) -> None:
    """Refuse an unknown task of which there are no jobs."""
    if task is None or task in (known := task_names(app)) or app.inspect.jobs(task=task, limit=1):
        return
    raise NotFound(f'no job of a task "{task}" is in the store, and none is named so.{did_you_mean(task, known)}', task=task)
