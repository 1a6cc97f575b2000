"""What all commands share: their shape, their common options, and the app they are about.

`CliCommand` and `CliGroup` show examples as they are written; for a mistyped name they suggest the nearest one. Commands take -A,
--store and --json; `opened` turns the first two into an app whose store can be used.

Enters: options.  Leaves: an open `App`.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from laneway.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = [
    "CliCommand",
    "CliGroup",
    "app_argument",
    "app_if_any",
    "app_options",
    "asked",
    "change_many",
    "confirmed",
    "echo_json",
    "examples",
    "json_option",
    "opened",
    "question_options",
    "said",
    "is_interactive",
]

F = TypeVar("F", bound=Callable[..., Any])

#: What JSON may have in it as it is, and a terminal obeys or cannot show.
_OBEYED = re.compile("[\\x7f-\\x9f\\ud800-\\udfff]")


class CliCommand(click.Command):
    """A command with examples: its epilog is shown as it is written."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click gives it
        """Write the epilog."""
        if self.epilog:
            formatter.write_paragraph()
            for line in self.epilog.splitlines():
                formatter.write(f"{line}\n")


class CliGroup(CliCommand, click.Group):
    """Commands about one thing."""

    command_class = CliCommand

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for."""
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            near = did_you_mean(args[0], names)
            raise click.UsageError(f'there is no command "{args[0]}".{near} Commands: {", ".join(names)}.', ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands as they are declared: the most needed first."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if no command is named, with exit code 0."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)


def examples(*lines: str) -> str:
    """Return examples as an epilog."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])


# -- common options ----------------------------------------------------------------------------------------------


def app_argument(function: F) -> F:
    """Add the app as an argument, for commands that are about nothing else."""
    return click.argument("app_name", metavar="[APP]", required=False)(function)


def app_options(function: F) -> F:
    """Add -A/--app and --store."""
    function = click.option("--store", metavar="URL", help="Use this store, whatever the app says.")(function)
    return click.option(
        "-A", "--app", "app_option", metavar="APP", help="The app: module:attribute, or a path. [LANEWAY_APP]"
    )(function)  # fmt: skip


def json_option(function: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def question_options(function: F) -> F:
    """Add --yes and --dry-run, for what changes many things."""
    function = click.option("--dry-run", is_flag=True, help="Only say what would be done.")(function)
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


# -- the app -----------------------------------------------------------------------------------------------------


@contextmanager
def opened(
    app_option: str | None, store: str | None, argument: str | None = None, *,
    makes: bool = False, tasks: bool = False, looks: bool = True,
) -> Generator[App]:  # fmt: skip
    """Open the app a command is about; with `store` alone it is one without tasks.

    `makes` is for commands that may make the store, `tasks` for those that need the app's tasks; without `looks` the command does
    not check whether the store can be used.
    """
    from laneway.desk.app import App  # noqa: PLC0415 - the help needs none of it
    from laneway.desk.locate import check_store, find_app, load_tasks  # noqa: PLC0415

    bare = store is not None and not argument and not app_option
    app = App(store) if bare else find_app(argument, app_option, store)
    try:
        if tasks:
            load_tasks(app)
        if looks:
            check_store(app, to_write=makes)
        yield app
    finally:
        app.close()


def app_if_any(app_option: str | None, store: str | None) -> str | None:
    """Return how the app is named; with a store it is optional."""
    from laneway.desk.locate import choose  # noqa: PLC0415 - the help needs none of it

    if store is None:
        return app_option
    try:
        return choose(None, app_option)[0]
    except ConfigError:
        return None


# -- answers -----------------------------------------------------------------------------------------------------


def echo_json(document: object) -> None:
    """Print a document."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    click.echo(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def said(text: str, document: object, as_json: bool) -> None:
    """Say what was done, as text or as a document."""
    from laneway.cli.show import wants_colour  # noqa: PLC0415 - the help needs none of it

    if as_json:
        echo_json(document)
    else:
        click.echo(text, color=wants_colour(sys.stdout))


def is_interactive() -> bool:
    """Return whether a user can answer a question: standard input is a terminal."""
    return sys.stdin.isatty()


def confirmed(question: str, *, yes: bool) -> None:
    """Go on if the user says so; without a terminal only --yes says so."""
    if yes:
        return
    if not is_interactive():
        raise click.UsageError(f"{question} There is no terminal to ask at: add --yes, or --dry-run to look first")
    if not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(0)


def change_many(
    what: Callable[[int], str], past: str, matching: int, act: Callable[[], int], question: str, *,
    yes: bool, dry_run: bool, as_json: bool, **document: object,
) -> None:  # fmt: skip
    """Change many things if there are any and the user says so; say how many, `what` in words."""
    changed = 0
    if matching and not dry_run:
        confirmed(question, yes=yes)
        changed = act()
    text = f"{what(matching)} would be {past}; nothing was changed" if dry_run else f"{what(changed)} {past}"
    said(text, {**document, "matched": matching, "changed": changed, "dry_run": dry_run}, as_json)


def asked(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Return options as they are written on the command line, those that were given."""
    words: list[str] = []
    for flag, value in pairs:
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words += [flag, shlex.quote(str(value))]
    return words
