"""Statements by their names: `walk` begins in `statements/jobs.sql` with `-- walk: …`.

Values are named, `:queue`; `$running` and other words (`rows.WORDS`) are replaced here. Words in braces are for the caller.

A database may override a shared statement. `Turn.change` returns how many rows were inserted, deleted or matched: 0 for one that
was there already. `Turn.change_many` gives values by order, so an override has those of the shared statement in the same order; a
value that is named twice is two values. A `$` is written `$$`. Where `text` or `select` read a statement, braces are those of
`str.format`. A colon before a small letter begins a value (write `cast`, not `::`), and `--` a comment, in strings too. `InOrder`
makes `?` or `$1` of values.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from string import Template
from typing import Any

from laneway.store.sql.rows import WORDS

__all__ = ["SHARED", "InOrder", "load"]

#: Where the statements are that all SQL stores share.
SHARED = Path(__file__).parent / "statements"

_NAMED = re.compile(r"^-- ([a-z0-9_]+)(?:\.sql)?: ", re.MULTILINE)
_VALUE = re.compile(r":([a-z_]+)")


def load(*folders: Path) -> dict[str, str]:
    """Return the statements of some folders; of two with the same name, the last folder's."""
    files = [path for folder in folders for path in sorted(folder.glob("*.sql"))]
    return {name: statement for path in files for name, statement in _read(path).items()}


class InOrder:
    """A statement whose values come in the order of the text: a driver binds those faster than named ones."""

    def __init__(self, statement: str, *, numbered: bool = False) -> None:
        self.names: list[str] = _VALUE.findall(statement)
        numbers = itertools.count(1)
        self.text = _VALUE.sub(lambda _: f"${next(numbers)}" if numbered else "?", statement)
        self.pick: Callable[[dict[str, Any]], Sequence[Any]] = itemgetter(*self.names) if len(self.names) > 1 else _all_of


def _all_of(values: dict[str, Any]) -> Sequence[Any]:
    return tuple(values.values())


def _read(path: Path) -> dict[str, str]:
    """Return a file's statements without their comments. The first one has the name of the file."""
    _, *named = _NAMED.split(path.read_text(encoding="utf-8"))
    found = dict(zip(named[::2], map(_without_comments, named[1::2]), strict=True))
    return {name: Template(statement).substitute(WORDS) for name, statement in found.items() if statement}


def _without_comments(text: str) -> str:
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()[1:]]  # the first goes on after the name
    return "\n".join(filter(None, lines))
