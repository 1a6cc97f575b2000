"""What the benchmarks share: alternating rounds, medians, and a table.

These figures are ratios inside one run: machines are noisy, so both sides take turns and medians are compared.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["Table", "alternate", "compare", "folder", "judge", "percentile", "rate"]

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


def compare(
    title: str, rows: Mapping[str, Callable[[], float]], beside: Mapping[str, str], rounds: int = ROUNDS
) -> dict[str, float]:
    """Let rows take turns; show the median of each, divided by those of some of them: `beside` has columns and their rows."""
    figures = dict(zip(rows, alternate(*rows.values(), rounds=rounds), strict=True))
    table = Table(title, "", "per second", *beside)
    for name, figure in figures.items():
        table.row(name, figure, *(figure / figures[base] for base in beside.values()))
    return figures


def judge(what: str, figure: float, *, least: float | None = None, most: float | None = None) -> None:
    """Say whether a figure is as good as it has to be."""
    met = figure >= least if least is not None else most is not None and figure <= most
    bar = f"at least {least:g}" if least is not None else f"at most {most:g}"
    print(f"    {what}: {figure:,.2f}, {bar}: {'met' if met else 'NOT MET'}", flush=True)
