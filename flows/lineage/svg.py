"""Lineage as an SVG picture, and as an HTML page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape
from rich.cells import cell_len, set_cell_size

from flows.lineage.graph import LineageGraph, Node
from flows.lineage.graph_layout import Layout, Point, lay_out
from flows.lineage.text_formats import label, one_line
from flows.plots import COLORS, figure_svg, plot_style

if TYPE_CHECKING:
    from matplotlib.patches import PathPatch

_FONT_SIZE, _LETTER_WIDTH, _LINE_HEIGHT, _PADDING, _MARGIN = 12.0, 7.2, 16.0, 10.0, 8.0
_COLUMN_GAP, _COMPACT_COLUMN_GAP = 56.0, 20.0
_MAX_LETTERS, _MAX_COMPACT_LETTERS = 44, 20
_MIN_SCALE = 0.8
"""Smallest scale of a compact picture: letters of 9.6 px can still be read."""

_PAGE = Path(__file__).parent / "templates" / "page.html.j2"
_STYLE = """<style>
.lineage text { font-family: ui-monospace, "SFMono-Regular", Menlo, "DejaVu Sans Mono", monospace;
  pointer-events: none; }
.lineage a text { fill: currentColor !important; }
.lineage a:hover path, .lineage a:focus path { stroke-width: 3 !important; }
</style>"""


def graph_svg(
    graph: LineageGraph,
    *,
    name: str,
    links: Mapping[str, str] | None = None,
    is_compact: bool = False,
) -> str:
    """Return a picture of a graph, inputs on the left, as an `<svg>` element.

    Args:
        graph: Graph to draw.
        name: Letters, digits and dashes, unique in a page: the ids in the SVG start with it.
        links: Target of a click on a node, by node id.
        is_compact: Draw narrow boxes without ids, for a picture that a page scales to its width.
    """
    texts = {key: _box_lines(node, is_compact=is_compact) for key, node in graph.nodes.items()}
    sizes = {key: _box_size(lines) for key, lines in texts.items()}
    gap = _COMPACT_COLUMN_GAP if is_compact else _COLUMN_GAP
    layout = lay_out(graph.digraph, sizes, column_gap=gap)
    svg = _draw(graph, layout, texts, sizes, name=name, links=links or {})
    for number, node in enumerate(graph.nodes.values()):
        group = f'<g id="{name}-node-{number}">'
        svg = svg.replace(group, f"{group}<title>{escape(_tooltip(node))}</title>")
    min_width = _MIN_SCALE * (layout.width + 2 * _MARGIN) if is_compact else 0
    svg = svg.replace("<svg ", f'<svg style="min-width:{min_width:.0f}px" ', 1)
    return svg.replace("<title", f"{_STYLE}\n<title", 1)


@plot_style()
def _draw(
    graph: LineageGraph,
    layout: Layout,
    texts: Mapping[str, list[str]],
    sizes: Mapping[str, Point],
    *,
    name: str,
    links: Mapping[str, str],
) -> str:
    from matplotlib.figure import Figure  # lazy import: only pictures need it
    from matplotlib.patches import FancyBboxPatch

    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-_MARGIN, width - _MARGIN))
    axes.set_ylim(height - _MARGIN, -_MARGIN)
    axes.set_axis_off()
    axes.add_patch(_edges(layout))
    for number, (key, node) in enumerate(graph.nodes.items()):
        (x, y), (box_width, box_height), link = layout.boxes[key], sizes[key], links.get(key)
        is_missing = node.kind == "artifact" and node.manifest is None
        box = FancyBboxPatch(
            (x, y),
            box_width,
            box_height,
            boxstyle=f"round,pad=0,rounding_size={3 if node.kind == 'file' else 8}",
            facecolor=COLORS["node"],
            edgecolor=COLORS["accent" if node.manifest else "line"],
            linestyle=":" if is_missing else "--" if node.kind == "file" else "-",
            linewidth=3 if key == graph.focus else 1,
            url=link,
            gid=f"node-{number}",
        )
        axes.add_patch(box)
        for row, line in enumerate(texts[key]):
            text = axes.text(
                x + _PADDING, y + _PADDING / 2 + row * _LINE_HEIGHT + _FONT_SIZE, line, alpha=0.78
            )
            text.set_fontsize(_FONT_SIZE)
            if row == 0:
                text.set(alpha=1, fontweight="bold", url=link)
    title = f"Lineage of {graph.nodes[graph.focus].title}"
    return figure_svg(figure, name=name, title=title, description="", css_class="lineage")


def _edges(layout: Layout) -> PathPatch:
    """Return all edges as one path: shared parts are drawn once."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    curves = []
    for points in layout.lines:
        vertices, codes = [points[0]], [Curve.MOVETO]
        for (x, y), (to_x, to_y) in itertools.pairwise(points):
            if y == to_y:
                vertices.append((to_x, to_y))
                codes.append(Curve.LINETO)
            else:
                bend = (x + to_x) / 2
                vertices += [(bend, y), (bend, to_y), (to_x, to_y)]
                codes += [Curve.CURVE4] * 3
        curves.append(Curve(vertices, codes))
    path = Curve.make_compound_path(*curves) if curves else Curve([(0.0, 0.0)])
    return PathPatch(path, fill=False, edgecolor=COLORS["line"], linewidth=1.2)


def _box_lines(node: Node, *, is_compact: bool) -> list[str]:
    lines = (node.title, *node.detail.split(", ")) if is_compact else label(node)
    max_letters = _MAX_COMPACT_LETTERS if is_compact else _MAX_LETTERS
    return [_shorten(one_line(line), max_letters) for line in lines]


def _box_size(lines: list[str]) -> Point:
    width = max(map(cell_len, lines)) * _LETTER_WIDTH + 2 * _PADDING
    return width, len(lines) * _LINE_HEIGHT + _PADDING


def _shorten(text: str, max_cells: int) -> str:
    """Cut the middle of a long text: names often differ at the end."""
    if cell_len(text) <= max_cells:
        return text
    half = max_cells // 2 - 1
    return f"{set_cell_size(text, half)}…{set_cell_size(text[::-1], half)[::-1]}"


def _tooltip(node: Node) -> str:
    facts = [node.title, node.detail, *_facts(node)]
    return "\n".join(map(one_line, dict.fromkeys(facts)))


def _facts(node: Node) -> list[str]:
    """Return the id of a node and its identity, one line for each fact."""
    facts = [f"{name.replace('_', ' ')} {value}" for name, value in node.facts.items() if value]
    return [node.id, *facts] if facts else []


# HTML page


def lineage_page(graph: LineageGraph) -> str:
    """Return a self-contained HTML page with the picture and a table of its nodes."""
    import jinja2  # lazy import: only pages need it

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: one_line(value) if type(value) is str else value,
    )
    focus = graph.nodes[graph.focus]
    anchors = {key: f"node-{number}" for number, key in enumerate(graph.nodes)}
    links = {key: f"#{anchor}" for key, anchor in anchors.items()}
    return environment.from_string(_PAGE.read_text(encoding="utf-8")).render(
        title=f"Lineage of {focus.title}",
        detail=f"{focus.id}: {focus.detail}",
        # The texts in the picture are escaped.
        picture=Markup(graph_svg(graph, name="lineage", links=links)),  # noqa: S704
        rows=[
            {"anchor": anchors[key], "title": n.title, "detail": n.detail, "facts": _facts(n)}
            for key, n in graph.nodes.items()
        ],
        focus=anchors[graph.focus],
    )
