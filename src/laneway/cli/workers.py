"""`laneway workers`: list the workers, and ask them to claim nothing more or to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from laneway.cli import complete
from laneway.cli.command import CliGroup, app_options, confirmed, echo_json, examples, json_option, opened, said
from laneway.cli.table import PHASE_COLOURS, Cell, Column, moment, print_table
from laneway.errors import UnknownWorker, did_you_mean
from laneway.present.documents import worker_document
from laneway.present.words import duration

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.store.inspection import WorkerStatus

__all__ = ["workers"]


@click.group(
    "workers", cls=CliGroup, no_args_is_help=True,
    epilog=examples("laneway workers list", "laneway workers quiet 4711", "laneway workers stop --all"),
)  # fmt: skip
def workers() -> None:
    """List workers; ask them to be quiet or to stop."""


@workers.command("list", epilog=examples("laneway workers list", "laneway workers list --json"))
@app_options
@json_option
def list_(app_option: str | None, store: str | None, as_json: bool) -> None:
    """List the workers with what they run."""
    with opened(app_option, store) as app:
        found = app.inspect.workers()
    if as_json:
        echo_json([worker_document(worker) for worker in found])
        return
    columns = [
        Column("id", whole=True),
        Column("host", names=True),
        Column("pid", right=True, whole=True),
        Column("phase", whole=True),
        Column("busy", right=True, whole=True),
        Column("queues"),
        Column("balance", spare=1),
        Column("up", right=True, whole=True, spare=2),
        Column("beat", whole=True, spare=3),
        Column("memory", right=True, whole=True, spare=1),
        Column("runs"),
    ]
    rows: list[list[str | Cell]] = [
        [
            worker.id, worker.host, str(worker.pid or ""), Cell(worker.phase, PHASE_COLOURS.get(worker.phase, "")),
            f"{worker.busy}/{worker.slots}", ",".join(worker.queues) or "all", worker.balance,
            "" if worker.uptime is None else duration(worker.uptime), moment(worker.last_beat),
            f"{worker.rss / (1 << 20):.0f}M" if worker.rss else "", ",".join(sorted({job.task for job in worker.jobs})),
        ]
        for worker in found
    ]  # fmt: skip
    print_table(columns, rows, empty="no worker runs: start one with laneway worker")


def _chosen(app: App, names: tuple[str, ...], everyone: bool) -> list[WorkerStatus]:
    """Return the workers that are meant: by id, by pid if that is one worker, by fleet, or all."""
    known = app.inspect.workers()
    if everyone:
        return known
    chosen: dict[str, WorkerStatus] = {}
    for name in names:
        fitting = [worker for worker in known if name in (worker.id, str(worker.pid), worker.fleet)]
        hosts = {worker.host for worker in fitting}
        if len(hosts) > 1:
            raise UnknownWorker(f"{name} is a pid on {', '.join(sorted(hosts))}: name the worker by its id", id=name)
        if not fitting:
            near = did_you_mean(name, [word for worker in known for word in (worker.id, str(worker.pid))])
            listed = f" {len(known)} are in: laneway workers list" if known else " None is there"
            raise UnknownWorker(f'no worker "{name}" beats in the store.{near}{listed}', id=name)
        chosen |= {worker.id: worker for worker in fitting}
    return list(chosen.values())


def _send_command(
    command: str, words: str, names: tuple[str, ...], everyone: bool, yes: bool, app_option: str | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    if bool(names) == everyone:
        raise click.UsageError("name workers by id, pid or fleet, or all of them with --all")
    with opened(app_option, store) as app:
        chosen = _chosen(app, names, everyone)
        if len(chosen) > 1:
            running = sum(worker.busy for worker in chosen)
            confirmed(f"Tell {len(chosen)} workers, which run {running} jobs, to {words}?", yes=yes)
        for worker in chosen:
            getattr(app.inspect, command)(worker)
    told = ", ".join(worker.id for worker in chosen) or "none: no worker runs"
    said(f"told to {words} at the next beat: {told}", [{"id": worker.id, "told": command} for worker in chosen], as_json)


@workers.command("quiet", epilog=examples("laneway workers quiet 4711", "laneway workers quiet --all --yes"))
@click.argument("names", metavar="[WORKER]...", nargs=-1, shell_complete=complete.workers)
@click.option("--all", "everyone", is_flag=True, help="All workers.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@app_options
@json_option
def quiet(**options: Any) -> None:
    """Ask workers to claim nothing more. What runs goes on.

    WORKER is an id, a pid, or the id of a fleet.
    """
    _send_command("quiet", "be quiet", **options)


@workers.command("stop", epilog=examples("laneway workers stop 4711", "laneway workers stop --all --yes"))
@click.argument("names", metavar="[WORKER]...", nargs=-1, shell_complete=complete.workers)
@click.option("--all", "everyone", is_flag=True, help="All workers.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@app_options
@json_option
def stop(**options: Any) -> None:
    """Ask workers to end when what runs has ended.

    WORKER is an id, a pid, or the id of a fleet.
    """
    _send_command("stop", "stop", **options)
