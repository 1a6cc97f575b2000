"""`laneway status`: how many jobs are in each state, the queues, the totals and the last runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.command import CliCommand, app_argument, app_options, echo_json, examples, json_option, opened
from laneway.cli.show import OUTCOME_COLOURS, clock, wants_colour
from laneway.cli.table import STATE_COLOURS, Cell, Column, aligned, print_table
from laneway.core.instant import SECOND
from laneway.logs import visible
from laneway.present.documents import run_document, worker_document
from laneway.present.words import duration, seconds_of, short_id

if TYPE_CHECKING:
    from laneway.present.snapshot import Snapshot
    from laneway.store.inspection import Counts, QueueInfo
    from laneway.store.runs import Run

__all__ = ["document", "status"]

RUNS = 10


@click.command("status", cls=CliCommand, epilog=examples("laneway status", "laneway status --store sqlite:///jobs.db --json"))
@app_argument
@app_options
@json_option
def status(app_name: str | None, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Show counts, queues, workers and recent runs."""
    from laneway.present.snapshot import Snapshot  # noqa: PLC0415 - the help needs none of it

    with opened(app_option, store, app_name) as app:
        seen = Snapshot.of(app, RUNS)
    if as_json:
        echo_json(document(seen))
    elif sys.stdout.isatty():
        _paint(seen)
    else:
        click.echo("\n".join(_lines(seen)))


def document(seen: Snapshot) -> dict[str, Any]:
    """Return a look at a store as a document."""
    return {
        "store": seen.store,
        "counts": seen.counts,
        "queues": [
            {"name": queue.name, "paused": queue.paused, "collects": queue.collects, "counts": queue.counts}
            for queue in seen.queues
        ],
        "totals": seen.main_totals,
        "workers": [worker_document(worker) for worker in seen.workers],
        "kinds": seen.kinds,
        "recent": [run_document(run) for run in seen.recent],
    }


def _lines(seen: Snapshot) -> list[str]:
    """Return a look at a store as text: a table for each part, its columns apart by two spaces at least."""
    states = list(seen.counts)
    queues = [
        [
            queue.name, "yes" if queue.paused else "no", *(str(queue.counts[state]) for state in states),
            "lanes" if queue.collects else "jobs",
        ]
        for queue in seen.queues
    ]  # fmt: skip
    heads = ["finished", "task", "id", "queue", "lane", "outcome", "took"]
    total = ["all", "", *(str(seen.counts[state]) for state in states), ""]
    runs = [
        [
            clock(run.finished / SECOND), run.task, run.id, run.queue, run.lane or "-", run.outcome,
            "-" if (took := seconds_of(run)) is None else duration(took),
        ]
        for run in seen.recent
    ]  # fmt: skip
    return [
        f"store: {seen.store}",
        "",
        *aligned(["queue", "paused", *states, "counts"], [*queues, total], [False, False, *(True for _ in states), False]),
        "",
        f"totals: {', '.join(f'{name} {number}' for name, number in seen.main_totals.items())}",
        "",
        f"workers: {seen.crew}",
        *([f"learned: {seen.learned}"] if seen.learned else []),
        "",
        *(aligned(heads, runs, [name == "took" for name in heads]) if runs else ["no runs yet"]),
    ]


def _paint(seen: Snapshot) -> None:
    """Print a look at a store on a terminal."""
    states = list(seen.counts)
    columns = [Column("queue", names=True), *(Column(state, right=True, whole=True) for state in states)]
    queues = [[_name(queue), *_numbers(queue.counts)] for queue in seen.queues]
    click.echo(click.style(visible(seen.store), bold=True) + "\n", color=wants_colour(sys.stdout))
    print_table(columns, [*queues, ["all", *_numbers(seen.counts)]], empty="")
    click.echo("\ntotals  " + "  ".join(f"{name} {number}" for name, number in seen.main_totals.items()))
    click.echo(f"workers  {seen.crew}")
    if seen.learned:
        click.echo(f"learned  {visible(seen.learned)}")
    click.echo()
    print_table(
        [
            Column("last runs", whole=True), Column("task", names=True), Column("id", whole=True), Column("lane", names=True),
            Column("outcome", whole=True), Column("took", right=True, whole=True),
        ],
        [_run(run) for run in seen.recent],
        empty="no runs yet",
    )  # fmt: skip


def _name(queue: QueueInfo) -> Cell:
    """A queue's name, and what must be known of it: the name is cut, if it is too long."""
    return Cell(queue.name + " lanes" * queue.collects + " paused" * queue.paused, "yellow" if queue.paused else "")


def _numbers(counts: Counts) -> list[Cell]:
    return [Cell(str(number), STATE_COLOURS[state]) if number else Cell("·", "bright_black") for state, number in counts.items()]


def _run(run: Run) -> list[str | Cell]:
    took = seconds_of(run)
    return [
        Cell(clock(run.finished / SECOND), "bright_black"), run.task, Cell(short_id(run.id), "bright_black"), run.lane or "-",
        Cell(run.outcome, OUTCOME_COLOURS[run.outcome]), "-" if took is None else duration(took),
    ]  # fmt: skip
