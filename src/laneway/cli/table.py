"""Tables: painted on a terminal, plain elsewhere.

On a terminal a table fits the window: an empty column is left out, and long cells are cut, names in the middle
and texts at the end. Elsewhere every column is there and nothing is cut: programs read it.

Enters: columns and rows.  Leaves: lines on stdout.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import click

from laneway.cli.show import wants_colour
from laneway.logs import visible
from laneway.present.words import ago, clip, clip_name

__all__ = ["PHASE_COLOURS", "STATE_COLOURS", "Cell", "Column", "aligned", "moment", "print_table"]

#: The least characters of a cell that is cut.
NARROW = 10

STATE_COLOURS = {
    "scheduled": "cyan",
    "ready": "blue",
    "retrying": "yellow",
    "blocked": "magenta",
    "running": "green",
    "dead": "red",
    "halted": "red",
    "done": "green",
    "cancelled": "magenta",
}
PHASE_COLOURS = {"working": "green", "quiet": "yellow", "stopping": "red"}


class Column(NamedTuple):
    """A column."""

    name: str
    right: bool = False  #: numbers are aligned to the right
    whole: bool = False  #: its cells are never cut: they are copied, or short
    spare: int = 0  #: where a window is too narrow, columns are left out: 1 first
    wish: int = 0  #: rather than to be narrower than this, it wants others to be left out
    names: bool = False  #: what is cut is cut in the middle


class Cell(NamedTuple):
    """A cell with a colour, or with other words on a terminal."""

    text: str
    colour: str = ""
    short: str = ""  #: what a terminal shows instead


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], *, empty: str) -> None:
    """Print a table, or say in words that it is empty."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    if not rows:
        click.echo(empty, err=not sys.stdout.isatty())
    elif sys.stdout.isatty():
        _paint(columns, cells)
    else:
        texts = [[cell.text for cell in row] for row in cells]
        click.echo("\n".join(aligned([column.name for column in columns], texts, [column.right for column in columns])))


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Align columns; a cell is never empty, so that words can be counted."""
    whole = [list(head), *([_one_line(cell) or "-" for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if side else cell.ljust(width) for cell, width, side in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in whole
    ]


def _paint(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    shown = [[_one_line(cell.short or cell.text) for cell in row] for row in rows]
    widths = _fit(columns, shown, shutil.get_terminal_size().columns)
    head = [click.style(_placed(column.name, width, column), bold=True) for column, width in zip(columns, widths, strict=True)]
    lines = [head]
    for row, texts in zip(rows, shown, strict=True):
        placed = [_placed(text, width, column) for text, width, column in zip(texts, widths, columns, strict=True)]
        lines.append([click.style(text, fg=cell.colour) if cell.colour else text for text, cell in zip(placed, row, strict=True)])
    used = [number for number, width in enumerate(widths) if width]
    colour = wants_colour(sys.stdout)
    for line in lines:
        click.echo("  ".join(line[number] for number in used), color=colour)


def _fit(columns: Sequence[Column], shown: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return how wide each column is: as its cells need, narrower or 0 if there is no room."""
    natural = [max(len(row[number]) for row in shown) for number in range(len(columns))]
    widths = [max(width, len(column.name)) if width else 0 for width, column in zip(natural, columns, strict=True)]
    least = [width if column.whole else min(width, NARROW) for width, column in zip(widths, columns, strict=True)]
    spare = sorted((number for number, column in enumerate(columns) if column.spare), key=lambda number: columns[number].spare)
    wished = [max(low, min(width, column.wish)) for low, width, column in zip(least, widths, columns, strict=True)]
    while spare and _total(wished) > room:
        number = spare.pop(0)
        widths[number] = least[number] = wished[number] = 0
    while _total(widths) > room and (loose := [number for number in range(len(widths)) if widths[number] > least[number]]):
        widest = max(loose, key=lambda number: widths[number])
        widths[widest] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    used = [width for width in widths if width]
    return sum(used) + 2 * (len(used) - 1)


def _placed(text: str, width: int, column: Column) -> str:
    if column.right and len(text) <= width:
        return text.rjust(width)
    return (clip_name if column.names else clip)(text, width)


def _one_line(text: str) -> str:
    return " ".join(visible(text.strip()).split())


# -- times -------------------------------------------------------------------------------------------------------


def moment(then: datetime | None, colour: str = "bright_black") -> Cell:
    """Return a moment as a cell: exact for programs, how far it is for people."""
    return Cell("") if then is None else Cell(then.isoformat(timespec="milliseconds"), colour, ago(then))
