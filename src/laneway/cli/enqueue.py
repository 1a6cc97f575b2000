"""`laneway enqueue`: send a job, or a payload into a collector's lane; or one for each line of a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click

from laneway.cli import complete
from laneway.cli.command import CliCommand, app_if_any, app_options, echo_json, examples, json_option, opened
from laneway.cli.enqueue_file import by_signature, enqueue_rows
from laneway.cli.values import DURATION, MOMENT, when
from laneway.errors import BadArguments, JobCancelled, JobFailed, ResultTimeout, UnknownTask, did_you_mean

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.collector import AnyCollector
    from laneway.desk.task import Task, Using
    from laneway.store.inspection import StoredResult

__all__ = ["CallCommand", "enqueue", "hint", "named_values", "read_value"]

#: After waiting for this long, the command says why, seconds.
PATIENCE = 2.0
ENDS = ("done", "dead", "cancelled", "gone")


class CallCommand(CliCommand):
    """A command whose last words are the arguments of a call."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say how a number below zero is written: it looks like an option."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name[1:2].isdigit():
                raise click.UsageError(
                    f"{error.option_name} looks like an option: put -- before arguments that begin with a dash", ctx
                ) from None
            raise


@click.command(
    "enqueue", cls=CallCommand,
    epilog=examples(
        "laneway enqueue shop.send_email 42 --kwarg template=bye",
        "laneway enqueue shop.charge '\"7\"' '{\"cents\": 900}' --in 5m",
        "laneway enqueue shop.add --wait --timeout 30s -- -1 2",
        "laneway enqueue shop.send_email --from users.jsonl",
        "laneway enqueue shop.sync_orders order-7 '{\"total\": 90}' --score 3",
    ),
)  # fmt: skip
@click.argument("task", metavar="TASK", shell_complete=complete.tasks)
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, shell_complete=complete.collected)
@click.option("--kwarg", "kwargs", metavar="NAME=VALUE", multiple=True, help="An argument by name; may be repeated.")
@click.option("--in", "within", metavar="DURATION", type=DURATION, help="Run it after this time: 30s, 5m, 2h, 1d.")
@click.option("--at", metavar="TIME", type=MOMENT, help="Run it at this time: 2026-12-24T18:00+01:00.")
@click.option("--queue", metavar="QUEUE", help="Another queue than the task's.", shell_complete=complete.queues)
@click.option("--lane", metavar="LANE", help="Its lane.", shell_complete=complete.lanes)
@click.option("--score", metavar="N", type=float, help="A payload's score, for collectors: the lowest is the oldest. [now]")
@click.option("--priority", metavar="N", type=int, help="From -100 (last) to 100 (first).")
@click.option("--id", "id_", metavar="ID", help="Its id; one that is in the store is not added again.")
@click.option("--wait", is_flag=True, help="Wait until it has finished, and print what it returned.")
@click.option("--timeout", metavar="DURATION", type=DURATION, help="Wait no longer than this.")
@click.option(
    "--from", "rows", metavar="FILE", type=click.File("r", encoding="utf-8", lazy=False),
    help="A job for each line: a JSON list of arguments, or an object of named ones; for collectors [LANE, PAYLOAD, SCORE], or "
    "PAYLOAD if it knows its lane. - is stdin.",
)  # fmt: skip
@click.option("--no-check", is_flag=True, help="Send it even if the app has no such task.")
@app_options
@json_option
def enqueue(
    task: str, arguments: tuple[str, ...], kwargs: tuple[str, ...], within: float | None, at: datetime | None,
    queue: str | None, lane: str | None, score: float | None, priority: int | None, id_: str | None, wait: bool,
    timeout: float | None, rows: Any, no_check: bool, app_option: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Send a job, or a payload to a collector.

    ARGS are JSON where they can be read so, else texts: 42 is a number, '"42"' and ada are texts. They are checked against the
    task's signature before anything is sent. With --store and without an app nothing is known of the task, and any will do.

    A collector takes LANE [PAYLOAD]; one that knows the lane of a payload takes PAYLOAD.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    if rows is not None and (arguments or kwargs or id_ or wait):
        raise click.UsageError("--from gives the arguments of many jobs: ARGS, --kwarg, --id and --wait are for one")
    from laneway.desk.task import Task  # noqa: PLC0415 - the help needs none of it

    options: dict[str, Any] = {"queue": queue, "lane": lane, "priority": priority, "id": id_, "run_after": when(within, at)}
    with opened(app_if_any(app_option, store), store, makes=True, tasks=True) as app:
        declared = _declared(app, task, check=not no_check, scored=score is not None)
        if not isinstance(declared, Task):
            from laneway.cli.enqueue_lane import check_options, collect  # noqa: PLC0415 - for collectors only

            jobs_only = {"--kwarg": kwargs, "--queue": queue, "--lane": lane, "--priority": priority, "--id": id_, "--wait": wait}
            check_options(task, jobs_only)
            collect(app, declared, arguments, score, options["run_after"], rows, as_json=as_json)
            return
        if score is not None:
            raise click.UsageError(f"{task} is a task, and --score is for collectors")
        using = declared.using(**{name: value for name, value in options.items() if value is not None})
        if rows is not None:
            enqueue_rows(app, task, by_signature(using), rows, "job", as_json=as_json)
        else:
            _send_job(app, using, arguments, kwargs, wait=wait, timeout=timeout, as_json=as_json)


def _send_job(
    app: App, using: Using[..., Any], arguments: tuple[str, ...], kwargs: tuple[str, ...], *,
    wait: bool, timeout: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Send a job, and wait for it if asked."""
    with hint():
        job = using.enqueue(*map(read_value, arguments), **named_values(kwargs))
    if not job.created:
        click.echo("it, or an equal one, is in the store already: nothing was added", err=True)
    if not as_json:
        click.echo(job.id)
    found = _wait(app, job.id, timeout) if wait else None
    if as_json:
        echo_json({"id": job.id, "created": job.created} | (_outcome(found) if found else {}))
    elif found is not None and found.value is not None:
        click.echo(found.value)
    if found is not None:
        _check_end(job.id, found, timeout)


def _declared(app: App, name: str, *, check: bool, scored: bool) -> Task[..., Any, Any] | AnyCollector[Any, Any]:
    """Return the task or collector; an undeclared name is accepted if the app has no tasks, or with --no-check."""
    from laneway.desk.collector import AnyCollector  # noqa: PLC0415 - the help needs none of it

    if (task := app.tasks.get(name)) is not None:
        return task
    declared = app.declared.get(name)
    if isinstance(declared, AnyCollector):
        return cast("AnyCollector[Any, Any]", declared)
    if app.declared and check:
        raise UnknownTask(
            f'no task named "{name}" is in the app.{did_you_mean(name, app.declared)} '
            f"Known: {', '.join(sorted(app.declared)[:10])}. To send it to a program that knows it, add --no-check",
            task=name,
        )
    if scored or any(queue.collects and queue.name == name for queue in app.inspect.queues()):

        def collects(lanes: dict[str, list[Any]]) -> None:
            """Stands for a collector whose code is elsewhere."""

        return app.collector(name=name)(collects)

    def elsewhere(*args: Any, **kwargs: Any) -> None:
        """Stands for a task whose code is elsewhere."""

    return app.task(name=name)(elsewhere)


# -- arguments ---------------------------------------------------------------------------------------------------


def read_value(text: str) -> object:
    """Read an argument: JSON, or else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON, whatever Python says")


def named_values(pairs: tuple[str, ...]) -> dict[str, object]:
    named: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise click.UsageError(f"--kwarg {pair}: write NAME=VALUE, such as --kwarg template=bye")
        if name in named:
            raise click.UsageError(f"--kwarg {name} is given twice")
        named[name] = read_value(text)
    return named


# -- sending and waiting -----------------------------------------------------------------------------------------


@contextmanager
def hint() -> Generator[None]:
    """Say how a text is written that reads as something else."""
    try:
        yield
    except BadArguments as error:
        if "Expected `str`" not in str(error) or " - at `$" in str(error):  # inside a value the quotes are there already
            raise
        raise BadArguments(f"{error}. What reads as JSON is not taken as text: for the text 42 write '\"42\"'") from None


def _wait(app: App, id_: str, timeout: float | None) -> StoredResult:
    """Wait until a job has finished, or the time is over. On a terminal the command says after a while what it waits for."""
    began = time.monotonic()
    pause, told = 0.005, not sys.stderr.isatty()
    while True:
        found = app.store_inspect.result(id_)
        waited = time.monotonic() - began
        if found.state in ENDS or (timeout is not None and waited >= timeout):
            return found
        if waited > PATIENCE and not told:
            told = True
            click.echo(f"waiting: {app.inspect.explain(id_)}. Ctrl-C ends the waiting, not the job", err=True)
        time.sleep(pause if timeout is None else min(pause, timeout - waited))
        pause = min(pause * 1.5, 0.1)


def _outcome(found: StoredResult) -> dict[str, Any]:
    return {"state": found.state, "result": None if found.value is None else json.loads(found.value)}


def _check_end(id_: str, found: StoredResult, timeout: float | None) -> None:
    """Raise what a script must notice."""
    if found.state not in ENDS:
        raise ResultTimeout(f"{id_} is {found.state} after {timeout:g} s: it goes on", id=id_)
    if found.state == "dead":
        why = f": {found.error.kind}: {found.error.message}" if found.error else ""
        raise JobFailed(f"{id_} is dead{why}", id=id_)
    if found.state == "cancelled":
        raise JobCancelled(f"{id_} was cancelled", id=id_)
