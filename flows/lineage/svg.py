"""A lineage as a picture: SVG to put into a page, or a page of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from rich.cells import cell_len

from flows.lineage.graph import LineageGraph, Node
from flows.lineage.layout import Layout, lay_out
from flows.lineage.text_formats import label, one_line
from schemas.manifest import RawInput
from schemas.redaction import escape_control_characters

_LETTER, _LINE, _PAD = 7.2, 16.0, 10.0
"""Pixels: width of a letter and height of a line at 12 px, and room within a box."""

_MOST_LETTERS, _FEW_LETTERS = 44, 20
_MARGIN = 8
_GAP, _COMPACT_GAP = 56.0, 20.0
_LEAST_SCALE = 0.8
"""A compact picture keeps letters of 9.6 px or larger, and the rest is scrolled to."""


def graph_svg(
    graph: LineageGraph, *, links: Mapping[str, str] | None = None, is_compact: bool = False
) -> str:
    """The graph as an `<svg>` element for a page of HTML.

    Raw files are on the left, what was made of them to the right. Colours are those of the page:
    text has the current one, and the CSS variables --line, --node and --accent give those of lines,
    of the boxes' ground and of artifacts.

    Args:
        graph: what to draw.
        links: where a click on a node leads, by its id.
        is_compact: narrow boxes without ids, for a picture that a page scales to its own width.
    """
    texts = {key: _texts(node, is_compact) for key, node in graph.nodes.items()}
    sizes = {key: _size(lines) for key, lines in texts.items()}
    edges = [(given, user) for user, inputs in graph.made_from.items() for _, given in inputs]
    layout = lay_out(sizes, edges, column_gap=_COMPACT_GAP if is_compact else _GAP)
    width = layout.width + 2 * _MARGIN
    boxes = [
        {
            "kinds": _kinds(node, is_focus=key == graph.focus),
            "link": (links or {}).get(key),
            "about": _about(node),
            "x": layout.boxes[key][0],
            "y": layout.boxes[key][1],
            "width": sizes[key][0],
            "height": sizes[key][1],
            "radius": 3 if node.kind == "file" else 8,
            "lines": [{"text": line, "length": cell_len(line) * _LETTER} for line in texts[key]],
        }
        for key, node in graph.nodes.items()
    ]
    return _render(
        "picture.svg.j2",
        title=graph.nodes[graph.focus].title,
        width=width,
        height=layout.height + 2 * _MARGIN,
        margin=_MARGIN,
        least_width=_LEAST_SCALE * width if is_compact else 0,
        paths=dict.fromkeys(_paths(layout)),
        boxes=boxes,
        pad=_PAD,
        line_height=_LINE,
    )


def lineage_page(graph: LineageGraph) -> str:
    """A page with the picture and a table of what is in it, which needs no other file."""
    focus = graph.nodes[graph.focus]
    anchors = {key: f"node-{number}" for number, key in enumerate(graph.nodes)}
    links = {key: f"#{anchor}" for key, anchor in anchors.items()}
    return _render(
        "page.html.j2",
        title=f"Lineage of {focus.title}",
        detail=f"{focus.id}: {focus.detail}",
        picture=Markup(graph_svg(graph, links=links)),  # noqa: S704 - escaped where it was drawn
        rows=[
            {"anchor": anchors[key], "title": n.title, "detail": n.detail, "facts": _facts(n)}
            for key, n in graph.nodes.items()
        ],
    )


def _render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters |= {"whole": "{:.0f}".format, "tenth": "{:.1f}".format}
    return found


def _shown(value: Any) -> Any:
    """A text without the characters that control a terminal, which SVG must not hold."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(escape_control_characters(one_line(line)) for line in value.split("\n"))


def _facts(node: Node) -> list[str]:
    if node.kind == "group":
        return []
    facts = [node.id]
    if (manifest := node.manifest) is not None:
        facts += [f"content {manifest.content}", f"made by run {manifest.produced_by.run_id}"]
    if (item := node.raw_input) is not None:
        facts += filter(None, [_compared(item), item.uri])
    return facts


def _compared(item: RawInput) -> str:
    """What a raw file was compared with, or is believed to be by."""
    if item.believed:
        return f"as {item.believed} says (believed)"
    return f"{item.checksum} (verified)" if item.checksum else ""


def _about(node: Node) -> str:
    """What is shown of a node where the pointer rests on it."""
    if (item := node.raw_input) is not None:
        shown = [item.name, item.uri, node.detail, f"sha256:{item.sha256}", _compared(item)]
        return "\n".join(filter(None, shown))
    return f"{node.title}\n{node.id}\n{node.detail}"


def _kinds(node: Node, *, is_focus: bool) -> str:
    """Classes of a node's box."""
    is_gone = node.kind == "artifact" and node.manifest is None
    return node.kind + " focus" * is_focus + " gone" * is_gone


def _texts(node: Node, is_compact: bool) -> list[str]:
    if is_compact:
        return [_shortened(text, _FEW_LETTERS) for text in (node.title, *node.detail.split(", "))]
    return [_shortened(text, _MOST_LETTERS) for text in label(node)]


def _shortened(text: str, most: int) -> str:
    """A text that is at most so long, with its middle left out: names differ at their ends."""
    text = one_line(text)
    if cell_len(text) <= most:
        return text
    start, end = "", ""
    for index in range(len(text)):
        if cell_len(start + end) >= most - 2:
            break
        if index % 2:
            end = text[-1 - index // 2] + end
        else:
            start += text[index // 2]
    return f"{start}…{end}"


def _size(lines: Sequence[str]) -> tuple[float, float]:
    return max(map(cell_len, lines)) * _LETTER + 2 * _PAD, len(lines) * _LINE + _PAD


def _paths(layout: Layout) -> Iterator[str]:
    # Lines that share their first bends are drawn once each there: two on one path look bolder.
    for points in layout.lines:
        for (x, y), (to_x, to_y) in itertools.pairwise(points):
            if (x, y) == (to_x, to_y):
                continue
            if abs(y - to_y) < 0.05:
                yield f"M{x:.1f} {y:.1f}H{to_x:.1f}"
            else:
                bend = (x + to_x) / 2
                curve = f"C{bend:.1f} {y:.1f} {bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
                yield f"M{x:.1f} {y:.1f}{curve}"
