"""`laneway lanes`: which lanes have something to do, one lane with what is in it, and actions on lanes."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from laneway.cli import complete, job_views, lane_views
from laneway.cli.command import CliGroup, app_options, asked, echo_json, examples, json_option, opened, said
from laneway.cli.known import find_lane
from laneway.cli.lanes_act import ACTIONS, lane_argument
from laneway.cli.show import wants_colour
from laneway.cli.table import print_table
from laneway.cli.values import OneOf
from laneway.present import documents
from laneway.present.known import check_queue
from laneway.present.words import lane_state

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.store.inspection import JobInfo, LaneInfo, LanePage

__all__ = ["lanes"]

ORDERS = ("lag", "size", "attempts", "due", "name")
#: The most jobs of a lane that are sorted, in each state.
REACH = 10_000
#: The number of failing lanes that are searched for halted ones, which need not be those that failed most often.
MANY = 1000


@click.group(
    "lanes", cls=CliGroup, no_args_is_help=True,
    epilog=examples(
        "laneway lanes list", "laneway lanes show order-7 --queue shop.sync_orders",
        "laneway lanes run --all --queue shop.sync_orders",
    ),
)  # fmt: skip
def lanes() -> None:
    """See which lanes have something to do, look into one, act on them."""


@lanes.command(
    "list",
    epilog=examples(
        "laneway lanes list",
        "laneway lanes list --queue shop.sync_orders --order size",
        "laneway lanes list --order -due --json",
    ),
)
@click.option("--queue", metavar="QUEUE", help="Only of this queue.", shell_complete=complete.queues)
@click.option(
    "--order", metavar="ORDER", type=OneOf([*ORDERS, *(f"-{order}" for order in ORDERS)]),
    help=f"By {', '.join(ORDERS)}; with - before it in the opposite order.",
)  # fmt: skip
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The most that are shown."
)
@click.option("--after", metavar="TOKEN", help="Go on where the page before ended, in the same order.")
@app_options
@json_option
def list_(
    queue: str | None, order: str | None, limit: int, after: str | None, app_option: str | None, store: str | None, as_json: bool
) -> None:
    """List lanes: those that fail first, then the longest overdue."""
    if after is not None and order is None:
        raise click.UsageError("--after goes on in an order: add the --order of the page before")
    with opened(app_option, store) as app:
        page = app.inspect.lanes(queue, order=order, limit=limit, after=after) if order else _trouble(app, queue, limit)
        if not page:
            check_queue(app, queue)
    if as_json:
        echo_json([documents.lane_entry(lane) for lane in page])
    else:
        queues = len({lane.queue for lane in page})
        rows = [lane_views.row(lane, queues) for lane in page]
        print_table(lane_views.columns(page, terminal=sys.stdout.isatty()), rows, empty="no lane has anything to do")
    if page.next is not None:
        where = [("--queue", queue), ("--order", order or "lag"), ("--limit", limit), ("-A", app_option), ("--store", store)]
        again = asked([*where, ("--after", page.next if order else None)])
        click.echo(f"more: laneway lanes list {' '.join(again)}", err=True)


def _trouble(app: App, queue: str | None, limit: int) -> LanePage:
    """Return the lanes that are halted or fail, the worst first, then those that should have run long ago.

    A lane that waits for its retry is not overdue, and one that no worker takes does not fail: neither order shows both.
    """
    failing = [lane for lane in app.inspect.lanes(queue, order="attempts", limit=max(limit, MANY)) if lane.attempts]
    failing.sort(key=lambda lane: lane.state != "dead")  # a halted one waits for a user
    page = app.inspect.lanes(queue, order="lag", limit=limit)
    shown = {(lane.queue, lane.lane) for lane in failing}
    listed = [*failing, *(lane for lane in page if (lane.queue, lane.lane) not in shown)]
    if len(listed) > limit:
        page.next = page.next or ""
    page[:] = listed[:limit]
    return page


@lanes.command(
    "show",
    epilog=examples("laneway lanes show order-7", "laneway lanes show order-7 --queue shop.sync_orders --json"),
)
@lane_argument
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, REACH), default=100, show_default=True, help="The most that are shown."
)
@click.option("--after", metavar="TOKEN", help="Go on where the payloads of the page before ended.")
@app_options
@json_option
def show(
    name: str, queue: str | None, limit: int, after: str | None, app_option: str | None, store: str | None, as_json: bool
) -> None:
    """Show a lane: its state, why, and what is in it.

    Of a collector's lane the payloads with their scores, what runs first; of another one its jobs, in the order they run.
    """
    with opened(app_option, store) as app:
        lane = find_lane(app, name, queue)
        if after is not None and not lane.collects:
            raise click.UsageError(f"--after is for payloads, and lane {name} of {lane.queue} has jobs: use --limit")
        reasons = app.inspect.explain(lane.head).reasons
        job = app.inspect.job(lane.head)
        payloads = app.inspect.payloads(lane.queue, lane.lane, limit=limit, after=after)
        jobs = [] if lane.collects else _line(app, lane)[:limit]
    if as_json:
        inside: dict[str, Any] = (
            {"payloads": [documents.payload_entry(payload) for payload in payloads]}
            if lane.collects
            else {"jobs": [documents.job_entry(job) for job in jobs]}
        )
        echo_json({**documents.lane_entry(lane), "reasons": reasons, **inside})
    else:
        colour = wants_colour(sys.stdout)
        click.echo("\n".join([*lane_views.opening(lane, reasons, job), ""]), color=colour)
        if lane.collects:
            print_table(lane_views.PAYLOAD_COLUMNS, [lane_views.payload_row(payload) for payload in payloads], empty="")
        else:
            print_table(job_views.COLUMNS, [job_views.row(job, 1, 1) for job in jobs], empty="")
        if last := lane_views.errors(lane, job):
            click.echo("\n".join(last), color=colour)
    if payloads.next is not None:
        where = [("--queue", lane.queue), ("--limit", limit), ("-A", app_option), ("--store", store), ("--after", payloads.next)]
        click.echo(f"more: laneway lanes show {shlex.quote(name)} {' '.join(asked(where))}", err=True)
    elif not lane.collects and lane.size > len(jobs):
        click.echo(f"{lane.size - len(jobs):,} more: use --limit", err=True)


def _line(app: App, lane: LaneInfo) -> list[JobInfo]:
    """Return a lane's jobs in the order they run. Dead ones are not in it any more, except one that halts it."""
    head = app.inspect.job(lane.head) if lane.state == "dead" else None
    jobs = [] if head is None else [head]
    for state in ("running", "retrying", "ready", "scheduled", "blocked"):
        jobs += app.inspect.jobs(state, queue=lane.queue, lane=lane.lane, limit=REACH)
    return sorted(jobs, key=lambda job: (not job.holds, job.place_at))  # those of one moment stay as they came


@lanes.command("explain", epilog=examples("laneway lanes explain order-7", "laneway lanes explain ada --queue billing --json"))
@lane_argument
@app_options
@json_option
def explain(name: str, queue: str | None, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Say why a lane is where it is."""
    with opened(app_option, store) as app:
        lane = find_lane(app, name, queue)
        found = app.inspect.explain(lane.head)
    document = {
        "queue": lane.queue, "lane": lane.lane, "head": lane.head, "state": lane.state, "halted": lane.state == "dead",
        "reasons": found.reasons,
    }  # fmt: skip
    opening = f"{lane_views.label(lane)} is {lane_state(lane)}" + ("" if lane.collects else f"; job {lane.head} is at its head")
    said("\n".join([f"{opening}:", *(f"  {reason}" for reason in found.reasons)]), document, as_json)


for action in ACTIONS:
    lanes.add_command(action)
