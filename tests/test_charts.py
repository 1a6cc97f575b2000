"""The charts of the documents: bars are as long as their figures say, and what is drawn can be read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


charts = load(ROOT / "bench" / "charts.py")


def drawn(rows: dict[str, dict[str, float]]) -> ET.Element:
    chart = charts.Chart("name", "A < B", [charts.Panel("seconds", rows)], "a note")
    return ET.fromstring(charts.draw(chart))  # noqa: S314 - it is our own


def bars(svg: ET.Element) -> list[float]:
    return [float(bar.attrib["width"]) for bar in svg.iter(f"{SVG}rect") if bar.attrib["height"] == str(charts.BAR - 2)]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8))
def test_bars_are_as_long_as_their_figures_say(values: list[float]) -> None:
    lengths = bars(drawn({f"row {place}": {"seconds": value} for place, value in enumerate(values)}))

    room = charts.WIDTH - charts.LABELS - charts.VALUES
    top = max(values) or 1.0
    assert lengths == pytest.approx([max(value / top * room, 1) for value in values], abs=0.06)


def test_everything_stays_inside_the_picture() -> None:
    svg = drawn({f"row {place}": {"Laneway": place, "Sidekiq": 2 * place} for place in range(20)})

    height = float(svg.attrib["height"])
    places = [float(part.attrib["y"]) for part in svg.iter() if "y" in part.attrib]
    ends = [float(part.attrib["x"]) + float(part.attrib["width"]) for part in svg.iter(f"{SVG}rect")]
    assert max(places) < height
    assert max(ends) < charts.WIDTH


def test_each_series_has_its_colour_and_is_named_once() -> None:
    svg = drawn({"25 slots": {"Laneway": 3, "Sidekiq": 2}, "100 slots": {"Laneway": 4}})

    colours = [bar.attrib["class"] for bar in svg.iter(f"{SVG}rect")]
    assert colours == ["s0", "s1", "s0", "s1", "s0"]
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert texts.count("Laneway") == texts.count("Sidekiq") == 1


def test_who_cannot_see_a_chart_can_hear_it() -> None:
    svg = drawn({"1 slot": {"seconds": 12.34}})

    assert svg.findtext(f"{SVG}title") == "A < B"
    assert svg.findtext(f"{SVG}desc") == "seconds: 1 slot seconds 12.3"


@pytest.mark.parametrize(("value", "text"), [(0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")])
def test_figures_have_three_digits_or_are_whole(value: float, text: str) -> None:
    assert charts.number(value) == text


def test_the_documents_have_the_charts_of_their_figures() -> None:
    folder = ROOT / "docs" / "charts"
    made = charts.charts(charts.json.loads((folder / "figures.json").read_text(encoding="utf-8")))

    assert {f"{chart.name}.svg": charts.draw(chart) for chart in made} == {
        path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")
    }
