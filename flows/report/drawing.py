"""Small diagrams as SVG; the page's style sheet gives them their colours, light or dark.

A diagram is about as wide as a phone, so that its letters can be read there; a page sets diagrams
side by side where it has room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from schemas.disclosure import visible

_WIDTH, _HEIGHT = 288.0, 173.0
_LETTER, _LINE = 6.1, 11.0
"""Width and height of a letter."""

_MOST_LETTERS = 22
_MOST_TICKS = 6
_SHAPES = {
    "triangle": "M{x:.1f} {y:.1f}m0 -4.6l4.3 7.7h-8.6z",
    "diamond": "M{x:.1f} {y:.1f}m0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
}

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What an axis reaches over; `low` may be the higher number, to count downwards or leftwards.

    >>> [text for _, text in Axis(low=0, high=50_000).ticks()]
    ['0', '10 k', '20 k', '30 k', '40 k', '50 k']
    >>> [text for _, text in Axis(low=3, high=2500, is_log=True).ticks()]
    ['10', '100', '1,000']
    """

    low: float
    high: float
    label: str = ""
    is_log: bool = False
    names: tuple[str, ...] = ()
    """Stand at 0, 1, 2, ..., and no numbers do."""

    @classmethod
    def around(
        cls, values: Sequence[float], *, label: str = "", least: float = 0, from_zero: bool = False
    ) -> Axis:
        """An axis with some room around all values, which reaches over `least` if they do not."""
        low, high = (0.0 if from_zero else min(values)), max(values)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        low, high = (low if from_zero else low - room), high + room
        if (missing := least - (high - low)) > 0:
            low, high = low - missing / 2, high + missing / 2
        return cls(low=low, high=high, label=label)

    def share(self, value: float) -> float:
        """Where a value is: 0 at `low`, 1 at `high`, neither less nor more."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Values to be marked, and what is written there."""
        if self.names:
            return [(number, _short(name)) for number, name in enumerate(self.names)]
        values = self._decades() if self.is_log else []
        if len(values) < 2:
            step = _round_step((self.high - self.low) / _MOST_TICKS)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            values = [n * step for n in range(first, last + 1) if n or not self.is_log]
        return [(value, number_text(value)) for value in values]

    def _decades(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that is no less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def _short(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"


class Plot:
    """A diagram; what is drawn later lies above."""

    def __init__(self, x: Axis, y: Axis, *, height: float = _HEIGHT) -> None:
        self._x, self._y, self._height = x, y, height
        widest = max((len(text) for _, text in y.ticks()), default=0)
        self._left = widest * _LETTER + (_LINE + 6 if y.label else 3)
        self._right, self._top, self._bottom = _WIDTH - 8, 6.0, height - _LINE - 6
        self._parts: list[str] = []

    def bars(self, edges: Sequence[float], heights: Iterable[float], *, look: str) -> None:
        """A bar from each edge to nearly the next."""
        floor = self._place(edges[0], self._y.low)[1]
        path = ""
        for start, end, height in zip(edges, edges[1:], heights, strict=False):
            left, top = self._place(start, height)
            right = left + 0.92 * (self._place(end, height)[0] - left)
            if top < floor:
                path += f"M{left:.1f} {floor:.1f}V{top:.1f}H{right:.1f}V{floor:.1f}z"
        self._parts.append(f'<path class="bars {look}" d="{path}"/>')

    def line(self, points: Iterable[Point], *, look: str) -> None:
        """A line through points."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._place(*point) for point in points))
        self._parts.append(f'<polyline class="line {look}" points="{places}"/>')

    def band(self, low: Iterable[Point], high: Iterable[Point], *, look: str) -> None:
        """The area between two lines."""
        edge = [*(self._place(*p) for p in low), *reversed([self._place(*p) for p in high])]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in edge) + "z"
        self._parts.append(f'<path class="band {look}" d="{path}"/>')

    def dots(self, points: Iterable[Point], *, look: str, shape: str = "") -> None:
        """A mark at each point: a dot, or a `triangle` or `diamond`."""
        for x, y in (self._place(*point) for point in points):
            if shape:
                mark = f'<path class="dot {look}" d="{_SHAPES[shape].format(x=x, y=y)}"/>'
            else:
                mark = f'<circle class="dot {look}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
            self._parts.append(mark)

    def upright(self, x: float, *, look: str) -> None:
        """A vertical line from bottom to top."""
        self.line([(x, self._y.low), (x, self._y.high)], look=look)

    def level(self, y: float, *, look: str) -> None:
        """A horizontal line from side to side."""
        self.line([(self._x.low, y), (self._x.high, y)], look=look)

    def svg(self, *, name: str, title: str, description: str) -> str:
        """An `<svg>` element without size, to be set in a page.

        Args:
            name: letters, digits and dashes, unique in a page: the ids in the SVG begin with it.
            title: what it shows, for those who do not see it.
            description: what there is to be seen.
        """
        return "\n".join(
            [
                f'<svg class="plot" viewBox="0 0 {_WIDTH:g} {self._height:g}" role="img" '
                f'aria-labelledby="{name}-title {name}-desc">',
                f'<title id="{name}-title">{_escaped(title)}</title>',
                f'<desc id="{name}-desc">{_escaped(description)}</desc>',
                *self._across(),
                *self._upwards(),
                *self._parts,
                "</svg>",
            ]
        )

    def _place(self, x: float, y: float) -> Point:
        return (
            self._left + self._x.share(x) * (self._right - self._left),
            self._bottom - self._y.share(y) * (self._bottom - self._top),
        )

    def _across(self) -> list[str]:
        """The horizontal axis, and lines of a grid at its marks where rows have names."""
        axis, grid, texts = f"M{self._left:.1f} {self._bottom:.1f}H{self._right:g}", "", []
        for value, text in self._x.ticks():
            x = self._place(value, self._y.low)[0]
            axis += f"M{x:.1f} {self._bottom:.1f}v3"
            grid += f"M{x:.1f} {self._bottom:.1f}V{self._top:g}"
            texts.append(_text(x, self._bottom + _LINE + 2, text, "middle"))
        lines = [("grid", grid), ("axis", axis)] if self._y.names else [("axis", axis)]
        return [*(f'<path class="{look}" d="{path}"/>' for look, path in lines), *texts]

    def _upwards(self) -> list[str]:
        """The vertical axis, and lines of a grid at its marks."""
        grid, texts = "", []
        for value, text in self._y.ticks():
            y = self._place(self._x.low, value)[1]
            grid += f"M{self._left:.1f} {y:.1f}H{self._right:g}"
            texts.append(_text(self._left - 4, y + 3.4, text, "end"))
        if self._y.label:
            middle = (self._top + self._bottom) / 2
            turned = f' transform="rotate(-90 {_LINE - 2:g} {middle:.1f})"'
            texts.append(_text(_LINE - 2, middle, self._y.label, "middle", turned))
        return [f'<path class="grid" d="{grid}"/>', *texts]


def _text(x: float, y: float, text: str, anchor: str, turned: str = "") -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}'
    return f"<text {at}>{_escaped(text)}</text>"


def _escaped(text: str) -> str:
    return escape(visible(text))


def number_text(value: float) -> str:
    """A number in few letters.

    >>> number_text(0.5), number_text(1000), number_text(50_000), number_text(2_000_000)
    ('0.5', '1,000', '50 k', '2 M')
    """
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:.4g} {unit}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
