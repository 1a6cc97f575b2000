"""`laneway worker`: start a fleet that runs an app's jobs until told to stop."""

from __future__ import annotations

import logging
import re
import sys
import time

import click

__all__ = ["worker"]

log = logging.getLogger("laneway")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Bytes(click.ParamType[int]):
    """An amount of memory: 400M, 2G, or bytes."""

    name = "bytes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        found = re.fullmatch(r"(\d+)\s*([KMG]?)(i?B)?", str(value).strip(), re.IGNORECASE)
        if not found or not int(found[1]):
            self.fail(f"{value!r} is no amount of memory: use 400M or 2G", param, ctx)
        return int(found[1]) * _UNITS[found[2].upper()]


@click.command("worker")
@click.argument("app_name", metavar="[APP]", required=False)
@click.option("-A", "--app", "app_option", metavar="APP", help="The app, as the argument.")
@click.option("-q", "--queues", metavar="A,B", multiple=True, help="Serve only these queues.")
@click.option(
    "-s", "-w", "--slots", metavar="N", type=int, default=25, show_default=True, help="Jobs at a time, in each process."
)
@click.option("-p", "--processes", metavar="N", type=click.IntRange(1, 1000), default=1, show_default=True, help="Processes.")
@click.option("--burst", is_flag=True, help="Stop when nothing is due.")
@click.option("--reload", is_flag=True, help="Load the app again when one of its files changes.")
@click.option("--store", metavar="URL", help="Use this store instead of the app's.")
@click.option("--max-jobs", metavar="N", type=click.IntRange(min=1), help="Replace a process after so many jobs.")
@click.option("--max-memory", metavar="SIZE", type=Bytes(), help="Replace a process that has more memory, such as 400M.")
@click.option(
    "--shutdown-timeout", metavar="SECONDS", type=click.FloatRange(min=0), default=25.0, show_default=True,
    help="How long running jobs may take to end after a stop.",
)  # fmt: skip
@click.option(
    "--timeout-grace", metavar="SECONDS", type=click.FloatRange(min=0.1), default=2.0, show_default=True,
    help="How long a run may go on after its timeout before its process is replaced.",
)  # fmt: skip
@click.option(
    "--beat", metavar="SECONDS", type=click.FloatRange(min=0.05), default=3.0, show_default=True,
    help="How often the store hears that the processes live.",
)  # fmt: skip
def worker(
    app_name: str | None, app_option: str | None, queues: tuple[str, ...], slots: int, processes: int, burst: bool, reload: bool,
    store: str | None, max_jobs: int | None, max_memory: int | None, shutdown_timeout: float, timeout_grace: float, beat: float,
) -> None:  # fmt: skip
    """Run jobs.

    APP is module:attribute or a path such as ./shop/app.py:app; the attribute is "app" unless said. Without APP it is what
    LANEWAY_APP says, or [tool.laneway] app in pyproject.toml, or app.py or main.py here. Ctrl-C or SIGTERM stops it; what runs
    may end. A second one ends it at once; nothing is lost.
    """
    from laneway.config import safe_url  # noqa: PLC0415 - the help needs none of it
    from laneway.fleet.plan import Plan  # noqa: PLC0415
    from laneway.fleet.reload import check_reload  # noqa: PLC0415
    from laneway.fleet.supervisor import Stopped, Supervisor  # noqa: PLC0415
    from laneway.logs import start_logging  # noqa: PLC0415

    if reload:
        check_reload()
    names = tuple(name.strip() for part in queues for name in part.split(","))
    since = time.monotonic()
    fleet = Supervisor(Plan(
        app=app_name, app_option=app_option, store=store, queues=names, slots=slots, processes=processes, burst=burst,
        reload=reload, shutdown_timeout=shutdown_timeout, max_jobs=max_jobs, max_memory=max_memory, beat=beat,
        timeout_grace=timeout_grace,
    ))  # fmt: skip
    try:
        report = fleet.load()
    except Stopped:
        return
    start_logging(sys.stderr, report.tasks)
    served = f"queues {', '.join(names)}" if names else "all queues"
    places = f"{slots} slots" if processes == 1 else f"{processes} processes of {slots} slots"
    log.info("worker started: %s, %d tasks, %s, %s", safe_url(report.url), len(report.tasks), served, places)
    if not report.tasks:
        log.warning("the app has no tasks: import the modules that declare them, or name them in App(imports=[...])")
    fleet.run()
    _say_end(fleet.outcomes, time.monotonic() - since)


def _say_end(outcomes: dict[str, int], seconds: float) -> None:
    from laneway.cli.show import duration  # noqa: PLC0415

    did = ", ".join(f"{number} {name}" for name, number in outcomes.items() if number)
    log.info("worker stopped after %s%s", duration(seconds), f": {did}" if did else "")
