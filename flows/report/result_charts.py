"""Charts of results: all tasks at a glance, every restart, and the variants of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flows.plots import SERIES, figure_svg, new_figure, plot_style, shorten_name
from flows.report.figure_cache import Figure, Key, Panel
from flows.report.task_results import TaskResult
from model.monitoring.palette import INK
from model.tables.charts import Chart
from model.tables.results import ResultRow, task_label
from model.tasks.reduced_data import cut_notes, marked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

_AXIS_HEIGHT = 34.0  # pixels


def _new_rows(names: Sequence[str], *, row_height: float) -> tuple[MplFigure, Axes]:
    """Return a chart with a row for each name; heights are in pixels."""
    from model.tables.pictures import use_rows

    figure, axes = new_figure(height=_AXIS_HEIGHT + row_height * len(names))
    use_rows(axes, [shorten_name(name) for name in names])
    axes.xaxis.grid(visible=True)
    return figure, axes


def _legend(keys: Mapping[Key, bool]) -> tuple[Key, ...]:
    """Return the keys of marks that are drawn."""
    return tuple(key for key, is_drawn in keys.items() if is_drawn)


@plot_style()
def overview_figure(results: Sequence[TaskResult], *, name: str) -> Figure:
    """Draw one panel with a row for each task: pretrained, from scratch, and majority class."""
    from model.tables.pictures import MAJORITY_STYLE, spread

    firsts = [result.rows[0] for result in results]
    figure, axes = _new_rows([row.title or row.task for row in firsts], row_height=26)
    low = 0.0
    for position, result in enumerate(results):
        if result.majority is not None:
            ends = (position - 0.36, position + 0.36)
            axes.vlines(100 * result.majority, *ends, **MAJORITY_STYLE)
        for row, color, offset in ((result.scratch, 1, 0.15), (result.pretrained, 0, -0.15)):
            if row is not None and row.shown is not None:
                mean, sd, y = 100 * row.shown, 100 * (row.sd or 0.0), position + offset
                start, end = spread(mean, sd)
                axes.hlines(y, start, end, color=SERIES[color])
                axes.plot(mean, y, "o", color=SERIES[color], clip_on=False)
                low = min(low, start)
    axes.set_xlim(low, 100)
    data = ", ".join(dict.fromkeys(row.data for row in firsts if row.data))
    title = f"{task_label('Mean on dev', data)}, with its standard deviation"
    keys = {
        Key("dot series-1", "pretrained"): any(result.pretrained for result in results),
        Key("dot series-2", "from scratch"): any(result.scratch for result in results),
        Key("dashed", "majority class"): any(result.majority is not None for result in results),
    }
    notes = cut_notes((row.entry, row.cut) for result in results for row in result.rows)
    panel = Panel(name, title, figure_svg(figure, name=name, title=title))
    return Figure(panels=(panel,), legend=_legend(keys), note=" ".join(notes))


@plot_style()
def restarts_figure(rows: Sequence[ResultRow], *, name: str) -> Figure:
    """Draw a panel for each task with a dot for each restart."""
    from model.tables.pictures import PAPER_MODEL, draw_marks, widen

    panels = []
    for number, (_, group) in enumerate(itertools.groupby(rows, key=lambda row: row.task)):
        entries = list(group)
        figure, axes = _new_rows([marked(row.entry, row.cut) for row in entries], row_height=30)
        for y, row in enumerate(entries):
            draw_marks(axes, row, y, color=SERIES[0])
            if len(row.runs) > 1 and row.mean is not None:
                axes.vlines(100 * row.mean, y - 0.34, y + 0.34, color=INK)
        axes.set_xlim(*widen(*axes.get_xlim()))
        panel_name, title = f"{name}-{number}", f"{entries[0].name}: {entries[0].metric}"
        panels.append(Panel(panel_name, title, figure_svg(figure, name=panel_name, title=title)))
    keys = {
        Key("dot series-1", "one restart"): any(row.runs for row in rows),
        Key("tick", "their mean"): any(len(row.runs) > 1 for row in rows),
        Key("triangle series-2", "ensemble"): any(row.ensemble is not None for row in rows),
        Key("dashed", "majority class"): any(row.majority is not None for row in rows),
        Key("diamond", "the paper's BERT_BASE"): any(PAPER_MODEL in row.paper for row in rows),
    }
    notes = ["Metrics on dev, times 100.", *cut_notes((row.entry, row.cut) for row in rows)]
    return Figure(panels=tuple(panels), legend=_legend(keys), note=" ".join(notes))


@plot_style()
def sweep_figure(chart: Chart, *, name: str) -> Figure:
    """Draw a panel for each task: scores over steps of pretraining, or over model sizes."""
    from model.tables.pictures import draw_panel

    panels = []
    for number, panel in enumerate(chart.panels):
        figure, axes = _new_rows(chart.names, row_height=26) if chart.names else new_figure()
        draw_panel(axes, chart, panel)
        panel_name, title = f"{name}-{number}", f"{chart.title}, {panel.title}"
        svg = figure_svg(figure, name=panel_name, title=title)
        panels.append(Panel(panel_name, panel.title, svg, "" if chart.names else chart.label))
    lines = dict.fromkeys(line for panel in chart.panels for line in panel.lines)
    keys = {
        Key(f"line series-{number % len(SERIES) + 1}", label): label != ""
        for number, label in enumerate(lines)
    }
    keys[Key("diamond", "the paper's")] = any(panel.paper for panel in chart.panels)
    note = "On dev, times 100: mean over the restarts, and one standard deviation either way."
    return Figure(panels=tuple(panels), legend=_legend(keys), note=note)
