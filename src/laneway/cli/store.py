"""`laneway store`: move a live system to another store, or undo that."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from laneway.cli.command import CliGroup, confirmed, examples, json_option, opened, question_options, said
from laneway.cli.table import aligned
from laneway.present.words import plural

if TYPE_CHECKING:
    from laneway.store.moving import Copied, Side

__all__ = ["store"]

#: How often a line says how far it is where no terminal is, seconds.
SAY_EVERY = 5.0


@click.group(
    "store", cls=CliGroup, no_args_is_help=True,
    epilog=examples("laneway store copy sqlite:///jobs.db redis://localhost:6379/0", "laneway store reopen sqlite:///jobs.db"),
)  # fmt: skip
def store() -> None:
    """Move all jobs to another store, or undo that."""


@store.command(
    "copy",
    epilog=examples(
        "laneway store copy sqlite:///jobs.db redis://localhost:6379/0",
        "laneway store copy redis://localhost:6379/0 sqlite:////srv/jobs.db --timeout 600",
    ),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait this long for running jobs. [no limit]")
@json_option
def copy(source: str, target: str, timeout: float | None, as_json: bool) -> None:
    """Move everything in one store into another, which must be empty.

    FROM is closed first: it takes no jobs and gives no claims, and programs that try get StoreMoved with the new address. Then
    the command waits until nothing runs, and copies. If it is stopped or killed, start it again: it goes on where it was.
    """
    from laneway.store.moving import copy_store, side_of  # noqa: PLC0415 - the help needs none of it

    with opened(None, source) as old, opened(None, target, makes=True) as new:
        here, there = side_of(old.store, old.url), side_of(new.store, new.url)
        progress = _Progress()
        try:
            copied = copy_store(here, there, timeout=timeout, tell=progress.tell)
        except KeyboardInterrupt:
            progress.end()
            click.echo(f"laneway: {_stopped(here)}", err=True)
            raise click.exceptions.Exit(130) from None
        finally:
            progress.end()
        text = _report(here, there, copied)
    document = {
        "from": here.address, "to": there.address, "copied": copied.copied, "source": copied.source.as_dict(),
        "target": copied.target.as_dict(),
    }  # fmt: skip
    said(text, document, as_json)


@store.command("reopen", epilog=examples("laneway store reopen sqlite:///jobs.db"))
@click.argument("url", metavar="URL")
@question_options
@json_option
def reopen(url: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Let a store go on that `laneway store copy` has closed."""
    from laneway.store.moving import reopen_store, side_of  # noqa: PLC0415 - the help needs none of it

    with opened(None, url) as app:
        side = side_of(app.store, app.url)
        move = side.transfer.move()
        if move is None or not move.closed:
            said(f"{side.address} is open: nothing to do", {"reopened": False}, as_json)
            return
        if dry_run:
            said(f"{side.address} would be opened; nothing was changed", {"reopened": False, "address": move.address}, as_json)
            return
        if move.fills:
            confirmed(f"Only a part of {move.address} was copied into this store. Open it all the same?", yes=yes)
        elif move.finished:
            confirmed(f"All jobs were copied to {move.address}, and would run twice. Open this store all the same?", yes=yes)
        reopen_store(side)
    text = f"{side.address} is open again: it takes jobs and gives claims"
    if not move.fills and not move.finished:
        text += f". {move.address} has a part of the copy and stays closed: empty it before the next copy"
    said(text, {"reopened": True, "address": move.address, "finished": move.finished}, as_json)


class _Progress:
    """Says how far a copy is: on one line of a terminal, else now and then."""

    def __init__(self) -> None:
        self._line = sys.stderr.isatty()
        self._open = False
        self._said = float("-inf")

    def tell(self, word: str, number: int) -> None:
        """Say what happens."""
        every = 0.1 if self._line else SAY_EVERY
        if not number or time.monotonic() < self._said + every:
            return
        self._said = time.monotonic()
        text = f"waiting for {plural(number, 'running job')}" if word == "running" else f"copied {number:,}"
        if self._line:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
            self._open = True
        else:
            click.echo(text, err=True)

    def end(self) -> None:
        """Remove the line."""
        if self._open:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._open = False


def _stopped(source: Side) -> str:
    move = source.transfer.move()
    if move is None or not move.closed:
        return "stopped; nothing was changed"
    undo = f"laneway store reopen {source.address}"
    return f"stopped; {source.address} stays closed. Start the copy again to go on, or undo it: {undo}"


def _report(source: Side, target: Side, copied: Copied) -> str:
    here, there = copied.source.as_dict(), copied.target.as_dict()
    names = [name for name in here if name != "running" and (here[name] or there[name])]
    if copied.copied == 0 and here != there:
        return f"{source.address} was copied to {target.address} before: nothing to do"
    head = (
        f"{source.address} was copied to {target.address}" if names else f"{source.address} is empty: there was nothing to copy"
    )
    table = aligned(
        ["", "source", "target"], [[name, f"{here[name]:,}", f"{there[name]:,}"] for name in names], [False, True, True]
    )
    rest = (
        f"Use the new address now: restart all programs with it. {source.address} stays closed;",
        "delete it when you no longer need it. Not copied: the list of recent runs, workers, statistics of the last seconds.",
    )
    return "\n".join([head, *(f"  {line}" for line in table if names), *rest])
