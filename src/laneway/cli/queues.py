"""`laneway queues`: list, pause, resume and clear queues."""

from __future__ import annotations

import click

from laneway.cli import complete
from laneway.cli.command import (
    CliGroup,
    app_options,
    change_many,
    echo_json,
    examples,
    json_option,
    opened,
    question_options,
    said,
)
from laneway.cli.table import STATE_COLOURS, Cell, Column, print_table
from laneway.core.job import STATES
from laneway.errors import did_you_mean
from laneway.present.actions import waiting_in
from laneway.present.known import check_queue, collects, queue_names
from laneway.present.words import ago, plural

__all__ = ["queues"]


@click.group(
    "queues", cls=CliGroup, no_args_is_help=True,
    epilog=examples("laneway queues list", "laneway queues pause mail", "laneway queues clear mail --dry-run"),
)  # fmt: skip
def queues() -> None:
    """List queues, pause and resume them, empty them."""


@queues.command("list", epilog=examples("laneway queues list", "laneway queues list --json"))
@app_options
@json_option
def list_(app_option: str | None, store: str | None, as_json: bool) -> None:
    """List the queues with their jobs by state; of a collector's its lanes, and its dead payloads."""
    with opened(app_option, store) as app:
        found = app.inspect.queues()
    if as_json:
        echo_json([
            {
                "name": queue.name, "paused": queue.paused, "paused_by": queue.paused_by or None,
                "paused_at": queue.paused_at.isoformat() if queue.paused_at else None, "collects": queue.collects,
                "counts": queue.counts,
            }
            for queue in found
        ])  # fmt: skip
        return
    rows: list[list[str | Cell]] = []
    for queue in found:
        since = f"{ago(queue.paused_at)} by {queue.paused_by}" if queue.paused_by and queue.paused_at else ""
        paused = Cell("yes", "yellow", since) if queue.paused else Cell("no", "", " ")
        numbers = [
            Cell(str(queue.counts[state]), STATE_COLOURS[state] if queue.counts[state] else "bright_black") for state in STATES
        ]
        counted = Cell("lanes", "bright_black") if queue.collects else Cell("jobs", "", " ")
        rows.append([queue.name, *numbers, counted, paused])
    numbered = [Column(state, right=True, whole=True) for state in STATES]
    columns = [Column("queue", names=True), *numbered, Column("counts", whole=True, spare=1), Column("paused")]
    print_table(columns, rows, empty="no queues yet: the first enqueue makes one")


def _acts(names: tuple[str, ...], app_option: str | None, store: str | None, as_json: bool, paused: bool) -> None:
    with opened(app_option, store, makes=paused, tasks=True) as app:
        known = queue_names(app)
        for name in names:
            (app.inspect.pause if paused else app.inspect.resume)(name)
            if name not in known:
                near = did_you_mean(name, known)
                click.echo(f'queue "{name}" has had no job yet, and no known task uses it.{near} It is paused now', err=True)
    done = "paused" if paused else "resumed"
    said(f"{done} {', '.join(names)}", [{"name": name, "paused": paused} for name in names], as_json)


@queues.command("pause", epilog=examples("laneway queues pause mail billing"))
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True, shell_complete=complete.queues)
@app_options
@json_option
def pause(names: tuple[str, ...], app_option: str | None, store: str | None, as_json: bool) -> None:
    """Stop claims from queues, also before their first job. What runs goes on, and enqueueing too."""
    _acts(names, app_option, store, as_json, paused=True)


@queues.command("resume", epilog=examples("laneway queues resume mail billing"))
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True, shell_complete=complete.queues)
@app_options
@json_option
def resume(names: tuple[str, ...], app_option: str | None, store: str | None, as_json: bool) -> None:
    """Let paused queues go on."""
    _acts(names, app_option, store, as_json, paused=False)


@queues.command("clear", epilog=examples("laneway queues clear mail --dry-run", "laneway queues clear mail --yes"))
@click.argument("name", metavar="QUEUE", shell_complete=complete.queues)
@question_options
@app_options
@json_option
def clear(name: str, app_option: str | None, store: str | None, **options: bool) -> None:
    """Remove all waiting jobs of a queue. What runs goes on, what is dead stays."""
    with opened(app_option, store) as app:
        check_queue(app, name)
        noun = "lane" if collects(app, name) else "job"
        waiting = waiting_in(app, name)
        number = sum(waiting.values())
        parts = ", ".join(f"{number} {state}" for state, number in waiting.items() if number)
        change_many(
            lambda number: f"{plural(number, noun)} of queue {name}", "removed", number, lambda: app.inspect.clear(name),
            f"Remove {plural(number, noun)} of queue {name} ({parts})?", **options,
        )  # fmt: skip
