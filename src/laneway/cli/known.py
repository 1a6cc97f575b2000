"""Jobs and lanes by the names that a command was given: whole, or the end of an id. For a wrong name the error suggests the
nearest one.

Enters: an app and a name.  Leaves: the thing, or NotFound with the nearest name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from laneway.cli.command import asked
from laneway.config import safe_url
from laneway.errors import UnknownJob, UnknownLane, did_you_mean
from laneway.present.known import NEAR, check_queue, job_ids, lane_names
from laneway.present.words import plural

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.store.inspection import JobInfo, LaneInfo
    from laneway.store.runs import Run

__all__ = ["find_job", "find_lane", "find_run", "unknown_job"]


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
