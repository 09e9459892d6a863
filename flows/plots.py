"""Charts as SVG, drawn by matplotlib in the colors of the page that shows them.

```python
with plot_style():
    figure, axes = new_figure()
    axes.plot(xs, ys, color=COLORS["series-1"])
    svg = figure_svg(figure, name="loss", title="Loss")
```

matplotlib is imported on first use: pages whose charts are all in the store do not load it.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from model.monitoring import palette
from schemas.redaction import escape_control_characters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 288.0, 173.0
"""Size of a chart in pixels: about the width of a phone, so that its labels can be read there."""

COLORS = {
    **{f"series-{number}": color for number, color in enumerate(palette.COLORS, start=1)},
    "ink": palette.INK,
    "muted": palette.GRAY,
    "grid": palette.GRID,
    "surface": palette.SURFACE,
}
"""Colors to draw with. In the SVG, each is the CSS variable of its name: `var(--series-1)`."""

SERIES = palette.COLORS

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": COLORS["muted"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": COLORS["muted"],
    "axes.linewidth": 1.0,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 72.0,
    "figure.facecolor": "none",
    "font.size": 9.0,
    "grid.color": COLORS["grid"],
    "grid.linewidth": 1.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 6.0,
    "svg.fonttype": "none",
    "text.color": COLORS["ink"],
    "text.parse_math": False,
    "xtick.color": COLORS["muted"],
    "ytick.color": COLORS["muted"],
    "ytick.major.size": 0.0,
}
_MAX_NAME = 22
_ID = re.compile(r'(?<=\bid=")|(?<=url\(#)|(?<=<use xlink:href="#)')
_UNWANTED = re.compile(
    r"<metadata>.*?</metadata>\s*|<defs>\s*<style.*?</defs>\s*|font-family: [^;]*; ", re.DOTALL
)
"""Metadata, styles that would apply to the whole page, and fonts: text has the page's font."""
_VARIABLES = {color.lower(): f"var(--{name})" for name, color in COLORS.items()}
_COLOR = re.compile("|".join(_VARIABLES))


@contextlib.contextmanager
def plot_style() -> Iterator[None]:
    """Draw in the style of the page. Use as a context manager or a decorator."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


@plot_style()
def new_figure(height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Return an empty chart of this height in pixels, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
    axes = figure.add_subplot()
    format_ticks(axes.xaxis)
    format_ticks(axes.yaxis)
    axes.locator_params(nbins=6, steps=[1, 2, 5, 10])
    return figure, axes


def format_ticks(axis: Axis) -> None:
    """Label the ticks of an axis with short numbers. Setting a scale needs another call."""
    from matplotlib.ticker import NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: format_tick(value))


def shorten_name(name: str) -> str:
    """Return a name as the label of a tick, without control characters."""
    label = escape_control_characters(name)
    return label if len(label) <= _MAX_NAME else f"{label[: _MAX_NAME - 1]}…"


@plot_style()
def figure_svg(figure: Figure, *, name: str, title: str) -> str:
    """Return a figure as an `<svg>` element.

    Args:
        figure: Chart, see `new_figure`.
        name: Letters, digits and dashes, unique in a page: the ids in the SVG start with it.
        title: What the figure shows, for readers who do not see it.
    """
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # The browser draws the text: it does not matter which glyphs matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, format="svg", metadata={"Date": None})
    content = _UNWANTED.sub("", file.getvalue())
    content = content[content.index(">", content.index("<svg")) + 1 :].strip()
    content = _COLOR.sub(lambda match: _VARIABLES[match[0]], _ID.sub(f"{name}-", content))
    width, height = figure.get_size_inches() * 72
    return (
        f'<svg class="plot" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-title">\n'
        f'<title id="{name}-title">{escape(escape_control_characters(title))}</title>\n{content}'
    )


def format_tick(value: float) -> str:
    """Return a number in few characters.

    >>> format_tick(0.5), format_tick(1000), format_tick(50_000), format_tick(2_000_000)
    ('0.5', '1,000', '50 k', '2 M')
    """
    for minimum, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= minimum:
            return f"{value / size:.4g} {unit}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
