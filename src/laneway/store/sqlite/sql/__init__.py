"""The statements, one file each: `SQL["walk"]` is `walk.sql`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SQL"]


def _read(path: Path) -> str:
    """Return a statement without its comments."""
    lines = [line.partition("--")[0].rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    return "\n".join(filter(None, lines))


SQL = {path.stem: _read(path) for path in sorted(Path(__file__).parent.glob("*.sql"))}
