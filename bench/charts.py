"""Draws the charts of the documents: plain SVG, horizontal bars, from the figures that the benchmarks wrote.

FIGURES=docs/charts/figures.json make bench ARGS="redis_slots redis_mixed cores footprint"
python bench/charts.py

A chart has panels, a panel has rows, a row has a bar for each series. The longest bar of a panel fills it: panels may have
different units. Colours follow the reader's: light, or dark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["Chart", "Panel", "charts", "draw", "number"]

FOLDER = Path(__file__).parent.parent / "docs" / "charts"
WIDTH, LABELS, VALUES = 720, 190, 80
BAR, GAP, HEAD = 15, 9, 34
WORDS = {"1": "one process", "2": "two processes"}
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.panel { font-weight: 600 }
.note { fill: #57606a; font-size: 12px }
.axis { stroke: #afb8c1 }
.s0 { fill: #2f6fb5 } .s1 { fill: #c9821b } .s2 { fill: #6e7781 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9da7b3 }
  .axis { stroke: #57606a }
  .s0 { fill: #58a6ff } .s1 { fill: #e3a04b } .s2 { fill: #8b949e }
}
"""


@dataclass(frozen=True)
class Panel:
    """Rows that are compared: label → series → value."""

    title: str
    rows: Mapping[str, Mapping[str, float]]

    @property
    def top(self) -> float:
        """The value that fills the panel."""
        return max((value for row in self.rows.values() for value in row.values()), default=0.0) or 1.0

    @property
    def height(self) -> int:
        """Its height, with its title."""
        return HEAD + sum(len(row) * BAR + GAP for row in self.rows.values())


@dataclass(frozen=True)
class Chart:
    """A file of the documents."""

    name: str
    title: str
    panels: Sequence[Panel]
    note: str = ""


def number(value: float) -> str:
    """Return a figure as one reads it: three digits, or whole with separators."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(chart: Chart) -> str:
    """Return a chart as SVG."""
    series = list(dict.fromkeys(name for panel in chart.panels for row in panel.rows.values() for name in row))
    parts: list[str] = [_text(0, 18, chart.title, "title")]
    y = 30
    if len(series) > 1:
        y += 16
        x = 0
        for place, name in enumerate(series):
            parts += [f'<rect class="s{place}" x="{x}" y="{y - 11}" width="12" height="12" rx="2"/>', _text(x + 18, y, name)]
            x += 36 + 8 * len(name)
    for panel in chart.panels:
        parts += _panel(panel, y, series)
        y += panel.height
    if chart.note:
        y += 22
        parts.append(_text(0, y, chart.note, "note"))
    height = y + 12
    said = "; ".join(_said(panel) for panel in chart.panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">\n'
        f"<title>{escape(chart.title)}</title>\n<desc>{escape(said)}</desc>\n<style>{STYLE}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _panel(panel: Panel, y: int, series: Sequence[str]) -> list[str]:
    parts = [_text(0, y + HEAD - 10, panel.title, "panel")]
    room = WIDTH - LABELS - VALUES
    begin, y = y + HEAD, y + HEAD
    for label, row in panel.rows.items():
        parts.append(_text(LABELS - 10, y + len(row) * BAR // 2 + 5, label, anchor="end"))
        for name, value in row.items():
            length = max(value / panel.top * room, 1)
            colour = f"s{series.index(name)}"
            parts.append(f'<rect class="{colour}" x="{LABELS}" y="{y + 1}" width="{length:.1f}" height="{BAR - 2}" rx="2"/>')
            parts.append(_text(round(LABELS + length + 6), y + 12, number(value)))
            y += BAR
        y += GAP
    parts.append(f'<line class="axis" x1="{LABELS}" x2="{LABELS}" y1="{begin - 3}" y2="{y - GAP + 3}"/>')
    return parts


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "") -> str:
    more = f' class="{kind}"' * bool(kind) + f' text-anchor="{anchor}"' * bool(anchor)
    return f'<text x="{x}" y="{y}"{more}>{escape(text)}</text>'


def _said(panel: Panel) -> str:
    """Return a panel in words, for those who cannot see it."""
    rows = (
        f"{label} {' and '.join(f'{name} {number(value)}' for name, value in row.items())}" for label, row in panel.rows.items()
    )
    return f"{panel.title}: {', '.join(rows)}"


def charts(figures: Mapping[str, Any]) -> list[Chart]:
    """Return the charts that can be drawn from what was measured."""
    made: list[Chart] = []
    if "redis_slots" in figures:
        titles = {"noop": "jobs that do nothing", "cpu": "jobs that compute for 15 ms", "io": "jobs that wait for 0.5 s"}
        panels = [Panel(titles[kind], rows) for kind, rows in figures["redis_slots"].items()]
        made.append(Chart("slots", "Jobs per second, by slots and processes", panels, "More is better. Two cores, Redis."))
    if "redis_mixed" in figures:
        panels = [
            Panel(WORDS[processes], {row: {"seconds": each["seconds"]} for row, each in rows.items()})
            for processes, rows in figures["redis_mixed"].items()
        ]
        made.append(Chart("mixed", "Three kinds of jobs at once, 25 slots: seconds", panels, "Less is better. Two cores, Redis."))
    if "cores" in figures:
        rows = {"bare processes": {"gain": figures["cores"]["bare"]}, "Laneway": {"gain": figures["cores"]["Laneway"]}}
        made.append(Chart("cores", "What a second process gains for jobs that compute", [Panel("times as fast", rows)]))
    if "footprint" in figures:
        panels = [Panel("MiB of PSS", figures["footprint"])]
        note = "A fleet: supervisor, zygote and workers. On SQLite; Sidekiq without Rails."
        made.append(Chart("memory", "Memory, by slots and processes", panels, note))
    return made


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "figures.json"
    for each in charts(json.loads(source.read_text())):
        (FOLDER / f"{each.name}.svg").write_text(draw(each))
        print(FOLDER / f"{each.name}.svg")
