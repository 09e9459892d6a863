"""Data of the charts of a sweep: scores over steps of pretraining, or over model sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from model.tables.filled_tables import FilledTable, OurRow
from model.tables.paper import PERPLEXITY, STEPS_FIGURE

PAPER_MODEL = "BERT_BASE"
"""Model of the paper that charts show."""

_MIN_SPAN = 10.0
"""Length of the shortest axis of scores, in points: small differences must not look large."""

_SIZES = "table-6"


class ChartPoint(NamedTuple):
    """A mean over restarts, times 100."""

    x: float
    mean: float
    sd: float
    """Standard deviation; 0 for fewer than two restarts."""


class ChartPanel(NamedTuple):
    """One task."""

    title: str
    lines: Mapping[str, Sequence[ChartPoint]]
    """Points in the order of x, by variants of the sweep's other axes; "" without other axes."""

    paper: Sequence[tuple[float, float]]
    """The paper's numbers where it has the same variants and ours are on its data, times 100."""


class Chart(NamedTuple):
    """Panels that share the horizontal axis."""

    title: str
    label: str
    names: Sequence[str]
    """Labels at 0, 1, 2, ..., if x is not a number of steps."""

    panels: Sequence[ChartPanel]


def chart_of(table: FilledTable) -> Chart | None:
    """Return the chart of Figure 5 or Table 6 with our rows; None for other tables."""
    variants = list(dict.fromkeys(row.variant for row in table.rows))
    with_steps = table.key == STEPS_FIGURE.key and all(name.isdecimal() for name in variants)
    if not variants or not (with_steps or table.key == _SIZES):
        return None
    places = {name: float(name) if with_steps else float(n) for n, name in enumerate(variants)}
    columns = [column.key for column in table.columns if column.metric != PERPLEXITY]
    panels = [panel for key in columns if (panel := _panel(table, key, places)).lines]
    if not panels:
        return None
    return Chart(
        title=table.heading,
        label="steps of pretraining" if with_steps else "layers-width-heads, and LM perplexity",
        names=[] if with_steps else [_size_name(table.rows, name) for name in variants],
        panels=panels,
    )


def _panel(table: FilledTable, key: str, places: Mapping[str, float]) -> ChartPanel:
    lines: dict[str, list[ChartPoint]] = {}
    for row in table.rows:
        if (cell := row.cells.get(key)) is not None:
            point = ChartPoint(places[row.variant], 100 * cell.value, 100 * (cell.sd or 0.0))
            lines.setdefault(", ".join(row.context.values()), []).append(point)
    paper = [
        (places[row.variant], value)
        for row in table.paper
        if row.variant in places and (value := row.values.get(key)) is not None
    ]
    return ChartPanel(
        title=key,
        lines={name: sorted(points) for name, points in lines.items()},
        paper=[] if table.data else paper,
    )


def _size_name(rows: Sequence[OurRow], variant: str) -> str:
    """Return the variant with its perplexity if all of this size have one phase."""
    cells = [row.cells.get("LM perplexity") for row in rows if row.variant == variant]
    texts = {cell.text for cell in cells if cell is not None}
    return f"{variant} ({texts.pop()})" if len(texts) == 1 else variant


def spread(mean: float, sd: float) -> tuple[float, float]:
    """Return one standard deviation either way of a mean, times 100, without impossible scores.

    Only correlations can be below 0.
    """
    return max(mean - sd, 0.0 if mean >= 0 else -100.0), min(mean + sd, 100.0)


def widen(low: float, high: float) -> tuple[float, float]:
    """Return limits of an axis of scores that span at least 10 points."""
    missing = max(0.0, _MIN_SPAN - (high - low))
    return low - missing / 2, high + missing / 2
