"""`laneway worker`: start a fleet that runs an app's jobs until told to stop."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from laneway.cli import complete
from laneway.cli.command import CliCommand, app_argument, examples
from laneway.cli.values import chosen_settings, setting_option
from laneway.config import safe_url
from laneway.logs import log, start_logging
from laneway.present.words import duration, plural

__all__ = ["worker"]


@click.command(
    "worker", cls=CliCommand,
    epilog=examples(
        "laneway worker", "laneway worker shop.jobs:app -q mail,default -s 10 -p 4", "laneway worker -q critical:6,default:3,low",
        "laneway worker --burst",
    ),
)  # fmt: skip
@app_argument
@click.option("-A", "--app", "app_option", metavar="APP", help="The app, as the argument. [LANEWAY_APP]")
@setting_option("queues", "-q", "--queues", multiple=True, shell_complete=complete.queue_list)
@setting_option("balance")
@setting_option("slots", "-s", "-w", "--slots")
@setting_option("processes", "-p", "--processes")
@setting_option("connections", "-c", "--connections")
@click.option("--burst", is_flag=True, help="Stop when nothing is due.")
@click.option("--reload", is_flag=True, help="Load the app again when one of its files changes.")
@click.option("--store", metavar="URL", help="Use this store, whatever the app says.")
@setting_option("max_jobs")
@setting_option("max_memory")
@setting_option("shutdown_timeout")
@setting_option("timeout_grace")
@setting_option("beat")
@setting_option("loop")
@setting_option("health_port")
@setting_option("health_host")
@setting_option("log_level")
@setting_option("log_format")
def worker(
    app_name: str | None, app_option: str | None, burst: bool, reload: bool, store: str | None, **given: Any
) -> None:  # fmt: skip
    """Run jobs.

    APP is module:attribute or a path such as ./shop/app.py:app; the attribute is "app" unless said. Without APP it is what
    LANEWAY_APP says, or [tool.laneway] app in pyproject.toml, or app.py or main.py here. Ctrl-C or SIGTERM stops it; what runs
    may end. A second one ends it at once; nothing is lost.
    """
    from laneway.fleet.reload import check_reload  # noqa: PLC0415 - the help needs none of it
    from laneway.fleet.settings import AppChoice, FleetSettings  # noqa: PLC0415
    from laneway.fleet.supervisor import Stopped, Supervisor  # noqa: PLC0415
    from laneway.worker.balance import choose, name_of, read_weights  # noqa: PLC0415

    if reload:
        check_reload()
    chosen = chosen_settings(given)
    names, weights = read_weights(chosen.pop("queues"))
    host, port = chosen.pop("health_host"), chosen.pop("health_port")
    since = time.monotonic()
    fleet = Supervisor(
        FleetSettings(
            app=AppChoice(app_name, app_option, store), burst=burst, reload=reload, queues=names, weights=weights,
            health=None if port is None else (host, port), **chosen,
        )
    )  # fmt: skip
    level, form = chosen["log_level"], chosen["log_format"]
    on_terminal = sys.stderr.isatty() and form != "json"
    if not on_terminal:
        start_logging(sys.stderr, (), None, level, form)  # loading may have something to say
    try:
        report = fleet.load()
    except Stopped:
        return
    if on_terminal:
        start_logging(sys.stderr, report.tasks, None, level, form)
    served = f"queues {', '.join(names)}" if names else "all queues"
    policy = name_of(choose(chosen["balance"], names, weights))
    if policy != "even":
        served += f" by {policy}"
    slots, processes = chosen["slots"], chosen["processes"]
    places = f"{slots} slots" if processes == 1 else f"{processes} processes of {slots} slots"
    log.info("worker started: %s, %s, %s, %s", safe_url(report.url), plural(len(report.tasks), "task"), served, places)
    if not report.tasks:
        log.warning("the app has no tasks: import the modules that declare them, or name them in App(imports=[...])")
    fleet.run()
    did = ", ".join(f"{number} {name}" for name, number in fleet.outcomes.items() if number)
    log.info("worker stopped after %s%s", duration(time.monotonic() - since), f": {did}" if did else "")
