"""Enqueueing a file: one job for each line, a chunk in memory at a time.

A line is a JSON list (arguments by position) or an object (by name). Empty ones are passed over. All lines before a bad one are
sent, none after it, and the error says where to go on.

Enters: lines.  Leaves: jobs.  Called by: `enqueue`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
import msgspec

from laneway.errors import BadArguments, BulkError, EnqueueError, LanewayError

if TYPE_CHECKING:
    from laneway.app import App
    from laneway.task import Bound, Using

__all__ = ["enqueue_rows"]

CHUNK = 1000


def enqueue_rows(app: App, using: Using[..., Any], rows: TextIO) -> int:
    """Enqueue a job for each line; return how many were accepted."""
    accepted = 0
    chunk: list[Bound] = []
    number = 0
    with _progress(rows) as advance:
        try:
            for number, line in enumerate(_lines(rows), 1):  # noqa: B007 - the error names it
                if line.strip():
                    chunk.append(_call(using, line))
                if len(chunk) == CHUNK:
                    accepted += app.enqueue_many(chunk, chunk=CHUNK)
                    chunk = []
                advance(len(line.encode()))
        except (EnqueueError, ValueError) as error:
            accepted += _send(app, chunk, accepted)
            raise BulkError(
                f"line {number}: {error}. {accepted:,} jobs of the lines before it were enqueued, nothing after it: "
                f"go on with line {number}",
                accepted=accepted,
            ) from None
        return accepted + _send(app, chunk, accepted)


def _lines(rows: TextIO) -> Iterator[str]:
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is no text in UTF-8 from there on ({error.reason})") from None


def _call(using: Using[..., Any], line: str) -> Bound:
    """Read a line and check it as a whole, so that it is this line's mistake and not its chunk's."""
    try:
        row: object = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadArguments(f"it is no JSON ({error})") from None
    if isinstance(row, list):
        call = using.bind(*cast("list[object]", row))
    elif isinstance(row, dict):
        call = using.bind(**cast("dict[str, object]", row))
    else:
        raise BadArguments(f"{line.strip()[:60]} is neither a list of arguments nor an object of named ones")
    call.draft().seal()
    return call


def _send(app: App, chunk: list[Bound], before: int) -> int:
    try:
        return app.enqueue_many(chunk, chunk=CHUNK)
    except LanewayError as error:
        raise BulkError(f"{error.__cause__ or error}. {before:,} jobs were enqueued before", accepted=before) from None


def _nothing(_: int) -> None:
    """Where nobody looks there is no bar."""


@contextlib.contextmanager
def _progress(rows: TextIO) -> Generator[Callable[[int], None]]:
    """Show a bar where somebody looks, if it is known how much there is."""
    size = 0
    with contextlib.suppress(OSError, ValueError):
        size = os.fstat(rows.fileno()).st_size
    if not sys.stderr.isatty() or not size:
        yield _nothing
        return
    with click.progressbar(length=size, label="enqueueing", file=sys.stderr, show_pos=False) as bar:
        yield bar.update
