"""Enqueueing a file: one job or payload for each line, a chunk in memory at a time.

A line is a JSON list (arguments by position) or an object (by name); what it is for collectors, `enqueue_lane` knows. Empty ones
are passed over. All lines before a bad one are sent, none after it, and the error says where to go on.

Enters: lines.  Leaves: jobs and payloads.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
import msgspec

from laneway.cli.command import said
from laneway.errors import BadArguments, BulkError, EnqueueError, LanewayError
from laneway.present.words import plural

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.task import Bound, Using

__all__ = ["by_signature", "enqueue_rows"]

CHUNK = 1000


def enqueue_rows(app: App, task: str, bind: Callable[[object], Bound], rows: TextIO, noun: str, *, as_json: bool) -> None:
    """Enqueue what each line says, and say how many were accepted."""
    accepted = _enqueue(app, bind, rows, noun)
    said(f"{plural(accepted, noun)} of {task} enqueued", {"task": task, "accepted": accepted}, as_json)


def _enqueue(app: App, bind: Callable[[object], Bound], rows: TextIO, noun: str) -> int:
    accepted = 0
    chunk: list[Bound] = []
    number = 0
    with _progress(rows) as advance:
        try:
            for number, line in enumerate(_lines(rows), 1):  # noqa: B007 - the error names it
                if line.strip():
                    chunk.append(_call(bind, line))
                if len(chunk) == CHUNK:
                    accepted += app.enqueue_many(chunk, chunk=CHUNK)
                    chunk = []
                advance(len(line.encode()))
        except (EnqueueError, ValueError) as error:
            accepted += _send(app, chunk, accepted, noun)
            raise BulkError(
                f"line {number}: {error}. {plural(accepted, noun)} of the lines before it enqueued, nothing after it: "
                f"go on with line {number}",
                accepted=accepted,
            ) from None
        return accepted + _send(app, chunk, accepted, noun)


def _lines(rows: TextIO) -> Iterator[str]:
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is not UTF-8 text from there on ({error.reason})") from None


def _call(bind: Callable[[object], Bound], line: str) -> Bound:
    """Read a line and check it as a whole, so that it is this line's mistake and not its chunk's."""
    try:
        row: object = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadArguments(f"it is not JSON ({error})") from None
    call = bind(row)
    call.draft().seal()
    return call


def by_signature(using: Using[..., Any]) -> Callable[[object], Bound]:
    """Return what makes a call of a task's line."""

    def bind(row: object) -> Bound:
        if isinstance(row, list):
            return using.bind(*cast("list[object]", row))
        if isinstance(row, dict):
            return using.bind(**cast("dict[str, object]", row))
        raise BadArguments(f"{str(row)[:60]} is neither a list of arguments nor an object of named ones")

    return bind


def _send(app: App, chunk: list[Bound], before: int, noun: str) -> int:
    try:
        return app.enqueue_many(chunk, chunk=CHUNK)
    except LanewayError as error:
        raise BulkError(f"{error.__cause__ or error}. {plural(before, noun)} enqueued before", accepted=before) from None


@contextlib.contextmanager
def _progress(rows: TextIO) -> Generator[Callable[[int], None]]:
    """Show a bar on a terminal, if it is known how much there is."""
    size = 0
    with contextlib.suppress(OSError, ValueError):
        size = os.fstat(rows.fileno()).st_size
    if not sys.stderr.isatty() or not size:
        yield lambda _: None
        return
    with click.progressbar(length=size, label="enqueueing", file=sys.stderr, show_pos=False) as bar:
        yield bar.update
