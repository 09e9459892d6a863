"""Charts of a sweep: scores over steps of pretraining, or over model sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.tables.filled_tables import FilledTable, OurRow
from model.tables.paper_results import PERPLEXITY

_STEPS, _SIZES = "figure-5", "table-6"


class ChartPoint(NamedTuple):
    """A mean over restarts, times 100."""

    x: float
    mean: float
    sd: float | None


class Line(NamedTuple):
    """Points in the order of x."""

    name: str
    """Variants of the sweep's other axes; "" without other axes."""

    points: tuple[ChartPoint, ...]


class ChartPanel(NamedTuple):
    """One task."""

    title: str
    lines: tuple[Line, ...]
    paper: tuple[tuple[float, float], ...]
    """The paper's numbers where it has the same variants and ours are on its data, times 100."""


class Chart(NamedTuple):
    """Panels that share the horizontal axis."""

    title: str
    label: str
    names: tuple[str, ...]
    """Labels at 0, 1, 2, ..., if x is not a number of steps."""

    panels: tuple[ChartPanel, ...]
    note: str


def chart_of(table: FilledTable) -> Chart | None:
    """Return the chart of Figure 5 or Table 6 with our rows; None for other tables."""
    variants = list(dict.fromkeys(row.variant for row in table.rows))
    with_steps = table.key == _STEPS and all(name.isdecimal() for name in variants)
    if not variants or not (with_steps or table.key == _SIZES):
        return None
    places = {name: float(name) if with_steps else float(n) for n, name in enumerate(variants)}
    columns = [column for column in table.columns if column.metric != PERPLEXITY]
    panels = tuple(
        panel for column in columns if (panel := _panel(table, column.key, places)).lines
    )
    if not panels:
        return None
    return Chart(
        title=table.title,
        label="steps of pretraining" if with_steps else "layers-width-heads, and LM perplexity",
        names=() if with_steps else tuple(_size_name(table.rows, name) for name in variants),
        panels=panels,
        note="On dev, times 100: mean over the restarts, and one standard deviation either way.",
    )


def _panel(table: FilledTable, key: str, places: dict[str, float]) -> ChartPanel:
    lines: dict[str, list[ChartPoint]] = {}
    for row in table.rows:
        if (cell := row.cells.get(key)) is not None:
            sd = None if cell.sd is None else 100 * cell.sd
            point = ChartPoint(places[row.variant], 100 * cell.value, sd)
            lines.setdefault(", ".join(row.context.values()), []).append(point)
    return ChartPanel(
        title=key,
        lines=tuple(Line(name, tuple(sorted(points))) for name, points in lines.items()),
        paper=tuple(
            (places[row.variant], value)
            for row in table.paper
            if not table.data
            and row.variant in places
            and (value := row.values.get(key)) is not None
        ),
    )


def _size_name(rows: Sequence[OurRow], variant: str) -> str:
    """`12-768-12 (3.99)`: with the perplexity, where all of this size have one phase."""
    found = {
        cell.text
        for row in rows
        if row.variant == variant and (cell := row.cells.get("LM perplexity")) is not None
    }
    return f"{variant} ({found.pop()})" if len(found) == 1 else variant
