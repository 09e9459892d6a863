"""Pictures of results: bars of all entries, and the lines of a sweep."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # pyplot chooses a backend for the whole process
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from model.monitoring.formatting import format_percent
from model.monitoring.palette import COLORS, GRAY, GRID, INK, SURFACE
from model.tables.charts import PAPER_MODEL, Chart, ChartPanel, spread, widen
from model.tables.results import MAJORITY_CLASS, ResultRow, main_rows, with_bracket
from model.task_results import DEV
from model.tasks.reduced_data import cut_notes, marked
from schemas.errors import PredictionsError

_OTHER, _MAJORITY = "#BBBBBB", "#CCCCCC"
_WIDTH, _DPI = 10.0, 120  # inches
_ROW, _FRAME = 0.36, 0.95  # inches: of a bar, and of title and axis
_LEGEND_LINE, _LEGEND_COLUMNS = 0.18, 3  # inches, and number of columns
_NOTE_WIDTH = 100  # letters of a line of notes
_GAP = 0.9  # between tasks, in bars
_SPREAD = 0.4
"""Distance of the first and the last dot of a row, in rows: equal scores would hide each other."""

_NUMBERS, _RIGHT = 102.0, 112.0  # start and end of the column of numbers
_MAX_COLUMNS, _PANEL_HEIGHT, _PANELS_FRAME = 3, 2.9, 0.9
"""Panels of a row, its height, and the height of title and legend, in inches."""

PAPER_STYLE: Any = {
    "marker": "D",
    "linestyle": "",
    "color": SURFACE,
    "markeredgecolor": INK,
    "clip_on": False,
    "zorder": 6,
}
"""Style of the paper's scores."""

MAJORITY_STYLE: Any = {"color": GRAY, "linestyle": (0, (4, 3)), "linewidth": 1.3, "zorder": 3}


