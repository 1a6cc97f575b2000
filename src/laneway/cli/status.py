"""`laneway status`: how many jobs are in each state, the queues, the totals and the last runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.command import Command, app_argument, app_options, echo_json, examples, json_option, opened
from laneway.cli.show import clock
from laneway.cli.table import aligned
from laneway.core.instant import SECOND
from laneway.present.documents import run_document, worker_document
from laneway.present.words import duration, seconds_of

if TYPE_CHECKING:
    from laneway.present.snapshot import Snapshot

__all__ = ["document", "status"]

RUNS = 10


@click.command("status", cls=Command, epilog=examples("laneway status", "laneway status --store sqlite:///jobs.db --json"))
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
        from laneway.cli.live import print_status  # noqa: PLC0415 - rich, for terminals only

        print_status(seen)
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
