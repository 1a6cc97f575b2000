"""`laneway schedules`: list the app's schedules, run one now, pause and resume them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from laneway.cli import complete
from laneway.cli.command import Group, app_options, echo_json, examples, json_option, opened, said
from laneway.cli.table import Cell, Column, moment, print_table
from laneway.present.documents import schedule_document

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["schedules"]


@click.group(
    "schedules", cls=Group, no_args_is_help=True,
    epilog=examples("laneway schedules list", "laneway schedules run shop.report", "laneway schedules pause shop.report"),
)  # fmt: skip
def schedules() -> None:
    """List schedules, run one now, pause and resume them.

    A schedule has the name of its task. They are in the app: --store alone does not do.
    """


def _opened(app_option: str | None, store: str | None) -> AbstractContextManager[App]:
    """Open an app with its tasks; --store alone means the app that would be taken without it."""
    from laneway.desk.locate import choose  # noqa: PLC0415 - the help needs none of it

    return opened(choose(None, app_option)[0] if store is not None else app_option, store, tasks=True, makes=True)


@schedules.command("list", epilog=examples("laneway schedules list", "laneway schedules list --json"))
@app_options
@json_option
def list_(app_option: str | None, store: str | None, as_json: bool) -> None:
    """List the schedules, with their last slot and their next."""
    with _opened(app_option, store) as app:
        found = app.inspect.schedules()
    if as_json:
        echo_json([schedule_document(one) for one in found])
        return
    columns = [
        Column("task", names=True), Column("schedule"), Column("catch up"), Column("last", whole=True),
        Column("next", whole=True), Column("paused"),
    ]  # fmt: skip
    rows: list[list[str | Cell]] = [
        [
            one.task, one.schedule, one.catch_up, moment(one.last_at) if one.last_at else Cell("-", "bright_black", "never"),
            Cell("-", "", " ") if one.paused else moment(one.next_at, ""),
            Cell("yes", "yellow", f"by {one.paused_by}") if one.paused else Cell("no", "", " "),
        ]
        for one in found
    ]  # fmt: skip
    print_table(columns, rows, empty='no schedules: declare one with @app.task(schedule="0 3 * * *")')


@schedules.command("run", epilog=examples("laneway schedules run shop.report"))
@click.argument("task", metavar="TASK", shell_complete=complete.schedules)
@app_options
@json_option
def run(task: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Enqueue a schedule's job now, beside its slots."""
    with _opened(app_option, store) as app:
        job = app.inspect.run_schedule(task)
    said(job.id, {"id": job.id, "created": job.created}, as_json)


@schedules.command("pause", epilog=examples("laneway schedules pause shop.report"))
@click.argument("task", metavar="TASK", shell_complete=complete.schedules)
@app_options
@json_option
def pause(task: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Let a schedule's occurrences pass unused until it is resumed."""
    with _opened(app_option, store) as app:
        app.inspect.pause_schedule(task)
    said(f"paused {task}", {"task": task, "paused": True}, as_json)


@schedules.command("resume", epilog=examples("laneway schedules resume shop.report"))
@click.argument("task", metavar="TASK", shell_complete=complete.schedules)
@app_options
@json_option
def resume(task: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Let a paused schedule go on with its next occurrence."""
    with _opened(app_option, store) as app:
        app.inspect.resume_schedule(task)
    said(f"resumed {task}", {"task": task, "paused": False}, as_json)
