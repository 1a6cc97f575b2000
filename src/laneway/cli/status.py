"""`laneway status`: how many jobs are in each state, the queues, the totals and the last runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laneway.cli.snapshot import Snapshot
    from laneway.store.inspect import Run

__all__ = ["status"]

RUNS = 10


@click.command("status")
@click.argument("app_name", metavar="[APP]", required=False)
@click.option("-A", "--app", "app_option", metavar="APP", help="The app, as the argument.")
@click.option("--store", metavar="URL", help="Look at this store; needs no app.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(app_name: str | None, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Show counts, queues and recent runs."""
    from laneway.app import App  # noqa: PLC0415 - the help needs none of it
    from laneway.cli.snapshot import Snapshot  # noqa: PLC0415
    from laneway.locate import check_store, find_app  # noqa: PLC0415

    app = find_app(app_name, app_option) if store is None else App(store)
    try:
        check_store(app, to_write=False)
        seen = Snapshot.of(app, RUNS)
    finally:
        app.close()
    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps(_document(seen), indent=2))
    elif sys.stdout.isatty():
        from laneway.cli.live import print_status  # noqa: PLC0415 - rich, for terminals only

        print_status(seen)
    else:
        click.echo("\n".join(_lines(seen)))


def _document(seen: Snapshot) -> dict[str, Any]:
    return {
        "store": seen.store,
        "counts": seen.counts,
        "queues": [{"name": queue.name, "paused": queue.paused, "counts": queue.counts} for queue in seen.queues],
        "totals": seen.totals,
        "recent": [_run(run) for run in seen.recent],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "task": run.task,
        "queue": run.queue,
        "lane": run.lane,
        "outcome": run.outcome,
        "enqueued_at": run.enqueued_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "finished_at": run.finished_at.isoformat(),
    }


def _lines(seen: Snapshot) -> list[str]:
    """The same as text: a table for each part, its columns apart by two spaces at least."""
    from laneway.cli.show import clock, duration  # noqa: PLC0415
    from laneway.instant import SECOND  # noqa: PLC0415

    states = list(seen.counts)
    queues = [
        [queue.name, "yes" if queue.paused else "no", *(str(queue.counts[state]) for state in states)] for queue in seen.queues
    ]
    total = ["all", "", *(str(seen.counts[state]) for state in states)]
    runs = [
        [
            clock(run.finished / SECOND), run.task, run.id, run.queue, run.lane or "-", run.outcome,
            duration((run.finished - run.started) / SECOND) if run.started else "-",
        ]
        for run in seen.recent
    ]  # fmt: skip
    return [
        f"store: {seen.store}",
        "",
        *_table(["queue", "paused", *states], [*queues, total], numbers=2),
        "",
        f"totals: {', '.join(f'{name} {number}' for name, number in seen.totals.items())}",
        "",
        *(_table(["finished", "task", "id", "queue", "lane", "outcome", "took"], runs, numbers=6) if runs else ["no runs yet"]),
    ]


def _table(head: list[str], rows: list[list[str]], numbers: int) -> list[str]:
    """Align columns; those from `numbers` on to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if column >= numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
