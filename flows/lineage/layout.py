"""Where the boxes of a drawn graph go: in columns from left to right, with few crossings."""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

Size = tuple[float, float]
"""Width and height."""

_SWEEPS = 12
_BEND_HEIGHT = 4.0
_LOWEST_TOP = 60.0
"""Lower columns are moved up, so that a tall picture does not begin with nothing."""


@dataclass(frozen=True)
class Bend:
    """Where the lines from one box pass a column on their way further right."""

    source: str
    column: int


Item = str | Bend


@dataclass(kw_only=True)
class Layout:
    """Positions in a drawing whose upper left corner is (0, 0)."""

    width: float
    height: float
    boxes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Upper left corner of each box."""

    lines: list[list[tuple[float, float]]] = field(default_factory=list)
    """Points of each line, from left to right; two and two are on one height within a column."""


def lay_out(
    sizes: Mapping[str, Size],
    edges: Sequence[tuple[str, str]],
    *,
    column_gap: float = 56.0,
    row_gap: float = 14.0,
) -> Layout:
    """Place boxes so that none overlap and every edge leads to the right.

    Args:
        sizes: of each box, in the order in which they are drawn where nothing else decides.
        edges: (from, to) between boxes, without cycles.
        column_gap: between columns; room for the lines' slopes.
        row_gap: between boxes of a column.
    """
    if not sizes:
        return Layout(width=0.0, height=0.0)
    columns_of = _columns(list(sizes), edges)
    columns, lines = _with_bends(columns_of, edges)
    columns = _with_few_crossings(columns, lines)
    heights = {
        item: sizes[item][1] if isinstance(item, str) else _BEND_HEIGHT
        for column in columns
        for item in column
    }
    middles = _middles(columns, lines, heights, row_gap)
    top = min(middles[item] - heights[item] / 2 for item in middles)
    for column in columns:
        low = middles[column[0]] - heights[column[0]] / 2 - top - _LOWEST_TOP
        middles.update((item, middles[item] - top - max(low, 0.0)) for item in column)
    widths = [
        max((sizes[item][0] for item in column if isinstance(item, str)), default=0.0)
        for column in columns
    ]
    lefts = list(itertools.accumulate((width + column_gap for width in widths), initial=0.0))
    layout = Layout(
        width=lefts.pop() - column_gap,
        height=max(middles[item] + heights[item] / 2 for item in middles),
    )
    for name, number in columns_of.items():
        layout.boxes[name] = (lefts[number], middles[name] - heights[name] / 2)
    for source, target in dict.fromkeys(edges):
        first, last = columns_of[source], columns_of[target]
        points = [(lefts[first] + sizes[source][0], middles[source])]
        points.append((lefts[first] + widths[first], middles[source]))
        for number in range(first + 1, last):
            y = middles[Bend(source, number)]
            points += [(lefts[number], y), (lefts[number] + widths[number], y)]
        layout.lines.append([*points, (lefts[last], middles[target])])
    return layout


def _columns(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The column of each box: by its longest way from the left, then as far right as can be."""
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    missing = {name: len(before[name]) for name in names}
    ready = [name for name in names if not missing[name]]
    column = dict.fromkeys(names, 0)
    for name in ready:
        for target in after[name]:
            column[target] = max(column[target], column[name] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)  # the list grows as it is walked
    for name in reversed(ready):
        if after[name]:
            column[name] = min(column[target] for target in after[name]) - 1
    return column


class _Lines:
    """Lines between neighbouring columns: what is left and right of each item."""

    def __init__(self) -> None:
        self.left: dict[Item, list[Item]] = defaultdict(list)
        self.right: dict[Item, list[Item]] = defaultdict(list)

    def add(self, source: Item, target: Item) -> None:
        """Add a line, which may be there."""
        if target not in self.right[source]:
            self.right[source].append(target)
            self.left[target].append(source)

    def crossings(self, columns: Sequence[Sequence[Item]], rank: Mapping[Item, int]) -> int:
        """How often lines cross."""
        found = 0
        for column in columns:
            ends: list[int] = []
            for item in column:
                mine = [rank[other] for other in self.right[item]]
                found += sum(len(ends) - bisect_right(ends, end) for end in mine)
                for end in mine:
                    insort(ends, end)
        return found


def _with_bends(
    columns_of: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> tuple[list[list[Item]], _Lines]:
    """The items of each column, and lines between neighbouring columns only.

    All long lines from one box share their bends, so that they run as one and part late.
    """
    columns: list[list[Item]] = [[] for _ in range(max(columns_of.values()) + 1)]
    for name, number in columns_of.items():
        columns[number].append(name)
    lines = _Lines()
    for source, target in edges:
        item: Item = source
        for number in range(columns_of[source] + 1, columns_of[target]):
            bend = Bend(source, number)
            if bend not in lines.left:
                columns[number].append(bend)
            lines.add(item, bend)
            item = bend
        lines.add(item, target)
    return columns, lines


def _with_few_crossings(columns: list[list[Item]], lines: _Lines) -> list[list[Item]]:
    """Sort each column by the mean rank of its neighbours, to and fro; the best order seen."""
    rank = {item: index for column in columns for index, item in enumerate(column)}
    best, fewest = [list(column) for column in columns], lines.crossings(columns, rank)
    for sweep in range(_SWEEPS):
        neighbours = lines.left if sweep % 2 else lines.right
        for column in columns if sweep % 2 else columns[::-1]:
            wanted = {
                item: fmean([rank[other] for other in neighbours[item]] or [rank[item]])
                for item in column
            }
            column.sort(key=wanted.__getitem__)
            rank.update({item: index for index, item in enumerate(column)})
        if (count := lines.crossings(columns, rank)) < fewest:
            best, fewest = [list(column) for column in columns], count
    return best


def _middles(
    columns: Sequence[Sequence[Item]], lines: _Lines, heights: Mapping[Item, float], gap: float
) -> dict[Item, float]:
    """The height of each item's middle: near those of its neighbours, in its column's order."""
    middles: dict[Item, float] = {}
    for column in columns:
        y = 0.0
        for item in column:
            middles[item] = y + heights[item] / 2
            y += heights[item] + gap
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 else reversed(columns):
            wanted = [
                fmean([middles[o] for o in lines.left[item] + lines.right[item]] or [middles[item]])
                for item in column
            ]
            apart = [
                (heights[one] + heights[two]) / 2 + gap for one, two in itertools.pairwise(column)
            ]
            middles.update(zip(column, _kept_apart(wanted, apart), strict=True))
    return middles


def _kept_apart(wanted: Sequence[float], apart: Sequence[float]) -> list[float]:
    """The ascending positions nearest to those wanted, by squares, at least so far apart.

    Without the distances it is isotonic regression: neighbours in the wrong order are pooled at
    their mean.
    """
    offsets = [0.0]
    for distance in apart:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        pool = (want - offset, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, count = pools.pop()
            total = count + pool[1]
            pool = ((mean * count + pool[0] * pool[1]) / total, total)
        pools.append(pool)
    values = [mean for mean, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(values, offsets, strict=True)]
