"""Charts of results: all tasks at a glance, every restart, and the variants of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flows.plots import COLORS, SERIES, figure_svg, new_figure, plot_style, set_names
from flows.report.figure_cache import Figure, Key, Panel
from flows.report.task_results import TaskResult, score_text
from model.tables.charts import Chart, ChartPanel, Line
from model.tables.result_rows import ResultRow
from model.tasks.cut_data import cut_notes, marked
from model.telling.percent import format_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

_PAPER_MODEL = "BERT_BASE"
_FRAME = 34.0  # pixels of the axis below the rows
_MIN_SPAN = 10.0  # points; a shorter axis makes small differences look large
_SPREAD = 0.22  # height over which the dots of restarts are spread; a row has height 1
_DASHED: Any = {"linestyle": (0, (4, 3))}
_DIAMOND: Any = {
    "marker": "D",
    "linestyle": "",
    "color": COLORS["surface"],
    "markeredgecolor": COLORS["ink"],
    "clip_on": False,
}


def _new_rows(names: Sequence[str], *, row_height: float) -> tuple[MplFigure, Axes]:
    """Return a chart with a row for each name, the first at the top."""
    figure, axes = new_figure(height=_FRAME + row_height * len(names))
    set_names(axes.yaxis, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.xaxis.grid(visible=True)
    return figure, axes


def _widen(low: float, high: float) -> tuple[float, float]:
    """Return limits that span at least 10 points."""
    missing = max(0.0, _MIN_SPAN - (high - low))
    return low - missing / 2, high + missing / 2


@plot_style()
def overview_figure(results: Sequence[TaskResult], *, name: str) -> Figure:
    """Draw one panel with a row for each task: pretrained, from scratch, and majority class."""
    figure, axes = _new_rows([result.title for result in results], row_height=26)
    low = 0.0
    for position, result in enumerate(results):
        if result.majority is not None:
            axes.vlines(
                100 * result.majority,
                position - 0.36,
                position + 0.36,
                color=COLORS["muted"],
                **_DASHED,
            )
        for row, color, offset in ((result.scratch, 1, 0.15), (result.pretrained, 0, -0.15)):
            if row is not None and row.shown is not None:
                mean, sd, y = 100 * row.shown, 100 * (row.sd or 0.0), position + offset
                axes.plot([mean - sd, min(mean + sd, 100)], [y, y], color=SERIES[color])
                axes.plot(mean, y, "o", color=SERIES[color], clip_on=False)
                low = min(low, mean - sd)
    axes.set_xlim(low, 100)
    legend = {
        Key("dot series-1", "pretrained"): any(result.pretrained for result in results),
        Key("dot series-2", "from scratch"): any(result.scratch for result in results),
        Key("dashed", "majority class"): any(result.majority is not None for result in results),
    }
    means = [
        f"{result.title} {' and '.join(f'{row.entry} {score_text(row)}' for row in result.rows)}"
        for result in results
    ]
    title = "Mean on dev, with its standard deviation"
    svg = figure_svg(figure, name=name, title=title, description=f"{'; '.join(means)}.")
    return Figure(
        panels=(Panel(name, title, svg),),
        legend=tuple(key for key, is_drawn in legend.items() if is_drawn),
        note=" ".join(cut_notes((row.entry, row.cut) for r in results for row in r.rows)),
    )


@plot_style()
def restarts_figure(rows: Sequence[ResultRow], *, name: str) -> Figure:
    """Draw a panel for each task with a dot for each restart."""
    by_task = itertools.groupby(rows, key=lambda row: row.task)
    legend = {
        Key("dot series-1", "one restart"): any(row.runs for row in rows),
        Key("tick", "their mean"): any(len(row.runs) > 1 for row in rows),
        Key("triangle series-2", "ensemble"): any(row.ensemble is not None for row in rows),
        Key("dashed", "majority class"): any(row.majority is not None for row in rows),
        Key("diamond", "the paper's BERT_BASE"): any(_PAPER_MODEL in row.paper for row in rows),
    }
    notes = ["Metrics on dev, times 100.", *cut_notes((row.entry, row.cut) for row in rows)]
    return Figure(
        panels=tuple(
            _restarts_panel(list(group), name=f"{name}-{number}")
            for number, (_, group) in enumerate(by_task)
        ),
        legend=tuple(key for key, is_drawn in legend.items() if is_drawn),
        note=" ".join(notes),
    )


def _restarts_panel(rows: Sequence[ResultRow], *, name: str) -> Panel:
    figure, axes = _new_rows([marked(row.entry, row.cut) for row in rows], row_height=30)
    for position, row in enumerate(rows):
        _draw_restarts(axes, position, row)
    axes.set_xlim(_widen(*axes.get_xlim()))
    means = [marked(format_percent(row.mean, row.sd), row.cut) or "no value" for row in rows]
    texts = [f"{row.entry} {mean}" for row, mean in zip(rows, means, strict=True)]
    title = f"{rows[0].task}: {rows[0].metric}"
    description = f"Each restart as a dot. Means: {'; '.join(texts)}."
    return Panel(name, title, figure_svg(figure, name=name, title=title, description=description))


def _draw_restarts(axes: Axes, position: int, row: ResultRow) -> None:
    runs = [100 * run for run in row.runs]
    if row.majority is not None:
        axes.vlines(
            100 * row.majority, position - 0.45, position + 0.45, color=COLORS["muted"], **_DASHED
        )
    offsets = [0.0]
    if len(runs) > 1:
        offsets = [_SPREAD * (2 * n / (len(runs) - 1) - 1) for n in range(len(runs))]
        axes.vlines(sum(runs) / len(runs), position - 0.34, position + 0.34, color=COLORS["ink"])
    for run, offset in zip(runs, offsets, strict=False):
        axes.plot(run, position + offset, "o", color=SERIES[0], clip_on=False)
    if row.ensemble is not None:
        axes.plot(100 * row.ensemble, position, "^", color=SERIES[1], clip_on=False)
    if _PAPER_MODEL in row.paper:
        axes.plot(row.paper[_PAPER_MODEL], position, **_DIAMOND)


@plot_style()
def sweep_figure(chart: Chart, *, name: str) -> Figure:
    """Draw a panel for each task: scores over steps of pretraining, or over model sizes."""
    draw = _sizes_panel if chart.names else _steps_panel
    lines = dict.fromkeys(line.name for panel in chart.panels for line in panel.lines)
    legend = [
        Key(f"line series-{number % len(SERIES) + 1}", label)
        for number, label in enumerate(lines)
        if label
    ]
    if any(panel.paper for panel in chart.panels):
        legend.append(Key("diamond", "the paper's"))
    panels = []
    for number, panel in enumerate(chart.panels):
        title = f"{chart.title}, {panel.title}"
        description = f"{chart.note} {'; '.join(_line_texts(chart, panel))}."
        panel_name = f"{name}-{number}"
        svg = figure_svg(draw(chart, panel), name=panel_name, title=title, description=description)
        note = "" if chart.names else chart.label
        panels.append(Panel(panel_name, panel.title, svg, note))
    return Figure(panels=tuple(panels), legend=tuple(legend), note=chart.note)


def _steps_panel(_: Chart, panel: ChartPanel) -> MplFigure:
    """Draw steps to the right and scores up."""
    figure, axes = new_figure()
    for line, color in zip(panel.lines, itertools.cycle(SERIES), strict=False):
        steps, means = [p.x for p in line.points], [p.mean for p in line.points]
        axes.fill_between(steps, *_band(line), color=color, alpha=0.18, linewidth=0)
        axes.plot(steps, means, "o-", color=color, clip_on=False)
    axes.set_xlim(0, max(point.x for line in panel.lines for point in line.points) or 1)
    axes.set_ylim(_widen(*axes.get_ylim()))
    return figure


def _sizes_panel(chart: Chart, panel: ChartPanel) -> MplFigure:
    """Draw a row for each size and scores to the right."""
    figure, axes = _new_rows(chart.names, row_height=26)
    for line, color in zip(panel.lines, itertools.cycle(SERIES), strict=False):
        rows, means = [p.x for p in line.points], [p.mean for p in line.points]
        axes.hlines(rows, *_band(line), color=color)
        axes.plot(means, rows, "o-", color=color, clip_on=False)
    for position, score in panel.paper:
        axes.plot(score, position, **_DIAMOND)
    axes.set_xlim(_widen(*axes.get_xlim()))
    return figure


def _band(line: Line) -> tuple[list[float], list[float]]:
    low = [point.mean - (point.sd or 0.0) for point in line.points]
    return low, [point.mean + (point.sd or 0.0) for point in line.points]


def _line_texts(chart: Chart, panel: ChartPanel) -> Iterator[str]:
    """Yield the numbers of each line, for readers who do not see the chart."""
    for line in panel.lines:
        scores = []
        for x, mean, sd in line.points:
            place = chart.names[int(x)] if chart.names else f"{x:,.0f}"
            scores.append(f"{place} {mean:.1f}" + ("" if sd is None else f" ± {sd:.1f}"))
        yield f"{line.name or 'own models'}: {', '.join(scores)}"
