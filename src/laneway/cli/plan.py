"""`laneway plan`: whether workers keep up with a load, and what it would take.

The figures are those that are given; what is not given is taken from the store. With --rate and --seconds no store is needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.command import CliCommand, app_argument, app_options, examples, json_option, opened, said
from laneway.cli.values import DURATION, SIZE, OneOf, Reader
from laneway.errors import ConfigError

if TYPE_CHECKING:
    from laneway.capacity.observe import Observed

__all__ = ["plan"]

PER = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
NUMBER = r"(\d+(?:\.\d+)?|\.\d+)"


def _read_rate(value: object) -> float:
    """Read a rate as jobs per second: 1000, or 50/m, 20/h, 5/d."""
    found = re.fullmatch(rf"{NUMBER}\s*(?:/\s*([smhd]))?", str(value).replace(",", ""))
    if not found:
        raise ValueError("use a number of jobs per second, minute, hour or day: 1000, 50/m, 20/h, 5/d")
    return float(found[1]) / PER[found[2] or ""]


def _read_share(value: object) -> float:
    """Read a share: 10%, or 0.1."""
    found = re.fullmatch(rf"{NUMBER}\s*(%?)", str(value))
    share = float(f"{found[1]}{'e-2' if found[2] else ''}") if found else 2.0  # so that 7% is 0.07, to the digit
    if share > 1:
        raise ValueError("use a share of 0% to 100%, such as 10% or 0.1")
    return share


RATE, SHARE = Reader("rate", _read_rate), Reader("share", _read_share)

#: Requests a second, where only their share that enqueues a job is said.
REQUESTS = 1000


@click.command(
    "plan", cls=CliCommand,
    epilog=examples(
        "laneway plan",
        "laneway plan --rate 1000 --share 10% --seconds 0.05 --kind io --bytes 26",
        "laneway plan --rate 500 --seconds 4 --kind cpu --cores 4 --app-memory 400M --ram 4G",
        "laneway plan --rate 20/m --seconds 90 --backlog 5000 --json",
    ),
)  # fmt: skip
@app_argument
@click.option("--rate", type=RATE, metavar="N", help="Jobs a second, or requests with --share [1000]; 50/m: a minute.")
@click.option("--share", type=SHARE, metavar="10%", help="How many of the requests enqueue a job. [all]")
@click.option("--seconds", type=DURATION, metavar="SECONDS", help="How long a job runs: 0.05, 50ms, 2m.")
@click.option("--kind", type=OneOf(["io", "cpu"]), help="Jobs wait for others, or compute. [io]")
@click.option("--bytes", type=SIZE, metavar="N", help="What a waiting job takes in the store. [270]")
@click.option("--backlog", type=int, metavar="N", help="Jobs that wait now.")
@click.option("--slots", type=int, metavar="N", help="Jobs at a time in one process. [25, or as workers have]")
@click.option("--cores", type=int, metavar="N", help="Cores of a machine. [1]")
@click.option("--ram", type=SIZE, metavar="SIZE", help="RAM of a machine: 4G.")
@click.option("--app-memory", type=SIZE, metavar="SIZE", help="What one process takes: 400M. [as workers take]")
@app_options
@json_option
def plan(app_name: str | None, app_option: str | None, store: str | None, as_json: bool, **given: Any) -> None:
    """Say whether workers keep up, and what it would take.

    With --rate and --seconds it is arithmetic alone. What is not given is taken from the store: how many jobs came, how long they
    ran, what waits, and which workers run.
    """
    from laneway.cli.plan_views import lines  # noqa: PLC0415 - the help needs none of it
    from laneway.present.plan import plan_document, plan_from  # noqa: PLC0415

    if given["share"] is not None and given["rate"] is None:
        given["rate"] = REQUESTS
        click.echo(f"{REQUESTS:,} requests a second are assumed: say how many there are with --rate.", err=True)
    seen: Observed | None = None
    if given["rate"] is None or given["seconds"] is None:
        missing = [f"--{name}" for name in ("rate", "seconds") if given[name] is None]
        seen = _look(app_name, app_option, store, " and ".join(missing))
    answers = plan_from(given, seen)
    said("\n".join(lines(answers, seen, guessed=given["kind"] is None)), plan_document(answers, seen), as_json)


def _look(app_name: str | None, app_option: str | None, store: str | None, missing: str) -> Observed:
    from laneway.capacity.observe import observed  # noqa: PLC0415 - the help needs none of it

    try:
        with opened(app_option, store, app_name) as app:
            return observed(app)
    except ConfigError as error:
        if not error.no_app:
            raise
        raise ConfigError(f"{error}; or give {missing}: then no app is needed") from None
