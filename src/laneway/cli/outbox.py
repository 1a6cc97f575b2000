"""`laneway outbox`: the rows in your own database that become jobs of a store elsewhere."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.command import CliGroup, app_argument, app_options, examples, json_option, opened, said
from laneway.cli.table import aligned
from laneway.cli.values import chosen_settings, setting_option
from laneway.config import safe_url
from laneway.errors import ConfigError
from laneway.logs import log, start_logging, visible
from laneway.present.words import duration, plural

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.outbox.database import OutboxDatabase, OutboxURL
    from laneway.outbox.status import OutboxStatus

__all__ = ["outbox"]


@click.group("outbox", cls=CliGroup, no_args_is_help=True, epilog=examples("laneway outbox init --sql", "laneway outbox status"))
def outbox() -> None:
    """Rows in your database that become jobs: make the tables, look, relay."""


@contextmanager
def _database(app_name: str | None, app_option: str | None, store: str | None) -> Generator[OutboxDatabase]:
    from laneway.outbox.database import open_database  # noqa: PLC0415 - the help needs none of it

    with _app(app_name, app_option, store) as (_, url), closing(open_database(url)) as database:
        yield database


@contextmanager
def _app(app_name: str | None, app_option: str | None, store: str | None) -> Generator[tuple[App, OutboxURL]]:
    with opened(app_option, store, app_name, looks=False) as app:
        if app.outbox is None:
            raise ConfigError('the app has no outbox: name your database, App(…, outbox="postgresql://…"), or set LANEWAY_OUTBOX')
        yield app, app.outbox


@outbox.command("init", epilog=examples("laneway outbox init", "laneway outbox init --sql > migrations/0007_outbox.sql"))
@app_argument
@click.option("--sql", is_flag=True, help="Only print the statements.")
@app_options
def init(app_name: str | None, sql: bool, app_option: str | None, store: str | None) -> None:
    """Create the tables of the outbox in your database. What is there stays as it is."""
    from laneway.outbox.tables import create  # noqa: PLC0415 - the help needs none of it

    with _database(app_name, app_option, store) as database:
        if sql:
            click.echo(create(database.url.kind, database.url.schema), nl=False)
            return
        database.create()
        click.echo(
            f"{safe_url(database.url.url)} has an outbox. A program that only enqueues needs one right: insert on laneway_outbox"
        )


@outbox.command("status", epilog=examples("laneway outbox status", "laneway outbox status --json"))
@app_argument
@app_options
@json_option
def status(app_name: str | None, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Show how many rows wait, since when, and which were set aside for what reason."""
    from laneway.outbox.status import read_status  # noqa: PLC0415 - the help needs none of it

    with _database(app_name, app_option, store) as database:
        found = read_status(database)
        address = safe_url(database.url.url)
    said("\n".join([f"outbox: {address}\n", *_lines(found)]), {"outbox": address, **found.as_dict()}, as_json)


def _lines(found: OutboxStatus) -> list[str]:
    waits = f"{found.waiting:,}" + (f", the oldest for {duration(found.oldest)}" if found.waiting else "")
    lines = aligned(
        ["", ""],
        [["waiting", waits], ["set aside", f"{found.aside:,}"], ["relay", "works" if found.relayed else "none works now"]],
        [False, False],
    )
    lines = [line for line in lines if line.strip()]
    for row in found.reasons:
        lines.append(f"\nrow {row.seq}, set aside at {row.aside_at:%Y-%m-%d %H:%M:%S} UTC: {visible(row.reason)}")
        lines.append(f"  {visible(row.job)}")
    if found.aside:
        lines.append("\nTo hand them over again: laneway outbox retry")
    return lines


@outbox.command("retry", epilog=examples("laneway outbox retry"))
@app_argument
@app_options
@json_option
def retry(app_name: str | None, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Let all rows that were set aside wait again, behind those that wait."""
    from laneway.outbox.status import retry_aside  # noqa: PLC0415 - the help needs none of it

    with _database(app_name, app_option, store) as database:
        number = retry_aside(database)
    said(f"{plural(number, 'row')} wait{'s' if number == 1 else ''} again", {"retried": number}, as_json)


@outbox.command("relay", epilog=examples("laneway outbox relay", "laneway outbox relay shop.jobs:app"))
@app_argument
@app_options
@setting_option("log_level")
@setting_option("log_format")
def relay(app_name: str | None, app_option: str | None, store: str | None, **given: Any) -> None:
    """Carry rows over until stopped, in the foreground: for programs without workers near their database.

    Every worker of an app with an outbox does it too. One of them works at a time.
    """
    from laneway.worker.duties.relay import RelayDuty  # noqa: PLC0415 - the help needs none of it

    chosen = chosen_settings(given)
    start_logging(sys.stderr, (), None, chosen["log_level"], chosen["log_format"])
    with _app(app_name, app_option, store) as (app, url):
        duty, ended = RelayDuty(app, url), threading.Event()

        def end(_: int, __: FrameType | None) -> None:
            ended.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        log.info("relay started: from %s to %s", safe_url(url.url), safe_url(app.url))
        duty.start()
        while not ended.wait(1.0):
            pass
        duty.stop()
        log.info("relay stopped: %s handed over", plural(duty.carried, "row"))
