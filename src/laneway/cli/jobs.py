"""`laneway jobs`: find jobs, look at one, and act on one or many."""

from __future__ import annotations

from typing import Any

import click

from laneway.cli import complete, job_views
from laneway.cli.command import CliGroup, app_options, asked, echo_json, examples, json_option, opened, said
from laneway.cli.jobs_act import ACTIONS, filter_options, given
from laneway.cli.known import find_job, find_run, unknown_job
from laneway.cli.table import print_table
from laneway.errors import UnknownJob
from laneway.logs import visible
from laneway.present import documents
from laneway.present.known import check_queue, check_task
from laneway.store.runs import Run

__all__ = ["jobs"]


@click.group(
    "jobs", cls=CliGroup, no_args_is_help=True,
    epilog=examples(
        "laneway jobs list --state dead",
        "laneway jobs show 06c4g8w2r9k1x3v5b7n0",
        "laneway jobs retry --state dead --queue mail",
    ),
)  # fmt: skip
def jobs() -> None:
    """Find jobs, look at them, act on them."""


@jobs.command(
    "list",
    epilog=examples(
        "laneway jobs list --state dead --newest",
        "laneway jobs list --task shop.charge --error Timeout",
        "laneway jobs list --lane order-7 --json",
    ),
)
@filter_options
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The most that are shown."
)
@click.option("--newest", is_flag=True, help="The newest first.")
@click.option("--after", metavar="ID", help="Go on after this job, or where the page before ended.", shell_complete=complete.ids)
@app_options
@json_option
def list_(
    limit: int, newest: bool, after: str | None, app_option: str | None, store: str | None, as_json: bool, **which: Any
) -> None:
    """List jobs, in the order they came."""
    with opened(app_option, store) as app:
        page = app.inspect.jobs(**which, limit=limit, after=after, newest=newest)
        if not page:
            check_queue(app, which["queue"])
            check_task(app, which["task"])
    if as_json:
        echo_json([documents.job_entry(job) for job in page])
    else:
        queues = len({job.queue for job in page})
        rows = [job_views.row(job, queues) for job in page]
        print_table(job_views.columns(page), rows, empty="no such jobs" if given(which) else "no jobs")
    if page.next is not None:
        flags = [(f"--{name}", value) for name, value in which.items()]
        more = [("--limit", limit), ("--newest", newest), ("-A", app_option), ("--store", store), ("--after", page.next)]
        click.echo(f"more: laneway jobs list {' '.join(asked([*flags, *more]))}", err=True)


@jobs.command("show", epilog=examples("laneway jobs show 06c4g8w2r9k1x3v5b7n0", "laneway jobs show …3v5b7n0 --json"))
@click.argument("id_", metavar="ID", shell_complete=complete.ids)
@app_options
@json_option
def show(id_: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Show everything about a job.

    Its arguments, attempts with their errors, progress, log, and why it is where it is. The end of its id will do, as a worker's
    lines show it.
    """
    with opened(app_option, store) as app:
        found = find_job(app, id_) or find_run(app, id_)
        if found is None:
            raise unknown_job(app, id_)
        value = app.store_inspect.result(found.id).value
        result = None if value is None else value.decode(errors="replace")
        if isinstance(found, Run):
            lines, document = job_views.run_page(found, result), documents.run_document(found)
        else:
            reasons = app.inspect.explain(found.id).reasons
            lines, document = job_views.page(found, reasons, result), documents.job_document(found, reasons)
        if value is not None:
            document["result"] = documents.result_of(value, "(unreadable)")
    said("\n".join(lines), document, as_json)


@jobs.command("explain", epilog=examples("laneway jobs explain 06c4g8w2r9k1x3v5b7n0"))
@click.argument("id_", metavar="ID", shell_complete=complete.ids)
@app_options
@json_option
def explain(id_: str, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Say why a job is where it is."""
    with opened(app_option, store) as app:
        job = find_job(app, id_)
        try:
            found = app.inspect.explain(id_ if job is None else job.id)
        except UnknownJob:
            raise unknown_job(app, id_) from None
    text = "\n".join([f"{visible(found.id)} is {found.state}:", *(f"  {visible(reason)}" for reason in found.reasons)])
    said(text, {"id": found.id, "state": found.state, "reasons": found.reasons}, as_json)


for action in ACTIONS:
    jobs.add_command(action)
