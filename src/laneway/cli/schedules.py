"""`laneway schedules`: list schedules, run one now, pause and resume them; add and remove those that are kept in the store."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from laneway.cli import complete
from laneway.cli.command import CliGroup, app_if_any, app_options, echo_json, examples, json_option, opened, said
from laneway.cli.enqueue import CallCommand, hint, named_values, read_value
from laneway.cli.table import Cell, Column, moment, print_table
from laneway.cli.values import OneOf
from laneway.desk.options import CATCH_UP
from laneway.present.documents import arguments_text, schedule_document
from laneway.present.schedules import paused_document, set_schedule

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.inspection import ScheduleInfo

__all__ = ["schedules"]


@click.group(
    "schedules", cls=CliGroup, no_args_is_help=True,
    epilog=examples(
        "laneway schedules list",
        "laneway schedules run shop.report",
        "laneway schedules pause shop.report",
        "laneway schedules add report-us shop.report @hourly us",
    ),
)  # fmt: skip
def schedules() -> None:
    """List schedules, run one now, pause and resume them; add and remove those in the store.

    The app declares some, and some are kept in the store. With --store and without an app only the latter are known.
    """


def _opened(app_option: str | None, store: str | None) -> AbstractContextManager[App]:
    """Open an app with its tasks; --store alone means the app that would be taken without it, if there is one."""
    return opened(app_if_any(app_option, store), store, tasks=True, makes=True)


@schedules.command("list", epilog=examples("laneway schedules list", "laneway schedules list --json"))
@app_options
@json_option
def list_(app_option: str | None, store: str | None, as_json: bool) -> None:
    """List the schedules, with their last occurrence and their next."""
    with _opened(app_option, store) as app:
        found = app.inspect.schedules()
    if as_json:
        echo_json([schedule_document(one) for one in found])
        return
    columns = [
        Column("name", names=True), Column("schedule"), Column("catch up"), Column("last", whole=True),
        Column("next", whole=True), Column("paused"), Column("call", wish=20), Column("in"), Column("trouble", wish=20),
    ]  # fmt: skip
    empty = 'no schedules: declare one with @app.task(schedule="0 3 * * *"), or see: laneway schedules add --help'
    print_table(columns, [_row(one) for one in found], empty=empty)


def _row(one: ScheduleInfo) -> list[str | Cell]:
    nothing = Cell("-", "", " ")
    call = "cannot be read" if one.args is None or one.kwargs is None else f"{one.task}({arguments_text(one.args, one.kwargs)})"
    return [
        one.name, one.schedule or "-", one.catch_up or "-",
        moment(one.last_at) if one.last_at else Cell("-", "bright_black", "never"),
        nothing if one.paused or one.next_at is None else moment(one.next_at, ""),
        Cell("yes", "yellow", f"by {one.paused_by}") if one.paused else Cell("no", "", " "),
        Cell(call, "", " " if call == f"{one.name}()" else ""),
        "store" if one.stored else Cell("code", "", " "),
        Cell(one.trouble, "red") if one.trouble else nothing,
    ]  # fmt: skip


@schedules.command("run", epilog=examples("laneway schedules run shop.report"))
@click.argument("name", metavar="NAME", shell_complete=complete.schedules)
@app_options
@json_option
def run(name: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Enqueue a schedule's job now, beside its occurrences."""
    with _opened(app_option, store) as app:
        job = app.inspect.run_schedule(name)
    said(job.id, {"id": job.id, "created": job.created}, as_json)


@schedules.command("pause", epilog=examples("laneway schedules pause shop.report"))
@click.argument("name", metavar="NAME", shell_complete=complete.schedules)
@app_options
@json_option
def pause(name: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Let a schedule's occurrences pass unused until it is resumed."""
    with _opened(app_option, store) as app:
        app.inspect.pause_schedule(name)
        said(f"paused {name}", paused_document(app, name, paused=True), as_json)


@schedules.command("resume", epilog=examples("laneway schedules resume shop.report"))
@click.argument("name", metavar="NAME", shell_complete=complete.schedules)
@app_options
@json_option
def resume(name: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Let a paused schedule go on with its next occurrence."""
    with _opened(app_option, store) as app:
        app.inspect.resume_schedule(name)
        said(f"resumed {name}", paused_document(app, name, paused=False), as_json)


@schedules.command(
    "add", cls=CallCommand,
    epilog=examples(
        "laneway schedules add report-us shop.report '0 3 * * *' us --timezone America/New_York",
        "laneway schedules add sync-7 shop.sync 5m --kwarg customer=7 --queue sync",
    ),
)  # fmt: skip
@click.argument("name", metavar="NAME")
@click.argument("task", metavar="TASK", shell_complete=complete.tasks)
@click.argument("when", metavar="WHEN")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1)
@click.option("--kwarg", "kwargs", metavar="NAME=VALUE", multiple=True, help="An argument by name; may be repeated.")
@click.option("--timezone", metavar="ZONE", help="Of a cron expression, such as Europe/Paris. [UTC]")
@click.option("--catch-up", type=OneOf(CATCH_UP), default="one", help="Which missed occurrences fire later. [one]")
@click.option("--queue", metavar="QUEUE", help="Another queue than the task's.", shell_complete=complete.queues)
@click.option("--lane", metavar="LANE", help="The lane of its jobs.", shell_complete=complete.lanes)
@click.option("--priority", metavar="N", type=int, help="From -100 (last) to 100 (first).")
@app_options
@json_option
def add(
    name: str, task: str, when: str, arguments: tuple[str, ...], kwargs: tuple[str, ...], timezone: str | None, catch_up: str,
    queue: str | None, lane: str | None, priority: int | None, app_option: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Keep a schedule in the store; one that is kept there under this name is replaced.

    WHEN is a cron expression (five fields, or six with seconds in front), @hourly and alike, or an interval: 30s, 5m, 2h. ARGS
    are those of `laneway enqueue`; for a collector LANE [PAYLOAD]. The app or a live worker must know the task.
    """
    given = {"queue": queue, "lane": lane, "priority": priority}
    options: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    with _opened(app_option, store) as app, hint():
        values = [read_value(text) for text in arguments]
        more = {"timezone": timezone, "catch_up": catch_up}
        added = set_schedule(app, name, task, when, values, named_values(kwargs), options, **more)
    said(f"added {name}", schedule_document(added), as_json)


@schedules.command("remove", epilog=examples("laneway schedules remove report-us"))
@click.argument("name", metavar="NAME", shell_complete=complete.kept_schedules)
@app_options
@json_option
def remove(name: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Remove a schedule that is kept in the store."""
    with _opened(app_option, store) as app:
        app.inspect.drop_schedule(name)
    said(f"removed {name}", {"name": name, "removed": True}, as_json)
