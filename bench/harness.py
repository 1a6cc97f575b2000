"""What the benchmarks share: alternating rounds, medians, and a table.

These figures are ratios inside one run: machines are noisy, so both sides take turns and medians are compared.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["Table", "alternate", "folder", "percentile", "rate"]

ROUNDS = 5


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Give a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="laneway-bench-") as name:
        yield Path(name)


def rate(number: int, work: Callable[[], object]) -> float:
    """Return how many per second."""
    start = time.perf_counter()
    work()
    return number / (time.perf_counter() - start)


def alternate(*sides: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """Let the sides take turns and return the median of each."""
    figures: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for figure, side in zip(figures, sides, strict=True):
            figure.append(side())
    return [statistics.median(figure) for figure in figures]


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Table:
    """Prints rows as they come."""

    def __init__(self, title: str, *columns: str) -> None:
        self._width = [max(14, len(column) + 2) for column in columns]
        print(f"\n{title}")
        self.row(*columns)

    def row(self, *cells: object) -> None:
        """Print one row; numbers get separators."""
        texts = [
            f"{cell:,.2f}" if isinstance(cell, float) and cell < 100 else f"{cell:,.0f}" if isinstance(cell, float) else str(cell)
            for cell in cells
        ]
        first, *rest = texts
        print(
            f"  {first:<44}" + "".join(f"{text:>{width}}" for text, width in zip(rest, self._width[1:], strict=False)), flush=True
        )
