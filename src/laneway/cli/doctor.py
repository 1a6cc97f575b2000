"""`laneway doctor`: what is wrong, or may go wrong, with a store and the work in it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from laneway.cli.command import CliCommand, app_argument, app_options, echo_json, examples, json_option, opened
from laneway.cli.show import wants_colour
from laneway.errors import SchemaError
from laneway.logs import visible
from laneway.present.words import plural

if TYPE_CHECKING:
    from laneway.store.findings import Finding

__all__ = ["doctor"]

COLOURS = {"problem": "red", "warning": "yellow", "note": "cyan", "ok": "green"}


@click.command(
    "doctor", cls=CliCommand,
    epilog=examples("laneway doctor", "laneway doctor --store redis://localhost:6379/0", "laneway doctor --deep --json"),
)  # fmt: skip
@app_argument
@click.option("--deep", is_flag=True, help="Also what takes long, such as reading an SQLite file as a whole.")
@app_options
@json_option
@click.pass_context
def doctor(
    context: click.Context, app_name: str | None, deep: bool, app_option: str | None, store: str | None, as_json: bool
) -> None:
    """Examine the store and whether jobs get done.

    Exit code 0 if there is no problem, 1 if there is one. No job is changed.
    """
    from laneway.config import safe_url  # noqa: PLC0415 - the help needs none of it
    from laneway.desk.locate import check_store  # noqa: PLC0415
    from laneway.store import backend_of, check_url  # noqa: PLC0415
    from laneway.store.findings import LEVELS  # noqa: PLC0415

    with opened(app_option, store, app_name, looks=False) as app:
        backend_of(check_url(app.url).scheme).suppress_startup_warnings()  # they are among the findings
        with contextlib.suppress(SchemaError):  # so is this
            check_store(app, to_write=False)
        findings = sorted(app.inspect.examine(deep=deep), key=lambda finding: LEVELS.index(finding.level))
        address = safe_url(app.url)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        echo_json({"store": address, "ok": not problems, "findings": [finding.as_dict() for finding in findings]})
    else:
        _print(address, findings)
    context.exit(1 if problems else 0)


def _print(address: str, findings: Sequence[Finding]) -> None:
    """Print findings, the worst first: a line for each, and one for what to do."""
    colour = wants_colour(sys.stdout)
    width = max(len(finding.what) for finding in findings)
    click.echo(f"store: {visible(address)}\n")
    for finding in findings:
        level = click.style(f"{finding.level:7}", fg=COLOURS[finding.level])
        click.echo(f"{level}  {finding.what:{width}}  {visible(finding.found)}", color=colour)
        if finding.advice:
            click.echo(f"{'':{width + 9}}  → {visible(finding.advice)}")
    number = {level: sum(finding.level == level for finding in findings) for level in COLOURS}
    worse = [plural(number[level], level) for level in ("problem", "warning", "note") if number[level]]
    click.echo(f"\n{', '.join(worse) or 'all is well'}")
