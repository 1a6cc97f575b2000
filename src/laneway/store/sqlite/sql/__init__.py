"""The statements, by their names: `SQL["walk"]` begins in `jobs.sql` with `-- walk: …`."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["SQL"]

_NAMED = re.compile(r"^-- ([a-z_]+)(?:\.sql)?: ", re.MULTILINE)


def _read(path: Path) -> dict[str, str]:
    """Return a file's statements without their comments. What comes first is named as the file."""
    _, *named = _NAMED.split(path.read_text(encoding="utf-8"))
    found = dict(zip(named[::2], map(_without_comments, named[1::2]), strict=True))
    return {name: statement for name, statement in found.items() if statement}


def _without_comments(text: str) -> str:
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()[1:]]  # the first goes on after the name
    return "\n".join(filter(None, lines))


SQL = {name: statement for path in sorted(Path(__file__).parent.glob("*.sql")) for name, statement in _read(path).items()}