def draw_results(rows: Sequence[ResultRow]) -> bytes:
    """Return a PNG of the main metric on dev of every entry, in groups by task.

    A bar is the mean over the restarts of the best grid point, the whisker its standard deviation,
    the dots are the single restarts, a triangle is the ensemble. A dashed line is the majority
    class, a diamond the paper's BERT_BASE, hollow if it is on test. Equal rows give equal bytes
    with one version of matplotlib.

    Raises:
        PredictionsError: No row has a main metric on dev.
    """
    shown = [row for row in main_rows(rows) if row.shown is not None]
    if not shown:
        raise PredictionsError(
            "found no entry with a main metric on dev, expected at least one: there is nothing to "
            "draw"
        )
    places = [0.0]
    for before, row in itertools.pairwise(shown):
        places.append(places[-1] + (1.0 if row.task == before.task else 1.0 + _GAP))
    colors = _colors(shown)
    legend = _legend(shown, colors)
    notes = cut_notes((row.entry, row.cut) for row in shown)
    cut = [line for note in notes for line in textwrap.wrap(note, _NOTE_WIDTH)]
    lines = -(-len(legend) // _LEGEND_COLUMNS) + len(cut)
    height = (places[-1] + 2) * _ROW + _FRAME + lines * _LEGEND_LINE
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    _draw_bars(axes, shown, places, colors)
    axes.set_xlabel("\n".join(["times 100", *cut]), parse_math=False)
    figure.legend(
        handles=legend, loc="outside lower center", ncols=_LEGEND_COLUMNS, fontsize=8, frameon=False
    )
    figure.suptitle("Main metric on dev", fontsize=12)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # no version in the file
    return data.getvalue()


def _colors(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return a color for each model; gray for the majority class and if all colors are used."""
    free = iter(COLORS)
    return {
        model: _MAJORITY if model == MAJORITY_CLASS else next(free, _OTHER)
        for model in dict.fromkeys(row.model for row in rows)
    }


def _draw_bars(
    axes: Axes, rows: Sequence[ResultRow], places: Sequence[float], colors: Mapping[str, str]
) -> None:
    """Draw a bar for each row at its place, downward, and the name of a task above its first."""
    whisker: Any = {"color": INK, "linewidth": 1.2, "capsize": 3, "zorder": 4}
    tasks = set()
    for row, y in zip(rows, places, strict=True):
        value = 100 * (row.shown or 0.0)
        axes.barh(y, value, height=0.72, color=colors[row.model], zorder=2)
        if row.sd is not None:
            low, high = spread(value, 100 * row.sd)
            axes.errorbar(value, y, xerr=[[value - low], [high - value]], **whisker)
        draw_marks(axes, row, y)
        number = marked(format_percent(row.shown, row.sd), row.cut)
        axes.text(_NUMBERS, y, number, va="center", fontsize=8, color=INK)
    for row, y in zip(rows, places, strict=True):
        if row.task not in tasks:
            tasks.add(row.task)
            style: Any = {"va": "bottom", "fontsize": 9, "fontweight": "bold", "color": INK}
            axes.text(0.0, y - 0.52, with_bracket(row.name, row.metric), **style)
    axes.set_ylim(places[-1] + 0.7, places[0] - 1.3)
    # Correlations can be below 0.
    lowest = min(100 * score for row in rows for score in (row.shown or 0.0, *row.runs))
    axes.set_xlim(min(0.0, lowest - 3), _RIGHT)
    axes.set_xticks(range(0, 101, 10))
    axes.set_yticks(places)
    axes.set_yticklabels([row.entry for row in rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.axvline(0.0, color=GRAY, linewidth=0.8)


def draw_marks(axes: Axes, row: ResultRow, y: float, *, color: str = SURFACE) -> None:
    """Draw the single restarts, the ensemble, the majority class and the paper's model at y.

    Args:
        axes: Axes of scores, times 100.
        row: Results of an entry.
        y: Position of the row; the next row is at `y + 1`.
        color: Color of the restarts.
    """
    if row.majority is not None:
        axes.vlines(100 * row.majority, y - 0.5, y + 0.5, **MAJORITY_STYLE)
    runs = [100 * run for run in row.runs]
    last = len(runs) - 1
    heights = [y + _SPREAD * (n - last / 2) / max(last, 1) for n in range(len(runs))]
    mark: Any = {"markeredgecolor": INK, "markeredgewidth": 0.7, "clip_on": False, "zorder": 5}
    axes.plot(runs, heights, "o", color=color, **mark)
    if row.ensemble is not None:
        axes.plot(100 * row.ensemble, y, "^", color=COLORS[1], **mark)
    if PAPER_MODEL in row.paper:
        face = INK if row.paper_split == DEV else SURFACE
        axes.plot(row.paper[PAPER_MODEL], y, **PAPER_STYLE | {"color": face})


def _legend(rows: Sequence[ResultRow], colors: Mapping[str, str]) -> list[Patch | Line2D]:
    """Return the legend of what is drawn."""
    names = {model: color for model, color in colors.items() if color not in (_OTHER, _MAJORITY)}
    if _OTHER in colors.values():
        names["other models"] = _OTHER
    marks = {
        _mark("o", SURFACE, "one restart"): any(row.runs for row in rows),
        _mark("^", COLORS[1], "ensemble"): any(row.ensemble is not None for row in rows),
        Line2D([], [], **MAJORITY_STYLE, label=MAJORITY_CLASS): any(
            row.majority is not None for row in rows
        ),
    }
    for split, face in (("dev", INK), ("test", SURFACE)):
        marks[_mark("D", face, f"paper's BERT_BASE, {split}")] = any(
            row.paper_split == split and PAPER_MODEL in row.paper for row in rows
        )
    patches = [Patch(color=color, label=name) for name, color in names.items()]
    return [*patches, *(mark for mark, is_drawn in marks.items() if is_drawn)]


def _mark(marker: str, face: str, label: str) -> Line2D:
    return Line2D([], [], linestyle="", marker=marker, color=face, markeredgecolor=INK, label=label)


def draw_chart(chart: Chart) -> bytes:
    """Return a PNG with a panel for each task; equal charts give equal bytes with one version of
    matplotlib."""
    columns = min(_MAX_COLUMNS, len(chart.panels))
    rows = -(-len(chart.panels) // columns)
    size = _WIDTH * max(columns, 2) / _MAX_COLUMNS, rows * _PANEL_HEIGHT + _PANELS_FRAME
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    labels = ("times 100", chart.label) if chart.names else (chart.label, "times 100")
    for axes, panel in zip(grid.flat, chart.panels, strict=False):
        if chart.names:
            use_rows(axes, chart.names)
        draw_panel(axes, chart, panel)
        axes.set_title(panel.title, fontsize=10, fontweight="bold", color=INK)
        axes.set_xlabel(labels[0], fontsize=8, parse_math=False)
        axes.set_ylabel(labels[1], fontsize=8, parse_math=False)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x" if chart.names else "y", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(chart.panels) :]:
        axes.set_axis_off()
    handles, names = grid.flat[0].get_legend_handles_labels()
    if names:
        style: Any = {"ncols": len(names), "fontsize": 8, "frameon": False}
        figure.legend(handles, names, loc="outside lower center", **style)
    figure.suptitle(chart.title, fontsize=12)
    return _png(figure)


def draw_panel(axes: Axes, chart: Chart, panel: ChartPanel) -> None:
    """Draw the means of a task, times 100, with one standard deviation either way.

    Steps of pretraining go to the right and scores up. Each model size has a row (`use_rows`), with
    scores to the right.
    """
    for number, (name, points) in enumerate(panel.lines.items()):
        color, label = COLORS[number % len(COLORS)], name or None
        xs, means, sds = zip(*points, strict=True)
        low, high = zip(*map(spread, means, sds), strict=True)
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
        axes.set_xlim(0, max(point.x for points in panel.lines.values() for point in points) or 1)
        axes.set_ylim(*widen(*axes.get_ylim()))


def use_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows 0, 1, 2, ... of an axis, the first at the top; rows have height 1."""
    axes.set_yticks(range(len(names)), labels=names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
