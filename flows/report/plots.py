"""Charts as SVG, drawn by matplotlib. The page's style sheet gives their colors, light or dark.

A chart is about as wide as a phone, so that its labels can be read there. A page sets charts side
by side where it has room.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from schemas.redaction import escape_control_characters

if TYPE_CHECKING:
    from matplotlib.axis import Axis as MplAxis

Point = tuple[float, float]

_WIDTH, _HEIGHT = 288.0, 173.0
_POINTS_PER_INCH = 72.0
_MAX_NAME = 22
_COLORS = {
    "series-1": "#000001",
    "series-2": "#000002",
    "series-3": "#000003",
    "series-4": "#000004",
    "ink": "#000005",
    "muted": "#000006",
    "grid": "#000007",
    "surface": "#000008",
}
"""Placeholders for the variables of the style sheet: `#000001` becomes `var(--series-1)`."""

_RC: Any = {
    "axes.linewidth": 1.0,
    "font.size": 9.0,
    "svg.fonttype": "none",
    "text.parse_math": False,
}
_LINE_STYLES = {"dashed": (0, (4, 3)), "dotted": (0, (1, 3))}
_ID = re.compile(r'(?<=\bid=")|(?<=url\(#)|(?<=href="#)')
_UNWANTED = re.compile(
    r"<metadata>.*?</metadata>\s*|<defs>\s*<style.*?</defs>\s*|font-family: [^;]*; ", re.DOTALL
)
"""Metadata, styles that would apply to the whole page, and fonts: text has the page's font."""
_COLOR = re.compile("|".join(_COLORS.values()))
_VARIABLES = {color: f"var(--{name})" for name, color in _COLORS.items()}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Range of an axis. `low` can be the larger number: the axis then counts down."""

    low: float
    high: float
    label: str = ""
    is_log: bool = False
    names: tuple[str, ...] = ()
    """Labels at 0, 1, 2, ... instead of numbers."""

    @classmethod
    def around(
        cls, values: Sequence[float], *, label: str = "", least: float = 0, from_zero: bool = False
    ) -> Axis:
        """Return an axis with some room around all values that spans at least `least`."""
        low, high = (0.0 if from_zero else min(values)), max(values)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        low, high = (low if from_zero else low - room), high + room
        if (missing := least - (high - low)) > 0:
            low, high = low - missing / 2, high + missing / 2
        return cls(low=low, high=high, label=label)


class Plot:
    """A chart. Later marks are drawn above earlier ones.

    A `look` is a color (`series-1` to `series-4`, `ink`, `muted`), `dashed`, `dotted` or `hollow`,
    or several of them.
    """

    def __init__(self, x: Axis, y: Axis, *, height: float = _HEIGHT) -> None:
        """Prepare the axes; `height` is in pixels."""
        import matplotlib as mpl  # not loaded by reports whose charts are all in the store
        from matplotlib.figure import Figure

        self._x, self._y, self._height = x, y, height
        size = (_WIDTH / _POINTS_PER_INCH, height / _POINTS_PER_INCH)
        with mpl.rc_context(_RC):
            self._figure = Figure(figsize=size, layout="constrained")
            self._axes = self._figure.add_subplot()
            self._axes.set_axisbelow(True)
            self._axes.spines[["left", "top", "right"]].set_visible(False)
            self._axes.spines["bottom"].set_color(_COLORS["muted"])
            self._axes.patch.set_visible(False)
            self._figure.patch.set_visible(False)
            self._axes.set_xlim(x.low, x.high)
            self._axes.set_ylim(y.low, y.high)
            self._axes.set_xscale("log" if x.is_log else "linear")
            self._axes.set_yscale("log" if y.is_log else "linear")
            _set_ticks(self._axes.xaxis, x)
            _set_ticks(self._axes.yaxis, y)
            self._axes.tick_params(colors=_COLORS["muted"], length=3)
            self._axes.tick_params(axis="y", length=0)
            self._axes.yaxis.grid(visible=True, color=_COLORS["grid"], linewidth=1)
            if y.names:
                self._axes.xaxis.grid(visible=True, color=_COLORS["grid"], linewidth=1)
            self._axes.set_ylabel(y.label, color=_COLORS["muted"])

    def bars(self, edges: Sequence[float], heights: Sequence[float], *, look: str) -> None:
        """Draw a bar from each edge to nearly the next."""
        widths = [0.92 * (end - start) for start, end in itertools.pairwise(edges)]
        bottom = self._y.low
        lengths = [max(0.0, height - bottom) for height in heights]
        self._axes.bar(
            list(edges[:-1]), lengths, widths, bottom=bottom, align="edge", color=_color(look)
        )

    def line(self, points: Iterable[Point], *, look: str) -> None:
        """Draw a line through points."""
        style: Any = next((_LINE_STYLES[s] for s in look.split() if s in _LINE_STYLES), "-")
        xs, ys = _columns(points)
        self._axes.plot(xs, ys, color=_color(look), linestyle=style, linewidth=1.6)

    def band(self, low: Iterable[Point], high: Iterable[Point], *, look: str) -> None:
        """Fill the area between two lines with the same x values."""
        xs, bottom = _columns(low)
        _, top = _columns(high)
        self._axes.fill_between(xs, bottom, top, color=_color(look), alpha=0.18, linewidth=0)

    def dots(self, points: Iterable[Point], *, look: str, shape: str = "") -> None:
        """Draw a mark at each point: a dot, or a `triangle` or `diamond`."""
        xs, ys = _columns(points)
        marker = {"": "o", "triangle": "^", "diamond": "D"}[shape]
        fill = _COLORS["surface"] if "hollow" in look else _color(look)
        self._axes.plot(
            xs, ys, marker, color=fill, markeredgecolor=_color(look), markersize=6, clip_on=False
        )

    def upright(self, x: float, *, look: str) -> None:
        """Draw a vertical line from bottom to top."""
        self.line([(x, self._y.low), (x, self._y.high)], look=look)

    def level(self, y: float, *, look: str) -> None:
        """Draw a horizontal line from side to side."""
        self.line([(self._x.low, y), (self._x.high, y)], look=look)

    def svg(self, *, name: str, title: str, description: str) -> str:
        """Return the chart as an `<svg>` element without a size.

        Args:
            name: Letters, digits and dashes, unique in a page: the ids in the SVG start with it.
            title: What the chart shows, for readers who do not see it.
            description: What can be seen in it.
        """
        import matplotlib as mpl

        file = io.StringIO()
        with mpl.rc_context({**_RC, "svg.hashsalt": name}):
            self._figure.savefig(file, format="svg", metadata={"Date": None})
        drawn = _UNWANTED.sub("", file.getvalue())
        drawn = drawn[drawn.index(">", drawn.index("<svg")) + 1 :]
        drawn = _COLOR.sub(lambda match: _VARIABLES[match[0]], _ID.sub(f"{name}-", drawn))
        return (
            f'<svg class="plot" viewBox="0 0 {_WIDTH:g} {self._height:g}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc">\n'
            f'<title id="{name}-title">{escape(escape_control_characters(title))}</title>\n'
            f'<desc id="{name}-desc">{escape(escape_control_characters(description))}</desc>\n'
            f"{drawn.strip()}"
        )


def _set_ticks(axis: MplAxis, wanted: Axis) -> None:
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullLocator,
    )

    axis.set_minor_locator(NullLocator())
    if wanted.names:
        axis.set_major_locator(FixedLocator(range(len(wanted.names))))
        names = [_shorten(escape_control_characters(name)) for name in wanted.names]
        axis.set_major_formatter(FuncFormatter(lambda _, position: names[position or 0]))
        return
    locator = LogLocator() if wanted.is_log else MaxNLocator(6, steps=[1, 2, 5, 10])
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))


def _columns(points: Iterable[Point]) -> tuple[list[float], list[float]]:
    listed = list(points)
    return [x for x, _ in listed], [y for _, y in listed]


def _color(look: str) -> str:
    return next((_COLORS[part] for part in look.split() if part in _COLORS), _COLORS["ink"])


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def number_text(value: float) -> str:
    """Return a number in few letters.

    >>> number_text(0.5), number_text(1000), number_text(50_000), number_text(2_000_000)
    ('0.5', '1,000', '50 k', '2 M')
    """
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:.4g} {unit}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
