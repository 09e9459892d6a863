"""Chart of results: all tasks at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flows.plots import Chart, linear_axis, row_axis
from flows.report.figures import Figure, Key, Panel
from flows.report.task_results import TaskResult
from model.tables.results import task_label
from model.task_results import cut_notes

_AXIS_HEIGHT, _ROW_HEIGHT = 34.0, 26.0  # pixels


def drawn_keys(keys: Mapping[Key, bool]) -> tuple[Key, ...]:
    """Return the keys of marks that are drawn."""
    return tuple(key for key, is_drawn in keys.items() if is_drawn)


def overview_figure(results: Sequence[TaskResult]) -> Figure:
    """Draw one panel with a row for each task: pretrained, from scratch, and majority class."""
    firsts = [result.rows[0] for result in results]
    data = ", ".join(dict.fromkeys(row.data for row in firsts if row.data))
    title = f"{task_label('Mean on dev', data)}, with its standard deviation"
    means = [
        (100 * row.shown, 100 * (row.sd or 0.0), color, position + offset)
        for position, result in enumerate(results)
        for row, color, offset in (
            (result.scratch, "series-2", 0.15),
            (result.pretrained, "series-1", -0.15),
        )
        if row is not None and row.shown is not None
    ]
    low = min([0.0, *(spread(mean, sd)[0] for mean, sd, _, _ in means)])
    names = [row.title or row.task for row in firsts]
    height = _AXIS_HEIGHT + _ROW_HEIGHT * len(names)
    chart = Chart(title, x=linear_axis(low, 100), y=row_axis(names), height=height, has_rows=True)
    for position, result in enumerate(results):
        if result.majority is not None:
            x = 100 * result.majority
            chart.segment((x, position - 0.36), (x, position + 0.36), "muted", is_dashed=True)
    for mean, sd, color, y in means:
        start, end = spread(mean, sd)
        chart.segment((start, y), (end, y), color)
        chart.dots([(mean, y)], color)
    keys = {
        Key("dot series-1", "pretrained"): any(result.pretrained for result in results),
        Key("dot series-2", "from scratch"): any(result.scratch for result in results),
        Key("dashed", "majority class"): any(result.majority is not None for result in results),
    }
    notes = cut_notes((row.entry, row.cut) for result in results for row in result.rows)
    return Figure((Panel(title, chart.svg()),), drawn_keys(keys), " ".join(notes))


def spread(mean: float, sd: float) -> tuple[float, float]:
    """Return one standard deviation either way of a mean, times 100, without impossible scores.

    Only correlations can be below 0.
    """
    return max(mean - sd, 0.0 if mean >= 0 else -100.0), min(mean + sd, 100.0)
