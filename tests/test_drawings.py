"""The drawings of the documents: what is drawn stays where it can be read, and the files are those of the script."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from workbench import load

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


drawings = load(ROOT / "scripts" / "drawings.py")
ALL = {drawing.name: drawing for drawing in drawings.DRAWINGS}


def test_the_documents_have_the_drawings_of_the_script() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert files == {name: drawings.draw(drawing) for name, drawing in ALL.items()}


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_is_used_and_told_in_words(name: str) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    assert sum(f"](images/{name}.svg)" in page for page in pages) == 1

    svg = ET.fromstring(drawings.draw(ALL[name]))  # noqa: S314 - it is our own
    told = svg.findtext(f"{SVG}desc") or ""
    assert all(panel.title in told and panel.end in told for panel in ALL[name].panels)


@pytest.mark.parametrize("name", ALL)
def test_a_text_fits_where_it_stands(name: str) -> None:
    for panel in ALL[name].panels:
        for step in panel.steps:
            assert drawings.wide(step.text) <= room(panel, step), step.text
        assert drawings.wide(panel.end) * 1.1 <= drawings.PANEL, "it is bold"


def room(panel: Any, step: Any) -> float:
    """Return how wide a step's text may be: as its arrow, or as the panel from its actor on."""
    if isinstance(step, drawings.Say):
        length = float(abs(panel.place(step.who) - panel.place(step.whom)))
        return length / 2 if isinstance(step, drawings.Lost) else length
    if isinstance(step, drawings.Kill):
        place = float(panel.place(step.who))
        return (place if step.who == panel.actors[-1] else drawings.PANEL - place) - 14
    return float(drawings.PANEL - 14)
