"""Charts as SVG, in the colors of the page that shows them, light or dark.

```python
chart = Chart("Loss", x=linear_axis(0, 1000), y=linear_axis(0, 5, "nats per token"))
chart.line(points, "series-1")
chart.svg()
```

A report has some 20 charts and is written at the end of every run. Loading matplotlib alone would
take as long as a run whose steps are all cached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from rich.cells import cell_len

from schemas.redaction import escape_control_characters

Point = tuple[float, float]

WIDTH, HEIGHT = 288.0, 173.0
"""Size of a chart in pixels: about the width of a phone, so that its labels can be read there."""

NUM_SERIES = 6
"""Classes `series-1` to `series-6` of the style sheet. Other colors: `ink`, `muted`, `grid`."""

_FONT = 9.0
_CHARACTER = 0.55 * _FONT
"""Estimated width of a character."""

_MARGIN, _GAP = 8.0, 4.0
_MAX_TICKS = 6
_MAX_NAME = 22
_DASHES = 'stroke-dasharray="4 3"'


class Axis(NamedTuple):
    """Range of values from the left to the right, or from the bottom to the top."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    """Values with their labels."""

    label: str = ""
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value is: 0 at the start of the axis, 1 at its end."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


def linear_axis(low: float, high: float, label: str = "") -> Axis:
    """Return an axis with about five round ticks."""
    high = high if high > low else low + 1.0
    size = 10.0 ** math.floor(math.log10((high - low) / _MAX_TICKS))
    step = next(n * size for n in (1, 2, 5, 10) if (high - low) / (n * size) <= _MAX_TICKS)
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    return Axis(
        low, high, [(number * step, format_tick(number * step)) for number in numbers], label
    )


def log_axis(low: float, high: float, label: str = "") -> Axis:
    """Return a logarithmic axis of positive values; its ticks are 1, 2, 5 times a power of 10."""
    high = high if high > low else 2.0 * low
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) < 2:
        ticks = [tick for tick, _ in linear_axis(low, high).ticks]
    if len(ticks) > _MAX_TICKS:
        ticks = [tick for tick in ticks if math.log10(tick).is_integer()]
    return Axis(low, high, [(tick, format_tick(tick)) for tick in ticks], label, is_log=True)


def row_axis(names: Sequence[str]) -> Axis:
    """Return a vertical axis with named rows at 0, 1, 2, ..., the first at the top."""
    labels = [(float(row), shorten_name(name)) for row, name in enumerate(names)]
    return Axis(len(names) - 0.4, -0.6, labels)


class Chart:
    """Marks between two axes. Colors are classes of the style sheet."""

    def __init__(
        self, title: str, *, x: Axis, y: Axis, height: float = HEIGHT, has_rows: bool = False
    ) -> None:
        """Draw the axes.

        Args:
            title: What the chart shows, for readers who do not see it.
            x, y: Horizontal and vertical axis.
            height: Height in pixels.
            has_rows: Whether scores go to the right: grid lines are vertical.
        """
        self._title, self._x, self._y, self._height = title, x, y, height
        widest = max((cell_len(label) for _, label in y.ticks), default=0)
        self._left = _GAP + widest * _CHARACTER
        self._top = _FONT + _MARGIN if y.label else _MARGIN
        self._bottom = height - _FONT - _MARGIN - (_FONT + _GAP if x.label else 0.0)
        self._marks: list[str] = []
        self._draw_axes(has_rows=has_rows)

    def line(self, points: Sequence[Point], color: str, *, width: float = 1.6) -> None:
        """Connect points."""
        path = " ".join(f"{self._at(point)}" for point in points)
        self._add(color, f'<polyline points="{path}" fill="none" stroke-width="{width:g}"/>')

    def band(self, points: Sequence[tuple[float, float, float]], color: str) -> None:
        """Fill the area between two lines; points are (x, low, high)."""
        edge = [(x, high) for x, _, high in points] + [(x, low) for x, low, _ in reversed(points)]
        path = " ".join(map(self._at, edge))
        self._add(color, f'<polygon points="{path}" stroke="none" opacity="0.2"/>')

    def bars(self, bars: Iterable[tuple[float, float, float]], color: str) -> None:
        """Draw bars from the bottom; each is (start, end, height)."""
        for start, end, value in bars:
            left, right, top = self._px(start), self._px(end), self._py(value)
            gap = 0.04 * (right - left)
            self._add(
                color,
                f'<rect x="{left + gap:.1f}" y="{top:.1f}" width="{right - left - 2 * gap:.1f}" '
                f'height="{self._bottom - top:.1f}" stroke="none"/>',
            )

    def dots(self, points: Iterable[Point], color: str, *, radius: float = 3.0) -> None:
        """Draw a dot at each point."""
        for x, y in points:
            center = f'cx="{self._px(x):.1f}" cy="{self._py(y):.1f}"'
            self._add(color, f'<circle {center} r="{radius:g}" class="outlined"/>')

    def segment(
        self, start: Point, end: Point, color: str, *, width: float = 1.4, is_dashed: bool = False
    ) -> None:
        """Draw a straight line between two points."""
        (x1, y1), (x2, y2) = ((self._px(x), self._py(y)) for x, y in (start, end))
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        dashes = f" {_DASHES}" if is_dashed else ""
        self._add(color, f'<line {ends} stroke-width="{width:g}"{dashes}/>')

    def vertical(self, x: float, color: str) -> None:
        """Draw a dashed line over the whole height."""
        self.segment((x, self._y.low), (x, self._y.high), color, width=1.2, is_dashed=True)

    def horizontal(self, y: float, color: str) -> None:
        """Draw a dashed line over the whole width."""
        self.segment((self._x.low, y), (self._x.high, y), color, width=1.0, is_dashed=True)

    def svg(self) -> str:
        """Return the chart as an `<svg>` element."""
        label = escape(escape_control_characters(self._title))
        size = (
            f'width="{WIDTH:g}" height="{self._height:g}" viewBox="0 0 {WIDTH:g} {self._height:g}"'
        )
        marks = "\n".join(self._marks)
        return f'<svg class="plot" {size} role="img" aria-label="{label}">\n{marks}\n</svg>'

    def _draw_axes(self, *, has_rows: bool) -> None:
        for value, label in self._x.ticks:
            x = self._px(value)
            if has_rows:
                self.segment((value, self._y.low), (value, self._y.high), "grid", width=1.0)
            self._text(x, self._bottom + _FONT + _GAP, label, anchor="middle")
        for value, label in self._y.ticks:
            if not has_rows:
                self.segment((self._x.low, value), (self._x.high, value), "grid", width=1.0)
            self._text(self._left - _GAP, self._py(value) + _FONT / 3, label, anchor="end")
        low = self._y.low
        self.segment((self._x.low, low), (self._x.high, low), "muted", width=1.0)
        self._text(0.0, _FONT, self._y.label)
        self._text(WIDTH - _MARGIN, self._height - _GAP, self._x.label, anchor="end")

    def _text(self, x: float, y: float, text: str, *, anchor: str = "start") -> None:
        if text:
            position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
            self._marks.append(f"<text {position}>{escape(escape_control_characters(text))}</text>")

    def _add(self, color: str, element: str) -> None:
        self._marks.append(f'<g class="{color}">{element}</g>')

    def _px(self, x: float) -> float:
        return self._left + self._x.share(x) * (WIDTH - _MARGIN - self._left)

    def _py(self, y: float) -> float:
        return self._bottom - self._y.share(y) * (self._bottom - self._top)

    def _at(self, point: Point) -> str:
        return f"{self._px(point[0]):.1f},{self._py(point[1]):.1f}"


def shorten_name(name: str) -> str:
    """Return a name as the label of a row, without control characters."""
    label = escape_control_characters(name)
    return label if len(label) <= _MAX_NAME else f"{label[: _MAX_NAME - 1]}…"


def format_tick(value: float) -> str:
    """Return a number in few characters.

    >>> format_tick(0.5), format_tick(1000), format_tick(50_000), format_tick(2_000_000)
    ('0.5', '1,000', '50 k', '2 M')
    """
    for minimum, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= minimum:
            return f"{value / size:.4g} {unit}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
