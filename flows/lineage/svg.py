"""Lineage as an SVG picture."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
from rich.cells import cell_len, set_cell_size

from flows.lineage.graph import LineageGraph, Node
from flows.lineage.text_formats import label, one_line
from schemas.redaction import redact

if TYPE_CHECKING:
    import jinja2

_LETTER_WIDTH, _LINE_HEIGHT, _PADDING, _MARGIN = 7.2, 16.0, 10.0, 8.0
_COLUMN_GAP, _ROW_GAP = 56.0, 14.0
_MAX_LETTERS = 44

_WAYPOINT = (0.0, 4.0)
_SWEEPS = 12
_MAX_TOP = 60.0
"""Largest distance of a column from the top, in pixels: a tall picture does not start empty."""

_TEMPLATES = Path(__file__).parent / "templates"

Point = tuple[float, float]


class Layout(NamedTuple):
    """Size of a picture, upper left corners of its boxes, and points of its edges, in pixels."""

    width: float
    height: float
    boxes: dict[str, Point]
    lines: list[list[Point]]


def lay_out(graph: nx.DiGraph[str], box_sizes: Mapping[str, Point], *, column_gap: float) -> Layout:
    """Place boxes in columns so that none overlap, edges go to the right, and few of them cross.

    Args:
        graph: Acyclic graph with at least one node.
        box_sizes: Width and height of each box in pixels, by node.
        column_gap: Distance of columns in pixels.
    """
    column_of: dict[Any, int] = _assign_columns(graph)
    # Long edges from one node share a waypoint in each column that they cross.
    layered: nx.DiGraph[Any] = nx.DiGraph()
    layered.add_nodes_from(graph)
    paths = []
    for source, target in graph.edges:
        waypoints = {(source, at): at for at in range(column_of[source] + 1, column_of[target])}
        column_of |= waypoints
        paths.append([source, *waypoints, target])
        nx.add_path(layered, paths[-1])
    sizes: dict[Any, Point] = dict.fromkeys(layered, _WAYPOINT) | dict(box_sizes)
    columns: list[list[Any]] = [[] for _ in range(max(column_of.values()) + 1)]
    for key in layered:
        columns[column_of[key]].append(key)
    tops = _place_rows(layered, columns, {key: height for key, (_, height) in sizes.items()})
    middles = {key: top + sizes[key][1] / 2 for key, top in tops.items()}
    widths = [max(sizes[key][0] for key in column) for column in columns]
    lefts = [0.0, *itertools.accumulate(width + column_gap for width in widths)]

    def points(path: Sequence[Any]) -> Iterable[Point]:
        for key in path[:-1]:
            at, y = column_of[key], middles[key]
            yield from ((lefts[at] + sizes[key][0], y), (lefts[at] + widths[at], y))
        yield lefts[column_of[path[-1]]], middles[path[-1]]

    return Layout(
        width=lefts[-1] - column_gap,
        height=max(tops[key] + sizes[key][1] for key in layered),
        boxes={key: (lefts[column_of[key]], tops[key]) for key in graph},
        lines=[list(points(path)) for path in paths],
    )


def _assign_columns(graph: nx.DiGraph[str]) -> dict[str, int]:
    """Return the column of each node: right of its inputs, and close to its outputs."""
    generations = list(nx.topological_generations(graph))
    columns = {key: column for column, keys in enumerate(generations) for key in keys}
    for key in itertools.chain.from_iterable(reversed(generations)):
        if outputs := graph.succ[key]:
            columns[key] = min(columns[output] for output in outputs) - 1
    return columns


def _place_rows(
    graph: nx.DiGraph[Any], columns: Sequence[list[Any]], heights: Mapping[Any, float]
) -> dict[Any, float]:
    """Sort each column by the positions of the neighbors; return the top of each box."""
    tops = dict.fromkeys(graph, 0.0)
    column_heights = [sum(heights[key] + _ROW_GAP for key in column) for column in columns]

    def stack(column: list[Any], neighbors: Callable[[Any], Iterable[Any]]) -> None:
        ideal = {key: fmean([tops[n] for n in neighbors(key)] or [tops[key]]) for key in column}
        column.sort(key=ideal.__getitem__)
        steps = [heights[key] + _ROW_GAP for key in column]
        first = min((max(column_heights) - sum(steps)) / 2, _MAX_TOP)
        tops.update(zip(column, itertools.accumulate(steps, initial=first), strict=False))

    for _ in range(_SWEEPS):
        for column in reversed(columns):
            stack(column, graph.successors)
        for column in columns:
            stack(column, graph.predecessors)
    return tops


def graph_svg(graph: LineageGraph, *, name: str, links: Mapping[str, str] | None = None) -> str:
    """Return a picture of a graph, inputs on the left, as an `<svg>` element.

    Its colors are the CSS variables `--ink`, `--node`, `--line` and `--accent` of the page.

    Args:
        graph: Graph to draw.
        name: Letters, digits and dashes, unique in a page: the ids in the SVG start with it.
        links: Target of a click on a node, by node id.
    """
    texts = {key: _box_lines(node) for key, node in graph.nodes.items()}
    sizes = {key: _box_size(lines) for key, lines in texts.items()}
    layout = lay_out(graph.digraph, sizes, column_gap=_COLUMN_GAP)
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    boxes = [
        {
            "x": round(layout.boxes[key][0] + _MARGIN, 1),
            "y": round(layout.boxes[key][1] + _MARGIN, 1),
            "width": round(sizes[key][0], 1),
            "height": sizes[key][1],
            "lines": texts[key],
            "link": (links or {}).get(key),
            "tooltip": _tooltip(node),
            "classes": _classes(node, is_focus=key == graph.focus),
            "is_file": node.kind == "file",
        }
        for key, node in graph.nodes.items()
    ]
    return _render(
        "graph.svg.j2",
        name=name,
        title=f"Lineage of {one_line(graph.nodes[graph.focus].title)}",
        width=f"{width:.1f}",
        height=f"{height:.1f}",
        padding=_PADDING,
        edges=" ".join(map(_curve, layout.lines)),
        boxes=boxes,
    )


def _classes(node: Node, *, is_focus: bool) -> str:
    is_missing = node.kind == "artifact" and node.manifest is None
    return " ".join([node.kind, *["missing"] * is_missing, *["focus"] * is_focus])


def _curve(points: Sequence[Point]) -> str:
    """Return an edge as the commands of an SVG path."""
    shifted = [(round(x + _MARGIN, 1), round(y + _MARGIN, 1)) for x, y in points]
    path = "M{} {}".format(*shifted[0])
    for (x, y), (to_x, to_y) in itertools.pairwise(shifted):
        bend = (x + to_x) / 2
        path += f"H{to_x}" if y == to_y else f"C{bend} {y} {bend} {to_y} {to_x} {to_y}"
    return path


def _box_lines(node: Node) -> list[str]:
    return [_shorten(one_line(line), _MAX_LETTERS) for line in label(node)]


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


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # lazy import: only pictures need it

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=redact,
    )
