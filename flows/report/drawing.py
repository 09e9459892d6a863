"""Small diagrams as SVG that takes its colours from the page around it, light or dark.

matplotlib draws in colours that stand for roles (`INK`, `SERIES`, ...); each becomes a CSS variable
afterwards. Texts stay texts, in the page's own font. A panel is about as wide as a phone, so that
its letters can be read there; a page sets panels side by side where it has room.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID, PAPER = "#010203", "#010204", "#010205", "#010206"
SERIES = ("#010207", "#010208", "#010209", "#01020a", "#01020b", "#01020c")
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--surface",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)},
}

_WIDTH, _HEIGHT = 4.0, 2.4  # inches
_FONT_SIZE = 10.0  # points of a panel that is 288 points wide

_SETTINGS: Any = {  # mpl names every setting in a type of its own
    "svg.fonttype": "none",
    "svg.hashsalt": "bertloom",  # else equal figures differ in the names of their parts
    "font.size": _FONT_SIZE,
    "axes.titlesize": _FONT_SIZE,
    "axes.labelsize": _FONT_SIZE,
    "xtick.labelsize": _FONT_SIZE - 0.5,
    "ytick.labelsize": _FONT_SIZE - 0.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.unicode_minus": True,
    "text.parse_math": False,  # names of a recipe may hold a dollar sign
}

_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_LEFT_OUT = re.compile(
    r"<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>|<metadata>.*?</metadata>", re.DOTALL
)
_OPENING = re.compile(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>")
_ID = re.compile(r'(\bid="|href="#|url\(#)')
_FONT_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")
_ATTRIBUTE = re.compile(r' (?:d|x|y|transform|points)="[^"]*"')
_SPACE = re.compile(r"\s*\n\s*")


def draw_panel(
    draw: Callable[[Axes], None],
    *,
    name: str,
    title: str,
    description: str,
    height: float = _HEIGHT,
) -> str:
    """Draw one diagram.

    Args:
        draw: puts everything on the axes, in the colours of this module.
        name: letters, digits and dashes, unique in a page: the ids in the SVG begin with it.
        title: what it shows, for those who do not see it.
        description: what there is to be seen.
        height: in inches; the width is 4.

    Returns:
        An `<svg>` element without size, to be set in a page; equal calls give equal texts.
    """
    # Figure and canvas themselves, not pyplot, which would choose a backend for the whole process.
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        draw(axes)
        text = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(text, format="svg", metadata=nothing)
    return _themed(text.getvalue(), name=name, title=title, description=description)


def _themed(svg: str, *, name: str, title: str, description: str) -> str:
    svg = _LEFT_OUT.sub("", _PROLOGUE.sub("", svg, count=1))
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = _FONT_FAMILY.sub("", svg)
    svg = _ATTRIBUTE.sub(lambda found: _LONG_NUMBER.sub(r"\1", found.group()), svg)
    svg = _ID.sub(rf"\g<1>{name}-", svg)
    svg = _SPACE.sub("\n", svg).strip()
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" \\1 role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
    )
    said = (
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    return _OPENING.sub(lambda found: found.expand(opening) + said, svg, count=1)


def number_text(value: float) -> str:
    """A number on an axis: 0.5, 20, 1,000, 50 k, 2 M."""
    size = abs(value)
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= least:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[unit]:.4g} {unit}"
    return f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"
