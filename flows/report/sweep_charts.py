"""Charts of a sweep: scores over steps of pretraining, or over model sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flows.plots import NUM_SERIES, Chart, linear_axis
from flows.report.figures import Figure, Key, Panel
from flows.report.result_charts import drawn_keys, new_rows, spread, widen
from model.tables.filled_tables import FilledTable, OurRow
from model.tables.paper import PERPLEXITY, STEPS_FIGURE

_SIZES = "table-6"


class SweepPoint(NamedTuple):
    """A mean over restarts, times 100."""

    x: float
    mean: float
    sd: float
    """Standard deviation; 0 for fewer than two restarts."""


class SweepPanel(NamedTuple):
    """One task."""

    title: str
    lines: Mapping[str, Sequence[SweepPoint]]
    """Points in the order of x, by variants of the sweep's other axes; "" without other axes."""

    paper: Sequence[tuple[float, float]]
    """The paper's numbers where it has the same variants and ours are on its data, times 100."""


class SweepChart(NamedTuple):
    """Panels that share an axis."""

    title: str
    label: str
    names: Sequence[str]
    """Labels at 0, 1, 2, ..., if x is not a number of steps."""

    panels: Sequence[SweepPanel]


def sweep_figure(table: FilledTable) -> Figure | None:
    """Draw a panel for each task of Figure 5 or Table 6; None for other tables."""
    if (sweep := find_chart(table)) is None:
        return None
    draw = _sizes_panel if sweep.names else _steps_panel
    panels = tuple(draw(sweep, panel) for panel in sweep.panels)
    lines = dict.fromkeys(line for panel in sweep.panels for line in panel.lines)
    keys = {
        Key(f"line {_series(number)}", label): label != "" for number, label in enumerate(lines)
    }
    keys[Key("diamond", "the paper's")] = any(panel.paper for panel in sweep.panels)
    note = "On dev, times 100: mean over the restarts, and one standard deviation either way."
    return Figure(panels, drawn_keys(keys), note)


def _series(number: int) -> str:
    return f"series-{number % NUM_SERIES + 1}"


def _spreads(panel: SweepPanel) -> list[float]:
    """Return the ends of one standard deviation either way of every mean."""
    points = itertools.chain.from_iterable(panel.lines.values())
    return [end for point in points for end in spread(point.mean, point.sd)]


def _sizes_panel(sweep: SweepChart, panel: SweepPanel) -> Panel:
    """Draw a row for each model size, with scores to the right."""
    values = [*_spreads(panel), *(score for _, score in panel.paper)]
    scores = linear_axis(*widen(min(values), max(values)))
    chart = new_rows(f"{sweep.title}, {panel.title}", sweep.names, scores, row_height=26)
    for number, points in enumerate(panel.lines.values()):
        for point in points:
            low, high = spread(point.mean, point.sd)
            chart.segment((low, point.x), (high, point.x), _series(number))
        means = [(point.mean, point.x) for point in points]
        chart.line(means, _series(number))
        chart.dots(means, _series(number))
    for row, score in panel.paper:
        chart.diamond((score, row))
    return Panel(panel.title, chart.svg())


def _steps_panel(sweep: SweepChart, panel: SweepPanel) -> Panel:
    """Draw scores over the steps of pretraining."""
    values = _spreads(panel)
    last = max(point.x for points in panel.lines.values() for point in points)
    chart = Chart(
        f"{sweep.title}, {panel.title}",
        x=linear_axis(0.0, last),
        y=linear_axis(*widen(min(values), max(values))),
    )
    for number, points in enumerate(panel.lines.values()):
        chart.band([(p.x, *spread(p.mean, p.sd)) for p in points], _series(number))
        means = [(point.x, point.mean) for point in points]
        chart.line(means, _series(number))
        chart.dots(means, _series(number))
    return Panel(panel.title, chart.svg(), sweep.label)


def find_chart(table: FilledTable) -> SweepChart | None:
    """Return the data of Figure 5 or Table 6 with our rows; None for other tables."""
    variants = list(dict.fromkeys(row.variant for row in table.rows))
    with_steps = table.key == STEPS_FIGURE.key and all(name.isdecimal() for name in variants)
    if not variants or not (with_steps or table.key == _SIZES):
        return None
    places = {name: float(name) if with_steps else float(n) for n, name in enumerate(variants)}
    columns = [column.key for column in table.columns if column.metric != PERPLEXITY]
    panels = [panel for key in columns if (panel := _panel(table, key, places)).lines]
    if not panels:
        return None
    return SweepChart(
        title=table.heading,
        label="steps of pretraining" if with_steps else "layers-width-heads, and LM perplexity",
        names=[] if with_steps else [_size_name(table.rows, name) for name in variants],
        panels=panels,
    )


def _panel(table: FilledTable, key: str, places: Mapping[str, float]) -> SweepPanel:
    lines: dict[str, list[SweepPoint]] = {}
    for row in table.rows:
        if (cell := row.cells.get(key)) is not None:
            point = SweepPoint(places[row.variant], 100 * cell.value, 100 * (cell.sd or 0.0))
            lines.setdefault(", ".join(row.context.values()), []).append(point)
    paper = [
        (places[row.variant], value)
        for row in table.paper
        if row.variant in places and (value := row.values.get(key)) is not None
    ]
    return SweepPanel(
        title=key,
        lines={name: sorted(points) for name, points in lines.items()},
        paper=[] if table.data else paper,
    )


def _size_name(rows: Sequence[OurRow], variant: str) -> str:
    """Return the variant with its perplexity if all of this size have one phase."""
    cells = [row.cells.get("LM perplexity") for row in rows if row.variant == variant]
    texts = {cell.text for cell in cells if cell is not None}
    return f"{variant} ({texts.pop()})" if len(texts) == 1 else variant
