"""Positions of the boxes of a drawn graph, in columns from left to right."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import networkx as nx

Point = tuple[float, float]

_SWEEPS = 12
_MAX_TOP = 60.0
"""Largest distance of a column from the top, in pixels: a tall picture does not start empty."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Positions in pixels, from the upper left corner."""

    width: float
    height: float
    boxes: dict[str, Point]
    """Upper left corner of each box."""

    lines: list[list[Point]]
    """Points of each edge from left to right. Between columns a line changes its height."""


def lay_out(
    graph: nx.DiGraph[str],
    sizes: Mapping[str, Point],
    *,
    column_gap: float,
    row_gap: float = 14.0,
) -> Layout:
    """Place boxes so that none overlap, edges go to the right, and few of them cross.

    Args:
        graph: Acyclic graph with at least one node.
        sizes: Width and height of each box in pixels, by node.
        column_gap: Distance of columns in pixels.
        row_gap: Distance of the boxes of a column in pixels.
    """
    column_of = _assign_columns(graph)
    layered, paths = _add_waypoints(graph, column_of)
    columns: list[list[Any]] = [[] for _ in range(max(column_of.values()) + 1)]
    for key, column in layered.nodes(data="column"):
        columns[column].append(key)
    heights: dict[Hashable, float] = dict.fromkeys(layered, 4.0)
    heights |= {key: height for key, (_, height) in sizes.items()}
    middles = _place_rows(layered, columns, heights, row_gap)
    widths = [
        max(sizes[k][0] for k, c in column_of.items() if c == at) for at in range(len(columns))
    ]
    lefts = [0.0, *itertools.accumulate(width + column_gap for width in widths)]
    lines = []
    for source, *waypoints, target in paths:
        left, y = lefts[column_of[source]], middles[source]
        points = [(left + sizes[source][0], y), (left + widths[column_of[source]], y)]
        for at, key in enumerate(waypoints, start=column_of[source] + 1):
            points += [(lefts[at], middles[key]), (lefts[at] + widths[at], middles[key])]
        lines.append([*points, (lefts[column_of[target]], middles[target])])
    return Layout(
        width=lefts[-1] - column_gap,
        height=max(middles[key] + heights[key] / 2 for key in layered),
        boxes={key: (lefts[at], middles[key] - heights[key] / 2) for key, at in column_of.items()},
        lines=lines,
    )


def _assign_columns(graph: nx.DiGraph[str]) -> dict[str, int]:
    """Return the column of each node: right of its inputs, and close to its outputs."""
    generations = list(nx.topological_generations(graph))
    columns = {key: column for column, keys in enumerate(generations) for key in keys}
    for key in itertools.chain.from_iterable(reversed(generations)):
        if outputs := graph.succ[key]:
            columns[key] = min(columns[output] for output in outputs) - 1
    return columns


def _add_waypoints(
    graph: nx.DiGraph[str], column_of: Mapping[str, int]
) -> tuple[nx.DiGraph[Hashable], list[list[str]]]:
    """Return a graph whose edges join neighboring columns, and the path of each original edge.

    Long edges from one node share their waypoints.
    """
    layered: nx.DiGraph[Hashable] = nx.DiGraph()
    layered.add_nodes_from((key, {"column": column}) for key, column in column_of.items())
    paths = []
    for source, target in graph.edges:
        waypoints = [(source, at) for at in range(column_of[source] + 1, column_of[target])]
        layered.add_nodes_from((key, {"column": key[1]}) for key in waypoints)
        nx.add_path(layered, path := [source, *waypoints, target])
        paths.append(path)
    return layered, paths


def _place_rows(
    graph: nx.DiGraph[Hashable],
    columns: Sequence[list[Hashable]],
    heights: Mapping[Hashable, float],
    gap: float,
) -> dict[Hashable, float]:
    """Return the height of each node's middle, close to the middles of its neighbors."""
    middles: dict[Hashable, float] = {}
    for column in columns:
        middles.update(zip(column, _spread([0.0] * len(column), column, heights, gap), strict=True))

    def place(column: list[Hashable], neighbors: Mapping[Hashable, Iterable[Hashable]]) -> None:
        ideal = {k: fmean([middles[n] for n in neighbors[k]] or [middles[k]]) for k in column}
        column.sort(key=ideal.__getitem__)
        positions = _spread([ideal[key] for key in column], column, heights, gap)
        middles.update(zip(column, positions, strict=True))

    for _ in range(_SWEEPS):
        for column in reversed(columns):
            place(column, graph.succ)
        for column in columns:
            place(column, graph.pred)
    for _ in range(_SWEEPS):
        for column in reversed(columns):
            place(column, {key: [*graph.pred[key], *graph.succ[key]] for key in column})
    top = min(middles[key] - heights[key] / 2 for key in middles)
    for column in columns:
        column_top = middles[column[0]] - heights[column[0]] / 2 - top
        shift = top + max(column_top - _MAX_TOP, 0.0)
        middles.update({key: middles[key] - shift for key in column})
    return middles


def _spread(
    ideal: Sequence[float],
    column: Sequence[Hashable],
    heights: Mapping[Hashable, float],
    gap: float,
) -> list[float]:
    """Return positions close to ascending ideal ones that keep boxes apart.

    They are the mean of two solutions: boxes moved only down, and boxes moved only up.
    """
    distances = [(heights[a] + heights[b]) / 2 + gap for a, b in itertools.pairwise(column)]
    down = [ideal[0]]
    for position, distance in zip(ideal[1:], distances, strict=True):
        down.append(max(position, down[-1] + distance))
    up = [ideal[-1]]
    for position, distance in zip(ideal[-2::-1], distances[::-1], strict=True):
        up.append(min(position, up[-1] - distance))
    return [(low + high) / 2 for low, high in zip(down, reversed(up), strict=True)]
