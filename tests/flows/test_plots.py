"""Charts as SVG: round ticks, marks within the axes, colors of the page, escaped text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from flows.plots import HEIGHT, WIDTH, Axis, Chart, linear_axis, log_axis, row_axis

HOSTILE = '</text><script>alert(1)</script>"&\x1b[31m'


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 5, ["0", "1", "2", "3", "4", "5"]),
        (0, 1000, ["0", "200", "400", "600", "800", "1,000"]),
        (-30, 100, ["0", "50", "100"]),
        (0.31, 0.36, ["0.31", "0.32", "0.33", "0.34", "0.35", "0.36"]),
        (0, 2_600_000, ["0", "500 k", "1 M", "1.5 M", "2 M", "2.5 M"]),
        (7, 7, ["7", "7.2", "7.4", "7.6", "7.8", "8"]),
    ],
)
def test_linear_axis_has_few_round_ticks(low: float, high: float, labels: list[str]) -> None:
    axis = linear_axis(low, high)
    assert [label for _, label in axis.ticks] == labels
    assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value, _ in axis.ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1, 100, ["1", "10", "100"]),
        (3, 60, ["5", "10", "20", "50"]),
        (0.05, 160, ["0.1", "1", "10", "100"]),
        (1.3, 4.1, ["2"]),
    ],
)
def test_log_axis_has_ticks_of_1_2_5_or_powers_of_10(
    low: float, high: float, labels: list[str]
) -> None:
    axis = log_axis(low, high)
    shown = [label for _, label in axis.ticks]
    assert set(labels) <= set(shown)
    assert 2 <= len(shown) <= 7
    middle = (low * high) ** 0.5
    assert axis.share(middle) == pytest.approx(0.5)


def draw(x: Axis, y: Axis, title: str = "a title") -> str:
    chart = Chart(title, x=x, y=y, has_rows=True)
    corners = [(x.low, y.low), (x.high, y.high)]
    chart.line(corners, "series-1")
    chart.dots(corners, "series-2")
    chart.bars([(x.low, x.high, y.high)], "series-3")
    chart.band([(x.low, y.low, y.high), (x.high, y.low, y.high)], "series-4")
    chart.vertical(x.low, "muted")
    chart.horizontal(y.high, "ink")
    return chart.svg()


@pytest.mark.parametrize(
    "y",
    [linear_axis(-3, 9, "nats"), log_axis(0.01, 5e6), row_axis(["cola", HOSTILE, "名前" * 20])],
    ids=["linear", "log", "rows"],
)
def test_marks_stay_in_the_chart_and_texts_cannot_act_as_markup(y: Axis) -> None:
    svg = draw(linear_axis(0, 100, HOSTILE), y, HOSTILE)
    root = ElementTree.fromstring(svg)
    tags = {element.tag for element in root.iter()}
    assert tags == {"svg", "g", "text", "line", "rect", "circle", "polygon", "polyline"}
    assert "\x1b" not in svg
    for element in root.iter():
        for name, size in (("x", WIDTH), ("x1", WIDTH), ("cx", WIDTH), ("y1", HEIGHT)):
            assert 0 <= float(element.get(name, 0)) <= size
        for point in element.get("points", "").split():
            assert all(-4 <= float(value) <= WIDTH for value in point.split(","))


def test_colors_are_those_of_the_page() -> None:
    svg = draw(linear_axis(0, 1), linear_axis(0, 1))
    assert not re.search(r"#[0-9a-fA-F]{3}|rgb|(?:fill|stroke)=\"(?!none)", svg)
    assert set(re.findall(r'<g class="([a-z]+)', svg)) == {"series", "ink", "muted", "grid"}
    assert svg == draw(linear_axis(0, 1), linear_axis(0, 1))
