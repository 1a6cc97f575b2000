"""Completion: the shell asks what may follow, and gets the names that the app and its store know.

Whatever goes wrong on the way (no app, no store, a module that cannot be imported) means that nothing is offered.

Enters: what is typed so far.  Leaves: names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.command import opened
from laneway.errors import LanewayError
from laneway.present.known import NEAR, job_ids, lane_names, queue_names, task_names

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["collected", "ids", "job_lanes", "kept_schedules", "lanes", "queue_list", "queues", "schedules", "tasks", "workers"]

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
Given = Mapping[str, Any]  #: what was given so far


def _names(find: Callable[[App, Given], list[str]], *, listed: bool = False, store: bool = True) -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        before, _, last = incomplete.rpartition(",") if listed else ("", "", incomplete)
        taken = ctx.params.get(param.name or "") or ()
        try:
            where = (ctx.params.get(name) for name in ("app_option", "store", "app_name"))
            with _silence(), opened(*where, tasks=not store, looks=store) as app:
                found = find(app, ctx.params)
        except Exception:  # noqa: BLE001 - a user's module may raise anything, and a shell has no place for it
            return []
        start = f"{before}," if before else ""
        return [f"{start}{name}" for name in found if name.startswith(last) and name not in taken]

    return complete


@contextlib.contextmanager
def _silence() -> Generator[None]:
    """What a user's module prints must not become a name."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def _lanes(app: App, given: Given) -> list[str]:
    return lane_names(app, given.get("queue"))


def _job_lanes(app: App, given: Given) -> list[str]:
    """Lanes of which only dead jobs are left too."""
    jobs = app.inspect.jobs(queue=given.get("queue"), limit=NEAR, newest=True)
    return sorted({*_lanes(app, given), *(job.lane for job in jobs if job.lane)})


def _collected(app: App, given: Given) -> list[str]:
    """The lanes of the collector that is named before."""
    return [] if given.get("arguments") else lane_names(app, given.get("task"))


def _kept_schedules(app: App) -> list[str]:
    """The schedules in the store; none if there is no store yet."""
    from laneway.desk.locate import check_store  # noqa: PLC0415 - the help needs none of it

    with contextlib.suppress(LanewayError):
        check_store(app, to_write=False)
        return sorted(app.store.schedules().kept)
    return []


queues = _names(lambda app, _: queue_names(app))
queue_list = _names(lambda app, _: queue_names(app), listed=True)
#: The app's own tasks, or, if it has none, those that the store knows.
tasks = _names(lambda app, _: sorted(app.declared) or task_names(app), store=False)
ids = _names(lambda app, _: job_ids(app))
lanes = _names(_lanes)
job_lanes = _names(_job_lanes)
collected = _names(_collected)
schedules = _names(lambda app, _: sorted({*app.schedules.by_name(), *_kept_schedules(app)}), store=False)
kept_schedules = _names(lambda app, _: _kept_schedules(app))
workers = _names(lambda app, _: [worker.id for worker in app.inspect.workers()])
