"""Positions of the boxes of a drawn graph, in columns from left to right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import networkx as nx

Point = tuple[float, float]

_SWEEPS = 12
_ROW_GAP = 14.0
_WAYPOINT = (0.0, 4.0)
_MAX_TOP = 60.0
"""Largest distance of a column from the top, in pixels: a tall picture does not start empty."""


class Layout(NamedTuple):
    """Size of a picture, upper left corners of its boxes, and points of its edges, in pixels."""

    width: float
    height: float
    boxes: dict[str, Point]
    lines: list[list[Point]]


def lay_out(graph: nx.DiGraph[str], box_sizes: Mapping[str, Point], *, column_gap: float) -> Layout:
    """Place boxes so that none overlap, edges go to the right, and few of them cross.

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
    middles = _place_rows(layered, columns, {key: height for key, (_, height) in sizes.items()})
    widths = [max(sizes[key][0] for key in column) for column in columns]
    lefts = [0.0, *itertools.accumulate(width + column_gap for width in widths)]

    def points(path: Sequence[Any]) -> Iterator[Point]:
        for key in path[:-1]:
            at, y = column_of[key], middles[key]
            yield from ((lefts[at] + sizes[key][0], y), (lefts[at] + widths[at], y))
        yield lefts[column_of[path[-1]]], middles[path[-1]]

    return Layout(
        width=lefts[-1] - column_gap,
        height=max(middles[key] + sizes[key][1] / 2 for key in layered),
        boxes={key: (lefts[column_of[key]], middles[key] - sizes[key][1] / 2) for key in graph},
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
    """Sort columns, and return the middle of each box, close to the middles of its neighbors."""
    middles = dict.fromkeys(graph, 0.0)

    def place(column: list[Any], neighbors: Callable[[Any], Iterable[Any]]) -> None:
        ideal = {
            key: fmean([middles[other] for other in neighbors(key)] or [middles[key]])
            for key in column
        }
        column.sort(key=ideal.__getitem__)
        gaps = [(heights[a] + heights[b]) / 2 + _ROW_GAP for a, b in itertools.pairwise(column)]
        middles.update(zip(column, _spread([ideal[key] for key in column], gaps), strict=True))

    for _ in range(_SWEEPS):
        for column in reversed(columns):
            place(column, graph.successors)
        for column in columns:
            place(column, graph.predecessors)
    for _ in range(_SWEEPS):
        for column in reversed(columns):
            place(column, lambda key: nx.all_neighbors(graph, key))
    top = min(middles[key] - heights[key] / 2 for key in graph)
    for column in columns:
        column_top = middles[column[0]] - heights[column[0]] / 2 - top
        shift = top + max(column_top - _MAX_TOP, 0.0)
        middles.update({key: middles[key] - shift for key in column})
    return middles


def _spread(ideal: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Return positions with minimum gaps that are close to ascending ideal positions.

    They are the mean of two solutions: boxes moved only down, and boxes moved only up.
    """
    down, up = [ideal[0]], [ideal[-1]]
    for position, gap in zip(ideal[1:], gaps, strict=True):
        down.append(max(position, down[-1] + gap))
    for position, gap in zip(ideal[-2::-1], gaps[::-1], strict=True):
        up.append(min(position, up[-1] - gap))
    return [fmean(pair) for pair in zip(down, reversed(up), strict=True)]
