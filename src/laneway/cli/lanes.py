"""`laneway lanes`: which lanes are busy, and one lane's jobs in order.

A lane is known by its jobs: what is listed are the lanes that some job runs in or is blocked in. They are gathered from those
jobs, at most 100,000 of each; where there are more, it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from laneway.cli import complete
from laneway.cli.command import Group, app_options, echo_json, examples, json_option, opened

if TYPE_CHECKING:
    from laneway.app import App
    from laneway.cli.table import Cell
    from laneway.store.inspect import JobInfo

__all__ = ["lanes"]

REACH = 10_000
PAGES = 10


@dataclass
class Lane:
    """A lane that something happens in."""

    queue: str
    name: str
    head: JobInfo | None = None  #: who holds it
    waiting: int = 0
    oldest: datetime | None = None  #: since when the first that waits could have run


@click.group(
    "lanes", cls=Group, no_args_is_help=True, epilog=examples("laneway lanes list", "laneway lanes show order-7 --queue orders")
)
def lanes() -> None:
    """See which lanes are busy, and what waits in one."""


@lanes.command("list", epilog=examples("laneway lanes list", "laneway lanes list --queue orders --json"))
@click.option("--queue", metavar="QUEUE", help="Only of this queue.", shell_complete=complete.queues)
@click.option("--limit", metavar="N", type=click.IntRange(1, REACH), default=50, show_default=True, help="So many at most.")
@app_options
@json_option
def list_(queue: str | None, limit: int, app_option: str | None, store: str | None, as_json: bool) -> None:
    """List lanes with jobs that run or are blocked, the longest first."""
    from laneway.cli.known import check_queue  # noqa: PLC0415 - the help needs none of it
    from laneway.cli.table import Column, print_table  # noqa: PLC0415

    with opened(app_option, store) as app:
        check_queue(app, queue)
        found = _gathered(job for state in ("running", "blocked") for job in _all(app, state, queue))
        listed = sorted(found, key=lambda lane: (-lane.waiting, lane.queue, lane.name))[:limit]
        for lane in listed:
            lane.head = lane.head or app.store_inspect.lane_holder(lane.queue, lane.name)
    if as_json:
        echo_json([_document(lane) for lane in listed])
    else:
        columns = [
            Column("lane", wish=16), Column("queue"), Column("waiting", right=True, whole=True), Column("held by", whole=True),
            Column("state", whole=True), Column("task", spare=1), Column("oldest waits", whole=True, spare=2),
        ]  # fmt: skip
        print_table(columns, [_row(lane) for lane in listed], empty="no lane is busy")
    if len(found) > limit:
        click.echo(f"{len(found) - limit:,} more lanes: use --limit", err=True)


def _all(app: App, state: str, queue: str | None) -> Iterator[JobInfo]:
    after: str | None = None
    for _ in range(PAGES):
        page = app.inspect.jobs(state, queue=queue, limit=REACH, after=after)
        yield from page
        after = page.next
        if after is None:
            return
    click.echo(f"more than {REACH * PAGES:,} jobs are {state}: only the first of them are counted here", err=True)


def _gathered(jobs: Iterable[JobInfo]) -> list[Lane]:
    found: dict[tuple[str, str], Lane] = {}
    for job in jobs:
        if job.lane is None:
            continue
        lane = found.setdefault((job.queue, job.lane), Lane(job.queue, job.lane))
        if job.holds:
            lane.head = job
        else:
            lane.waiting += 1
            lane.oldest = min(lane.oldest or job.place_at, job.place_at)
    return list(found.values())


def _document(lane: Lane) -> dict[str, Any]:
    head = lane.head
    return {
        "queue": lane.queue,
        "lane": lane.name,
        "waiting": lane.waiting,
        "oldest_at": lane.oldest.isoformat() if lane.oldest else None,
        "holder": head.id if head else None,
        "state": head.state if head else None,
        "task": head.task if head else None,
    }


def _row(lane: Lane) -> list[str | Cell]:
    from laneway.cli.table import STATE_COLOURS, Cell, moment  # noqa: PLC0415 - the help needs none of it

    head = lane.head
    holder: list[str | Cell] = [head.id, Cell(head.state, STATE_COLOURS[head.state]), head.task] if head else ["", "", ""]
    return [lane.name, lane.queue, str(lane.waiting), *holder, moment(lane.oldest)]


@lanes.command("show", epilog=examples("laneway lanes show order-7", "laneway lanes show order-7 --queue orders --json"))
@click.argument("name", metavar="LANE", shell_complete=complete.lanes)
@click.option("--queue", metavar="QUEUE", help="Of this queue, if more than one has such a lane.", shell_complete=complete.queues)
@click.option("--limit", metavar="N", type=click.IntRange(1, REACH), default=100, show_default=True, help="So many at most.")
@app_options
@json_option
def show(name: str, queue: str | None, limit: int, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Show a lane's jobs in the order they run. Dead ones are not in it any more."""
    from laneway.cli.job_views import COLUMNS, entry, row  # noqa: PLC0415 - the help needs none of it
    from laneway.cli.known import check_queue  # noqa: PLC0415
    from laneway.cli.table import print_table  # noqa: PLC0415

    with opened(app_option, store) as app:
        check_queue(app, queue)
        jobs = [job for job in app.inspect.jobs(queue=queue, lane=name, limit=REACH) if job.state != "dead"]
        if not jobs:
            _unknown(app, name)
    found = {job.queue for job in jobs}
    if len(found) > 1:
        raise click.UsageError(f"queues {', '.join(sorted(found))} have a lane {name}: choose one with --queue")
    jobs.sort(key=lambda job: (not job.holds, job.place_at))  # those of one moment stay as they came
    if as_json:
        echo_json([entry(job) for job in jobs[:limit]])
    else:
        print_table(COLUMNS, [row(job, 1) for job in jobs[:limit]], empty="")
    if len(jobs) > limit:
        click.echo(f"{len(jobs) - limit:,} more: use --limit", err=True)


def _unknown(app: App, name: str) -> None:
    from laneway.errors import NotFound, did_you_mean  # noqa: PLC0415 - the help needs none of it

    known = {job.lane for job in app.inspect.jobs(limit=1000, newest=True) if job.lane}
    raise NotFound(f'no job waits or runs in a lane "{name}".{did_you_mean(name, known)}')
