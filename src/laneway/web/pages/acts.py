"""What pages can do beyond the rest of the API: try a job again with other arguments, and act on a group of failures.

A job that is tried again with other arguments is enqueued anew, as a job of its task; then the old one is deleted, if it was dead
or waited for its retry. If this process ends between the two, both are there: neither is lost. What was hidden in the arguments
and is sent back hidden stays as it was.

A group's jobs are found by their last error, as groups are made; so the action means exactly these, and not those whose error
has the same name.

Enters: a `WebRequest`.  Leaves: documents.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from laneway.desk.app import App
from laneway.desk.locate import load_tasks
from laneway.desk.task import Task, is_task
from laneway.errors import UnknownJob
from laneway.present.actions import DELETE, RETRY, Action
from laneway.present.words import job_type
from laneway.store.inspection import JobInfo
from laneway.web.actions import begin, walk
from laneway.web.api import job_id
from laneway.web.endpoint import Endpoint
from laneway.web.operations import Operation
from laneway.web.pages.find import group_of
from laneway.web.redact import HIDDEN
from laneway.web.refused import Refused
from laneway.web.request import WebRequest, bad

__all__ = ["PAGE_ACTIONS", "restored"]

#: The number of jobs that one query finds.
FOUND = 2_000
#: The longest that a page waits for a count, seconds.
PATIENCE = 0.5


# -- with other arguments ----------------------------------------------------------------------------------------


def again(ask: WebRequest) -> object:
    """Enqueue a job anew, with other arguments or the same; the old one goes if it had failed."""
    id_ = job_id(ask)
    found = ask.app.inspect.job(id_)
    if found is None:
        raise UnknownJob(f'no job "{id_}" is in the store: it has finished, or never was')
    task = _task(ask.app, found)
    args, kwargs = found.args, found.kwargs
    if args is None or kwargs is None:
        raise bad(f"the arguments of {id_} cannot be read: enqueue a new job with laneway enqueue")
    sent_args, sent_kwargs = ask.given.get("args", args), ask.given.get("kwargs", kwargs)
    if not isinstance(sent_args, list) or not isinstance(sent_kwargs, dict):
        raise bad('use a list of arguments and an object of named ones: {"args": [1], "kwargs": {"to": "ada"}}')
    options: dict[str, Any] = {"queue": found.queue}
    if task.lane is None and found.lane is not None:
        options["lane"] = found.lane
    if found.priority:
        options["priority"] = found.priority
    job = task.using(**options).enqueue(*restored(sent_args, args), **restored(sent_kwargs, kwargs))
    replaced = job.created and job.id != id_ and found.state in RETRY.states and ask.app.inspect.delete(id_)
    return {"id": job.id, "created": job.created, "replaced": replaced}


def _task(app: App, found: JobInfo) -> Task[..., Any, Any]:
    load_tasks(app)
    task = app.declared.get(found.task)
    if job_type(found) != "job" or not is_task(task):
        known = f"no task {found.task[:100]} is in the app" if task is None else f"{found.task[:100]} is a collector"
        raise bad(f"{known}: only jobs of its tasks can be enqueued anew. Use retry")
    return task


def restored(sent: Any, before: Any) -> Any:
    """Return what was sent, with the former value wherever a hidden one was sent back.

    >>> restored({"to": "bob", "password": "[redacted]", "n": ["[redacted]"]}, {"to": "ada", "password": "x", "n": [1]})
    {'to': 'bob', 'password': 'x', 'n': [1]}
    """
    if sent == HIDDEN and before is not None:
        return before
    if isinstance(sent, dict) and isinstance(before, dict):
        known = cast("dict[str, Any]", before)
        return {key: restored(value, known.get(key)) for key, value in cast("dict[str, Any]", sent).items()}
    if isinstance(sent, list) and isinstance(before, list):
        there = cast("list[Any]", before)
        return [
            restored(value, there[place] if place < len(there) else None) for place, value in enumerate(cast("list[Any]", sent))
        ]
    return cast("Any", sent)


# -- a group of failures -----------------------------------------------------------------------------------------


def act_group(action: Action, ask: WebRequest) -> object:
    """Act on the jobs that are dead, or wait for their retry, and whose last error is of a group."""
    group = ask.path["id"]
    known = next((one for one in ask.app.stats.errors(500) if one.id == group), None)
    if known is None:
        raise Refused(404, "unknown_error", f'no failures "{group[:100]}" are known: api/v1/stats/errors lists them')
    if ask.flag("dry_run"):
        return _count(ask.app, group, known.kind)

    def work(operation: Operation) -> None:
        found = [
            ({"state": state}, [job.id for portion in _members(ask.app, group, known.kind, state) for job in portion])
            for state in RETRY.states
        ]
        operation.change(partial(action.apply_all, ask.app), found)

    return begin(ask, f"errors.{action.verb}", {"kind": known.kind}, work)


def _members(app: App, group: str, error: str, state: str) -> Iterator[list[JobInfo]]:
    """Walk a group's jobs in a state, in portions that may be empty; the store knows those whose error has the right name."""
    for page in walk(app, state=state, error=error, limit=FOUND, newest=True, look=FOUND):
        yield [job for job in page if group_of(job) == group]


def _count(app: App, group: str, error: str) -> dict[str, Any]:
    """Count a group's jobs, for as long as a user would wait."""
    until = time.monotonic() + PATIENCE
    matched, late = 0, False
    for state in RETRY.states:
        for portion in _members(app, group, error, state):
            matched += len(portion)
            late = time.monotonic() > until
            if late:
                break
    return {"matched": matched, "at_least": late, "changed": 0, "dry_run": True}


#: To be routed as the other endpoints of the API are.
PAGE_ACTIONS = (
    Endpoint("POST", "/api/v1/jobs/{id}/again", again, ("args", "kwargs"), "job.again"),
    *(
        Endpoint("POST", f"/api/v1/stats/errors/{{id}}/{one.verb}", partial(act_group, one), ("dry_run",), f"errors.{one.verb}")
        for one in (RETRY, DELETE)
    ),
)
