"""`laneway worker`: run an app's jobs in this process until told to stop."""

from __future__ import annotations

import logging
import sys
import time

import click

__all__ = ["worker"]

log = logging.getLogger("laneway")


@click.command("worker")
@click.argument("app_name", metavar="[APP]", required=False)
@click.option("-A", "--app", "app_option", metavar="APP", help="The app, as the argument.")
@click.option("-q", "--queues", metavar="A,B", multiple=True, help="Serve only these queues.")
@click.option("-s", "-w", "--slots", metavar="N", type=int, default=25, show_default=True, help="Jobs at a time.")
@click.option("--burst", is_flag=True, help="Stop when nothing is due.")
@click.option("--store", metavar="URL", help="Use this store instead of the app's.")
@click.option(
    "--shutdown-timeout", metavar="SECONDS", type=click.FloatRange(min=0), default=25.0, show_default=True,
    help="How long running jobs may take to end after a stop.",
)  # fmt: skip
def worker(
    app_name: str | None, app_option: str | None, queues: tuple[str, ...], slots: int, burst: bool, store: str | None,
    shutdown_timeout: float,
) -> None:  # fmt: skip
    """Run jobs.

    APP is module:attribute or a path such as ./shop/app.py:app; the attribute is "app" unless said. Without APP it is what
    LANEWAY_APP says, or [tool.laneway] app in pyproject.toml, or app.py or main.py here. Ctrl-C or SIGTERM stops it; what runs
    may end.
    """
    from laneway.cli.locate import check_store, find_app, load_tasks  # noqa: PLC0415 - the help needs none of it
    from laneway.worker import Worker  # noqa: PLC0415

    app = find_app(app_name, app_option, store)
    tasks = load_tasks(app)
    names = [name.strip() for part in queues for name in part.split(",")]
    made = Worker(app, slots, names or None, shutdown_timeout=shutdown_timeout)
    check_store(app, to_write=True)

    say_end = _start_logging(sorted(app.tasks))
    served = f"queues {', '.join(names)}" if names else "all queues"
    log.info("worker started: %s, %d tasks, %s, %d slots", app.url, tasks, served, slots)
    if not tasks:
        log.warning("the app has no tasks: import the modules that declare them, or name them in App(imports=[...])")
    try:
        made.run(burst=burst)
    finally:
        app.close()
    say_end()


def _start_logging(tasks: list[str]) -> _SayEnd:
    from laneway.cli.show import JobLines, log_plainly  # noqa: PLC0415

    if not sys.stderr.isatty():
        log_plainly(sys.stderr)
        return _SayEnd(None)
    lines = JobLines(sys.stderr, tasks)
    lines.install()
    return _SayEnd(lines.outcomes)


class _SayEnd:
    """The last line: what the worker did, if it was counted."""

    def __init__(self, outcomes: dict[str, int] | None) -> None:
        self._outcomes = outcomes
        self._since = time.monotonic()

    def __call__(self) -> None:
        from laneway.cli.show import duration  # noqa: PLC0415

        did = ", ".join(f"{number} {name}" for name, number in (self._outcomes or {}).items())
        took = duration(time.monotonic() - self._since)
        log.info("worker stopped after %s%s", took, f": {did}" if did else "")
