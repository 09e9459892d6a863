"""A chart of a sweep as a picture: a panel for each task, a line with a band for each variant."""

from __future__ import annotations

import io

# Figure and canvas themselves, not pyplot, which would choose a backend for the whole process.
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from model.tables.charts import Chart, ChartPanel, Line
from model.tables.result_pictures import COLOURS, DPI, INK, WIDTH

_ACROSS, _HEIGHT, _FRAME = 3, 2.9, 0.9  # panels side by side, inches of a row, of title and legend


def draw_chart(chart: Chart) -> bytes:
    """A PNG of the means over restarts with a band of one standard deviation; equal charts give
    equal bytes with one version of matplotlib."""
    across = min(_ACROSS, len(chart.panels))
    rows = -(-len(chart.panels) // across)
    figure = Figure(
        figsize=(WIDTH * max(across, 2) / _ACROSS, rows * _HEIGHT + _FRAME),
        dpi=DPI,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, across, squeeze=False)
    for axes, panel in zip(grid.flat, chart.panels, strict=False):
        _draw_panel(axes, panel, chart=chart)
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
    figure.savefig(data, format="png", metadata={"Software": None})  # else it names the version
    return data.getvalue()


def _draw_panel(axes: Axes, panel: ChartPanel, *, chart: Chart) -> None:
    for number, line in enumerate(panel.lines):
        _draw_line(axes, line, colour=COLOURS[number % len(COLOURS)])
    if panel.paper:
        xs, ys = zip(*panel.paper, strict=True)
        axes.scatter(xs, ys, s=42, marker="D", color=INK, zorder=6, label="the paper's")
    axes.set_title(panel.title, fontsize=10, fontweight="bold", color=INK)
    axes.set_xlabel(chart.label, fontsize=8, parse_math=False)
    axes.set_ylabel("times 100", fontsize=8)
    if chart.names:
        axes.set_xticks(range(len(chart.names)))
        axes.set_xticklabels(chart.names, rotation=30, ha="right", parse_math=False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Axes, line: Line, *, colour: str) -> None:
    xs = [point.x for point in line.points]
    means = [point.mean for point in line.points]
    if all(point.sd is not None for point in line.points):
        low = [point.mean - (point.sd or 0.0) for point in line.points]
        high = [point.mean + (point.sd or 0.0) for point in line.points]
        axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(xs, means, color=colour, marker="o", markersize=4, label=line.name or None)
