"""A lineage as a picture: SVG to put into a page, or a page of its own."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping
from html import escape as escape_html

from flows.lineage.graph import LineageGraph, Node
from flows.lineage.layout import Layout, lay_out
from flows.lineage.rendering import one_line
from schemas.disclosure import visible

_LETTER, _LINE, _PAD = 7.2, 16.0, 10.0
"""Pixels: width of a letter and height of a line at 12 px, and room within a box."""

_MOST_LETTERS, _FEW_LETTERS = 44, 20
_MARGIN = 8.0
_GAP, _COMPACT_GAP = 56.0, 20.0
_LEAST_SCALE = 0.8
"""Of a compact picture: its letters stay at 9.6 px or larger, and the rest is scrolled to."""

_SVG_STYLE = """
.lineage { font: 12px ui-monospace, "SFMono-Regular", Menlo, "DejaVu Sans Mono", monospace; }
.lineage .edge { fill: none; stroke: var(--line, #8a94a6); stroke-width: 1.2; }
.lineage .box { fill: var(--node, transparent); stroke: var(--line, #8a94a6); }
.lineage .artifact .box { stroke: var(--accent, #3b6fd4); }
.lineage .file .box { stroke-dasharray: 4 3; }
.lineage .focus .box { stroke-width: 3; }
.lineage .gone .box { stroke: var(--line, #8a94a6); stroke-dasharray: 1 3; }
.lineage text { fill: currentColor; }
.lineage .title { font-weight: 600; }
.lineage .detail { opacity: .78; }
.lineage a:hover .box, .lineage a:focus .box { stroke-width: 3; }
"""


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
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    least = f' style="min-width:{_LEAST_SCALE * width:.0f}px"' if is_compact else ""
    found = links or {}
    parts = [
        f'<svg class="lineage" xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}"{least} '
        f'viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:.1f} {height:.1f}">',
        f"<title>Lineage of {_escaped(graph.nodes[graph.focus].title)}</title>",
        f"<style>{_SVG_STYLE}</style>",
        *_edge_paths(layout),
    ]
    for key, node in graph.nodes.items():
        drawn = _box(node, texts[key], layout, sizes[key], is_focus=key == graph.focus)
        parts.append(f'<a href="{_escaped(found[key])}">{drawn}</a>' if key in found else drawn)
    return "\n".join([*parts, "</svg>"])


def _texts(node: Node, is_compact: bool) -> list[str]:
    if is_compact:
        lines = [node.title, *node.detail.split(", ")]
        return [_shortened(line, _FEW_LETTERS) for line in lines]
    lines = [node.title, node.detail]
    if node.kind == "artifact":
        lines.insert(1, node.id)
    return [_shortened(line, _MOST_LETTERS) for line in lines]


def _shortened(text: str, most: int) -> str:
    """A text that is at most so long, with its middle left out: names differ at their ends."""
    text = one_line(text)
    if _letters(text) <= most:
        return text
    start, end = "", ""
    for index in range(len(text)):
        if _letters(start + end) >= most - 2:
            break
        if index % 2:
            end = text[-1 - index // 2] + end
        else:
            start += text[index // 2]
    return f"{start}…{end}"


def _escaped(text: str) -> str:
    """For HTML and SVG, in which characters that control a terminal must not be."""
    return "\n".join(escape_html(visible(one_line(line))) for line in text.split("\n"))


def _letters(text: str) -> int:
    """How many letters wide a text is: those of East Asia are two, marks on others none."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    marks = sum(unicodedata.combining(letter) != 0 for letter in text)
    return len(text) + wide - marks


def _size(lines: list[str]) -> tuple[float, float]:
    widest = max(_letters(line) for line in lines)
    return widest * _LETTER + 2 * _PAD, len(lines) * _LINE + _PAD


def _edge_paths(layout: Layout) -> list[str]:
    # Lines that share their first bends are drawn once each there: two on one place look bolder.
    drawn: dict[str, None] = {}
    for points in layout.lines:
        for (x, y), (to_x, to_y) in itertools.pairwise(points):
            bend = (x + to_x) / 2
            if x == to_x and y == to_y:
                continue
            path = f"M{x:.1f} {y:.1f}"
            if abs(y - to_y) < 0.05:
                path += f"H{to_x:.1f}"
            else:
                path += f"C{bend:.1f} {y:.1f} {bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
            drawn[path] = None
    return [f'<path class="edge" d="{path}"/>' for path in drawn]


def _box(
    node: Node, lines: list[str], layout: Layout, size: tuple[float, float], *, is_focus: bool
) -> str:
    x, y = layout.boxes[node.id]
    width, height = size
    names: list[str] = [node.kind]
    names += ["focus"] if is_focus else []
    names += ["gone"] if node.kind == "artifact" and node.manifest is None else []
    radius = 3 if node.kind == "file" else 8
    parts = [
        f'<g class="{" ".join(names)}"><title>{_escaped(_told(node))}</title>',
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius}"/>',
    ]
    for number, line in enumerate(lines):
        kind = "title" if number == 0 else "detail"
        baseline = y + _PAD / 2 + number * _LINE + 12
        # The length is set, so that a text stays in its box whatever font there is.
        parts.append(
            f'<text class="{kind}" x="{x + _PAD:.1f}" y="{baseline:.1f}" '
            f'textLength="{_letters(line) * _LETTER:.1f}" lengthAdjust="spacingAndGlyphs">'
            f"{_escaped(line)}</text>"
        )
    return "".join([*parts, "</g>"])


def _told(node: Node) -> str:
    """What is said of a node where the pointer rests on it."""
    if (item := node.raw_input) is not None:
        checksum = f"\n{item.checksum} (verified)" if item.checksum else ""
        return f"{item.name}\n{item.uri}\n{node.detail}\nsha256:{item.sha256}{checksum}"
    return f"{node.title}\n{node.id}\n{node.detail}"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ --ground: #ffffff; --ink: #1c2330; --line: #8a94a6; --node: #f5f7fb; --accent: #2f62c9; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #14171d; --ink: #e4e8ef; --line: #7d8799; --node: #1e232c;
    --accent: #7fa8ff; }}
}}
body {{ margin: 0; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }}
h1 {{ font-size: 1.2rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }}
p {{ margin: 0 0 .8rem; }}
.picture {{ overflow: auto; border: 1px solid var(--line); border-radius: 8px; padding: .5rem;
  max-height: 80vh; }}
.picture svg {{ display: block; }}
table {{ border-collapse: collapse; font-size: .85rem; margin-top: 1rem; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0;
  border-bottom: 1px solid color-mix(in srgb, var(--line) 40%, transparent);
  overflow-wrap: anywhere; }}
td:first-child {{ min-width: 8rem; }}
@media (max-width: 40rem) {{
  th {{ display: none; }}
  td {{ display: block; border: 0; padding: 0; }}
  td:first-child {{ font-weight: 600; }}
  tr {{ display: block; padding: .4rem 0; border-bottom: 1px solid var(--line); }}
}}
tr:target td {{ background: var(--node); }}
a {{ color: inherit; text-decoration: none; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{detail}</p>
<div class="picture" tabindex="0">
{picture}
</div>
<table>
<tr><th>made or read</th><th>holds</th><th>identity</th></tr>
{rows}
</table>
<script>
const frame = document.querySelector(".picture");
const box = frame.querySelector(".focus").getBoundingClientRect();
const seen = frame.getBoundingClientRect();
frame.scrollBy(box.left + box.width / 2 - seen.left - seen.width / 2,
  box.top + box.height / 2 - seen.top - seen.height / 2);
</script>
</body>
</html>
"""


def lineage_page(graph: LineageGraph) -> str:
    """A page with the picture and a table of what is in it, which needs no other file."""
    focus = graph.nodes[graph.focus]
    numbers = {key: f"node-{number}" for number, key in enumerate(graph.nodes)}
    links = {key: f"#{anchor}" for key, anchor in numbers.items()}
    rows = [_row(node, numbers[key]) for key, node in graph.nodes.items()]
    return _PAGE.format(
        title=_escaped(f"Lineage of {focus.title}"),
        detail=_escaped(f"{focus.id}: {focus.detail}"),
        picture=graph_svg(graph, links=links),
        rows="\n".join(rows),
    )


def _row(node: Node, anchor: str) -> str:
    facts = [node.id]
    if (manifest := node.manifest) is not None:
        facts += [f"content {manifest.content}", f"made by run {manifest.produced_by.run_id}"]
    if (item := node.raw_input) is not None:
        facts += [f"{item.checksum} (verified)"] if item.checksum else []
        facts.append(item.uri)
    if node.kind == "group":
        facts = []
    told = "<br>".join(_escaped(fact) for fact in facts)
    title, detail = _escaped(node.title), _escaped(node.detail)
    return f'<tr id="{anchor}"><td>{title}</td><td>{detail}</td><td>{told}</td></tr>'
