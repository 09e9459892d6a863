"""Drawing of the chart of a sweep: a panel for each task, a line for each variant."""

from __future__ import annotations

import io

# Figure and canvas, not pyplot, which chooses a backend for the whole process.
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from model.monitoring.palette import COLORS, GRID, INK
from model.tables.charts import Chart, ChartPanel
from model.tables.result_pictures import DPI, PAPER_STYLE, WIDTH, use_rows, widen

_MAX_COLUMNS, _HEIGHT, _FRAME = 3, 2.9, 0.9
"""Panels of a row, its height, and the height of title and legend, in inches."""


def draw_chart(chart: Chart) -> bytes:
    """Return a PNG; equal charts give equal bytes with one version of matplotlib."""
    columns = min(_MAX_COLUMNS, len(chart.panels))
    rows = -(-len(chart.panels) // columns)
    size = WIDTH * max(columns, 2) / _MAX_COLUMNS, rows * _HEIGHT + _FRAME
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, chart.panels, strict=False):
        if chart.names:
            use_rows(axes, chart.names)
        draw_panel(axes, chart, panel)
        axes.set_title(panel.title, fontsize=10, fontweight="bold", color=INK)
        axes.set_xlabel("times 100" if chart.names else chart.label, fontsize=8, parse_math=False)
        axes.set_ylabel(chart.label if chart.names else "times 100", fontsize=8, parse_math=False)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x" if chart.names else "y", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(chart.panels) :]:
        axes.set_axis_off()
    handles, labels = grid.flat[0].get_legend_handles_labels()
    if labels:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=len(labels),
            fontsize=8,
            frameon=False,
        )
    figure.suptitle(chart.title, fontsize=12)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # no version in the file
    return data.getvalue()


def draw_panel(axes: Axes, chart: Chart, panel: ChartPanel) -> None:
    """Draw the means of a task, times 100, with one standard deviation either way.

    Steps of pretraining go to the right and scores up. Each model size has a row (`use_rows`), with
    scores to the right.
    """
    for number, line in enumerate(panel.lines):
        color, label = COLORS[number % len(COLORS)], line.name or None
        xs, means = [point.x for point in line.points], [point.mean for point in line.points]
        low = [point.mean - (point.sd or 0.0) for point in line.points]
        high = [point.mean + (point.sd or 0.0) for point in line.points]
        if chart.names:
            axes.hlines(xs, low, high, color=color)
            axes.plot(means, xs, "o-", color=color, clip_on=False, label=label)
        else:
            axes.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)
            axes.plot(xs, means, "o-", color=color, clip_on=False, label=label)
    if chart.names:
        for number, (row, score) in enumerate(panel.paper):
            axes.plot(score, row, **PAPER_STYLE, label="" if number else "the paper's")
        axes.set_xlim(*widen(*axes.get_xlim()))
    else:
        last = max(point.x for line in panel.lines for point in line.points)
        axes.set_xlim(0, last or 1)
        axes.set_ylim(*widen(*axes.get_ylim()))
