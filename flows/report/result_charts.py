"""Charts of results: all tasks at a glance, every restart, and the variants of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flows.plots import COLORS, SERIES, figure_svg, new_figure, plot_style, set_names
from flows.report.figure_cache import Figure, Key, Panel
from flows.report.task_results import TaskResult
from model.tables.charts import Chart, ChartPanel, Line
from model.tables.result_rows import ResultRow
from model.tasks.cut_data import cut_notes, marked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

_PAPER_MODEL = "BERT_BASE"
_AXIS_HEIGHT = 34.0  # pixels
_MIN_SPAN = 10.0  # points; a shorter axis makes small differences look large
_MAJORITY: Any = {"color": COLORS["muted"], "linestyle": (0, (4, 3))}
_PAPER: Any = {
    "marker": "D",
    "linestyle": "",
    "color": COLORS["surface"],
    "markeredgecolor": COLORS["ink"],
    "clip_on": False,
}


def _new_rows(names: Sequence[str], *, row_height: float) -> tuple[MplFigure, Axes]:
    """Return a chart with a row for each name, the first at the top; rows have height 1."""
    figure, axes = new_figure(height=_AXIS_HEIGHT + row_height * len(names))
    set_names(axes.yaxis, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.xaxis.grid(visible=True)
    return figure, axes


def _widen(low: float, high: float) -> tuple[float, float]:
    """Return limits that span at least 10 points."""
    missing = max(0.0, _MIN_SPAN - (high - low))
    return low - missing / 2, high + missing / 2


def _legend(keys: Mapping[Key, bool]) -> tuple[Key, ...]:
    """Return the keys of marks that are drawn."""
    return tuple(key for key, is_drawn in keys.items() if is_drawn)


@plot_style()
def overview_figure(results: Sequence[TaskResult], *, name: str) -> Figure:
    """Draw one panel with a row for each task: pretrained, from scratch, and majority class."""
    figure, axes = _new_rows([result.title for result in results], row_height=26)
    low = 0.0
    for position, result in enumerate(results):
        if result.majority is not None:
            ends = (position - 0.36, position + 0.36)
            axes.vlines(100 * result.majority, *ends, **_MAJORITY)
        for row, color, offset in ((result.scratch, 1, 0.15), (result.pretrained, 0, -0.15)):
            if row is not None and row.shown is not None:
                mean, sd, y = 100 * row.shown, 100 * (row.sd or 0.0), position + offset
                axes.hlines(y, mean - sd, min(mean + sd, 100), color=SERIES[color])
                axes.plot(mean, y, "o", color=SERIES[color], clip_on=False)
                low = min(low, mean - sd)
    axes.set_xlim(low, 100)
    title = "Mean on dev, with its standard deviation"
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
    panels = []
    for number, (task, group) in enumerate(itertools.groupby(rows, key=lambda row: row.task)):
        entries = list(group)
        figure, axes = _new_rows([marked(row.entry, row.cut) for row in entries], row_height=30)
        for position, row in enumerate(entries):
            _draw_restarts(axes, position, row)
        axes.set_xlim(_widen(*axes.get_xlim()))
        panel_name, title = f"{name}-{number}", f"{task}: {entries[0].metric}"
        panels.append(Panel(panel_name, title, figure_svg(figure, name=panel_name, title=title)))
    keys = {
        Key("dot series-1", "one restart"): any(row.runs for row in rows),
        Key("tick", "their mean"): any(len(row.runs) > 1 for row in rows),
        Key("triangle series-2", "ensemble"): any(row.ensemble is not None for row in rows),
        Key("dashed", "majority class"): any(row.majority is not None for row in rows),
        Key("diamond", "the paper's BERT_BASE"): any(_PAPER_MODEL in row.paper for row in rows),
    }
    notes = ["Metrics on dev, times 100.", *cut_notes((row.entry, row.cut) for row in rows)]
    return Figure(panels=tuple(panels), legend=_legend(keys), note=" ".join(notes))


def _draw_restarts(axes: Axes, position: int, row: ResultRow) -> None:
    if row.majority is not None:
        axes.vlines(100 * row.majority, position - 0.45, position + 0.45, **_MAJORITY)
    runs = [100 * run for run in row.runs]
    heights = [float(position)]
    if len(runs) > 1:  # spread the dots, because equal scores would hide each other
        heights = [position + 0.44 * n / (len(runs) - 1) - 0.22 for n in range(len(runs))]
        mean = sum(runs) / len(runs)
        axes.vlines(mean, position - 0.34, position + 0.34, color=COLORS["ink"])
    if runs:
        axes.plot(runs, heights, "o", color=SERIES[0], clip_on=False)
    if row.ensemble is not None:
        axes.plot(100 * row.ensemble, position, "^", color=SERIES[1], clip_on=False)
    if _PAPER_MODEL in row.paper:
        axes.plot(row.paper[_PAPER_MODEL], position, **_PAPER)


@plot_style()
def sweep_figure(chart: Chart, *, name: str) -> Figure:
    """Draw a panel for each task: scores over steps of pretraining, or over model sizes."""
    draw = _sizes_panel if chart.names else _steps_panel
    note = "" if chart.names else chart.label
    panels = []
    for number, panel in enumerate(chart.panels):
        panel_name, title = f"{name}-{number}", f"{chart.title}, {panel.title}"
        svg = figure_svg(draw(chart, panel), name=panel_name, title=title)
        panels.append(Panel(panel_name, panel.title, svg, note))
    lines = dict.fromkeys(line.name for panel in chart.panels for line in panel.lines)
    keys = {
        Key(f"line series-{number % len(SERIES) + 1}", label): label != ""
        for number, label in enumerate(lines)
    }
    keys[Key("diamond", "the paper's")] = any(panel.paper for panel in chart.panels)
    return Figure(panels=tuple(panels), legend=_legend(keys), note=chart.note)


def _steps_panel(_: Chart, panel: ChartPanel) -> MplFigure:
    """Draw steps to the right and scores up."""
    figure, axes = new_figure()
    for line, color in zip(panel.lines, itertools.cycle(SERIES), strict=False):
        steps, means, low, high = _columns(line)
        axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(steps, means, "o-", color=color, clip_on=False)
    axes.set_xlim(0, max(point.x for line in panel.lines for point in line.points) or 1)
    axes.set_ylim(_widen(*axes.get_ylim()))
    return figure


def _sizes_panel(chart: Chart, panel: ChartPanel) -> MplFigure:
    """Draw a row for each size and scores to the right."""
    figure, axes = _new_rows(chart.names, row_height=26)
    for line, color in zip(panel.lines, itertools.cycle(SERIES), strict=False):
        rows, means, low, high = _columns(line)
        axes.hlines(rows, low, high, color=color)
        axes.plot(means, rows, "o-", color=color, clip_on=False)
    for position, score in panel.paper:
        axes.plot(score, position, **_PAPER)
    axes.set_xlim(_widen(*axes.get_xlim()))
    return figure


def _columns(line: Line) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return positions, means, and means minus and plus one standard deviation."""
    xs, means = [point.x for point in line.points], [point.mean for point in line.points]
    low = [point.mean - (point.sd or 0.0) for point in line.points]
    return xs, means, low, [point.mean + (point.sd or 0.0) for point in line.points]
