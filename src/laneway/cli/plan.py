"""`laneway plan`: whether workers keep up with a load, and what it would take.

The figures are those that are given; what is not given is taken from the store. With --rate and --seconds no store is needed.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.command import Command, app_argument, app_options, echo_json, examples, json_option, opened
from laneway.cli.values import Duration, FloatType, IntType, OneOf
from laneway.settings import read_size

if TYPE_CHECKING:
    from laneway.capacity import Plan
    from laneway.capacity.observe import Observed

__all__ = ["plan"]

PER = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
NUMBER = r"(\d+(?:\.\d+)?|\.\d+)"


class Rate(FloatType):
    """So many a second: 1000, or 50/m, 20/h, 5/d."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        found = re.fullmatch(rf"{NUMBER}\s*(?:/\s*([smhd]))?", str(value).replace(",", ""))
        if not found:
            self.fail(f"{value!r}: use so many a second, a minute, an hour or a day: 1000, 50/m, 20/h, 5/d", param, ctx)
        return float(found[1]) / PER[found[2] or ""]


class Share(FloatType):
    """A share: 10%, or 0.1."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        found = re.fullmatch(rf"{NUMBER}\s*(%?)", str(value))
        share = float(f"{found[1]}{'e-2' if found[2] else ''}") if found else 2.0  # so that 7% is 0.07, to the digit
        if share > 1:
            self.fail(f"{value!r}: use a share of 0% to 100%, such as 10% or 0.1", param, ctx)
        return share


class Size(IntType):
    """An amount of memory: 400M, 4G, or bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        try:
            return read_size(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


#: Requests a second, where only their share that enqueues a job is said.
REQUESTS = 1000


@click.command(
    "plan", cls=Command,
    epilog=examples(
        "laneway plan",
        "laneway plan --rate 1000 --share 10% --seconds 0.05 --kind io --bytes 26",
        "laneway plan --rate 500 --seconds 4 --kind cpu --cores 4 --app-memory 400M --ram 4G",
        "laneway plan --rate 20/m --seconds 90 --backlog 5000 --json",
    ),
)  # fmt: skip
@app_argument
@click.option("--rate", type=Rate(), metavar="N", help="Jobs a second, or requests with --share [1000]; 50/m: a minute.")
@click.option("--share", type=Share(), metavar="10%", help="How many of the requests enqueue a job. [all]")
@click.option("--seconds", type=Duration(), metavar="SECONDS", help="How long a job runs: 0.05, 50ms, 2m.")
@click.option("--kind", type=OneOf(["io", "cpu"]), help="Jobs wait for others, or compute. [io]")
@click.option("--bytes", type=Size(), metavar="N", help="What a waiting job takes in the store. [270]")
@click.option("--backlog", type=int, metavar="N", help="Jobs that wait now.")
@click.option("--slots", type=int, metavar="N", help="Jobs at a time in one process. [25, or as workers have]")
@click.option("--cores", type=int, metavar="N", help="Cores of a machine. [1]")
@click.option("--ram", type=Size(), metavar="SIZE", help="RAM of a machine: 4G.")
@click.option("--app-memory", type=Size(), metavar="SIZE", help="What one process takes: 400M. [as workers take]")
@app_options
@json_option
def plan(app_name: str | None, app_option: str | None, store: str | None, as_json: bool, **given: Any) -> None:
    """Say whether workers keep up, and what it would take.

    With --rate and --seconds it is arithmetic alone. What is not given is taken from the store: how many jobs came, how long they
    ran, what waits, and who works.
    """
    from laneway.cli.plan_views import lines  # noqa: PLC0415 - the help needs none of it
    from laneway.cli.show import wants_colour  # noqa: PLC0415
    from laneway.present.documents import plan_document  # noqa: PLC0415 - the help needs none of it

    if given["share"] is not None and given["rate"] is None:
        given["rate"] = REQUESTS
        click.echo(f"{REQUESTS:,} requests a second are assumed: say how many there are with --rate.", err=True)
    seen: Observed | None = None
    if given["rate"] is None or given["seconds"] is None:
        missing = [f"--{name}" for name in ("rate", "seconds") if given[name] is None]
        seen = _look(app_name, app_option, store, " and ".join(missing))
    answers = _answers(given, seen)
    if as_json:
        echo_json(plan_document(answers, seen))
    else:
        click.echo("\n".join(lines(answers, seen, guessed=given["kind"] is None)), color=wants_colour(sys.stdout))


def _look(app_name: str | None, app_option: str | None, store: str | None, missing: str) -> Observed:
    from laneway.capacity.observe import observed  # noqa: PLC0415 - the help needs none of it
    from laneway.errors import ConfigError  # noqa: PLC0415

    try:
        with opened(app_option, store, app_name) as app:
            return observed(app)
    except ConfigError as error:
        if not error.no_app:
            raise
        raise ConfigError(f"{error}; or give {missing}: then no app is needed") from None


def _answers(given: dict[str, Any], seen: Observed | None) -> Plan:
    """Plan with what is given, else with what was seen, else with what is usual."""
    import dataclasses  # noqa: PLC0415 - the help needs none of it

    from laneway.capacity import Load, Machine, plan  # noqa: PLC0415

    usual: dict[str, Any] = {} if seen is None else {"slots": seen.slots, "app_memory": seen.app_memory}
    load = _said(given, "rate", "seconds", "share", "kind", "bytes", "backlog")
    machine = Machine(**_said(usual | _said(given, "cores", "slots", "ram", "app_memory")))
    if seen is None:
        return plan(Load(**load), machine)
    return plan(dataclasses.replace(seen.load, **load), machine, seen.crew)


def _said(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: values[name] for name in names or values if values[name] is not None}
