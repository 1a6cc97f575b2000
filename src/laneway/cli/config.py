"""`laneway config`: every setting, its value, and where it comes from."""

from __future__ import annotations

from typing import Any, cast

import click

from laneway.cli.command import CliCommand, app_argument, app_options, echo_json, examples, json_option
from laneway.cli.table import Cell, Column, print_table
from laneway.config import safe_url
from laneway.errors import ConfigError
from laneway.settings import SETTINGS, Found, Secret, Settings

__all__ = ["config"]


@click.command(
    "config", cls=CliCommand, epilog=examples("laneway config", "laneway config --sources", "laneway config shop.jobs:app --json")
)
@app_argument
@click.option("--sources", is_flag=True, help="Say where each value comes from, and where it can be set.")
@app_options
@json_option
def config(app_name: str | None, sources: bool, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Show every setting.

    A setting is what a flag says, else what the code says, else the environment, else [tool.laneway] in pyproject.toml here, else
    its default.
    """
    around = Settings()
    found = _found(around, app_name, app_option, store)
    if as_json:
        echo_json([
            {
                "name": name, "value": _plain(name, one.value), "source": one.source,
                "environment": SETTINGS[name].environment, "help": SETTINGS[name].help,
            }
            for name, one in found.items()
        ])  # fmt: skip
    else:
        rows: list[list[str | Cell]] = [
            [
                Cell(name, "" if one.source == "default" else "green"), _shown(name, one.value),
                *([Cell(one.source, "bright_black" if one.source == "default" else ""), SETTINGS[name].environment]
                  if sources else [SETTINGS[name].help]),
            ]
            for name, one in found.items()
        ]  # fmt: skip
        more = [Column("from"), Column("environment", spare=1)] if sources else [Column("meaning", spare=1)]
        print_table([Column("setting", whole=True), Column("value", wish=30), *more], rows, empty="")
    for mistake in around.unknown():
        click.echo(mistake, err=True)


def _found(around: Settings, app_name: str | None, app_option: str | None, store: str | None) -> dict[str, Found]:
    """Find all settings. What only the code says is known if there is an app."""
    from laneway.desk.locate import choose, find_app  # noqa: PLC0415 - the help needs none of it

    found = {name: around.find(name) for name in SETTINGS}
    named = app_name or app_option
    try:
        text, _ = choose(app_name, app_option)
    except ConfigError:
        if named:
            raise
        text = None
    if text is not None:
        app = find_app(app_name, app_option)
        values = {"url": app.url, "outbox": None if app.outbox is None else app.outbox.url, **app.settings}
        found |= {name: Found(values[name], source) for name, source in app.sources.items()}
        if named:
            found["app"] = Found(text, "-A" if app_option else "the argument")
        elif found["app"].value is None:
            found["app"] = Found(text, "default")
    if store is not None:
        found["url"] = Found(store, "--store")
    return found


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Secret):
        return repr(value)
    return safe_url(value) if SETTINGS[name].metavar == "URL" and value else value  # JSON has lists for tuples


def _shown(name: str, value: Any) -> str:
    """Return a value as a person writes it; where there is none, what that means."""
    if value is None or value == ():
        return SETTINGS[name].without
    if isinstance(value, float):
        return f"{value:.12g}"
    return ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(_plain(name, value))
