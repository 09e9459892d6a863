"""Drawing of results: bars of means and deviations, single restarts, baselines, paper's models."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

# Figure and canvas, not pyplot, which chooses a backend for the whole process.
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from model.monitoring.formatting import format_percent
from model.monitoring.palette import COLORS, GRAY, GRID, INK, SURFACE
from model.tables.results import DEV, MAJORITY_CLASS, ResultRow
from model.tasks.reduced_data import cut_notes, marked
from schemas.errors import PredictionsError

_OTHER, _MAJORITY = "#BBBBBB", "#CCCCCC"
WIDTH, DPI = 10.0, 120
_ROW, _FRAME = 0.36, 0.95  # inches: of a bar, and of title and axis
_LEGEND_LINE, _LEGEND_COLUMNS = 0.18, 3  # inches, and number of columns
_NOTE_WIDTH = 100  # letters of a line of notes
_GAP = 0.9  # between tasks, in bars
_SPREAD = 0.4
"""Distance of the first and the last dot of a row, in rows: equal scores would hide each other."""

_NUMBERS, _RIGHT = 102.0, 112.0  # start and end of the column of numbers
_MIN_SPAN = 10.0
"""Length of the shortest axis of scores, in points: small differences must not look large."""

PAPER_MODEL = "BERT_BASE"
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


class _Bar(NamedTuple):
    row: ResultRow
    y: float  # downward


def draw_results(rows: Sequence[ResultRow], *, title: str = "") -> bytes:
    """Return a PNG of the main metric on dev of every entry, in groups by task.

    A bar is the mean over the restarts of the best grid point, the whisker its standard deviation,
    the dots are the single restarts, a triangle is the ensemble. A dashed line is the majority
    class, a diamond the paper's BERT_BASE, hollow if it is on test. Equal rows give equal bytes
    with one version of matplotlib.

    Raises:
        PredictionsError: No row has a main metric on dev.
    """
    shown = [row for row in rows if row.is_main and row.split == DEV and row.shown is not None]
    if not shown:
        raise PredictionsError(
            "found no entry with a main metric on dev, expected at least one: there is nothing to "
            "draw"
        )
    return _png(_placed(shown), title=title)


def _placed(rows: Sequence[ResultRow]) -> list[_Bar]:
    bars: list[_Bar] = []
    y = 0.0
    for number, row in enumerate(rows):
        if number:
            y += 1.0 if row.task == rows[number - 1].task else 1.0 + _GAP
        bars.append(_Bar(row, y))
    return bars


def _png(bars: Sequence[_Bar], *, title: str) -> bytes:
    colors = _colors(bars)
    marks = _marks([bar.row for bar in bars], colors)
    cut = [line for note in _cut_notes(bars) for line in textwrap.wrap(note, _NOTE_WIDTH)]
    lines = -(-len(marks) // _LEGEND_COLUMNS) + len(cut)
    height = (bars[-1].y + 2) * _ROW + _FRAME + lines * _LEGEND_LINE
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for bar in bars:
        _draw_bar(axes, bar, color=colors[bar.row.model])
    _draw_tasks(axes, bars)
    _set_axes(axes, bars)
    axes.set_xlabel("\n".join(["times 100", *cut]), parse_math=False)
    figure.legend(
        handles=marks, loc="outside lower center", ncols=_LEGEND_COLUMNS, fontsize=8, frameon=False
    )
    figure.suptitle(title or "Main metric on dev", fontsize=12)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # no version in the file
    return data.getvalue()


def _cut_notes(bars: Sequence[_Bar]) -> list[str]:
    return cut_notes((bar.row.entry, bar.row.cut) for bar in bars)


def _colors(bars: Sequence[_Bar]) -> dict[str, str]:
    """Return a color for each model; gray for the majority class and if all colors are used."""
    models = dict.fromkeys(bar.row.model for bar in bars)
    free = iter(COLORS)
    return {model: _MAJORITY if model == MAJORITY_CLASS else next(free, _OTHER) for model in models}


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


def use_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows 0, 1, 2, ... of an axis, the first at the top; rows have height 1."""
    axes.set_yticks(range(len(names)), labels=names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)


def widen(low: float, high: float) -> tuple[float, float]:
    """Return limits of an axis of scores that span at least 10 points."""
    missing = max(0.0, _MIN_SPAN - (high - low))
    return low - missing / 2, high + missing / 2


def _draw_bar(axes: Axes, bar: _Bar, *, color: str) -> None:
    row, y = bar
    value = 100 * (row.shown or 0.0)
    axes.barh(y, value, height=0.72, color=color, zorder=2)
    if row.sd is not None:
        axes.errorbar(value, y, xerr=100 * row.sd, color=INK, linewidth=1.2, capsize=3, zorder=4)
    draw_marks(axes, row, y)
    number = marked(format_percent(row.shown, row.sd), row.cut)
    axes.text(_NUMBERS, y, number, va="center", fontsize=8, color=INK)


def _draw_tasks(axes: Axes, bars: Sequence[_Bar]) -> None:
    """Write the name of each group."""
    for task in dict.fromkeys(bar.row.task for bar in bars):
        group = [bar for bar in bars if bar.row.task == task]
        first, top = group[0].row, group[0].y - 0.5
        axes.text(
            0.0,
            top - 0.02,
            f"{first.name} ({first.metric})",
            va="bottom",
            fontsize=9,
            fontweight="bold",
            color=INK,
        )


def _set_axes(axes: Axes, bars: Sequence[_Bar]) -> None:
    axes.set_ylim(bars[-1].y + 0.7, bars[0].y - 1.3)  # downward
    lowest = min(100 * run for bar in bars for run in _drawn(bar.row))
    axes.set_xlim(min(0.0, lowest - 3), _RIGHT)
    axes.set_xticks(range(0, 101, 10))
    axes.set_yticks([bar.y for bar in bars])
    axes.set_yticklabels([bar.row.entry for bar in bars], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.axvline(0.0, color=GRAY, linewidth=0.8)


def _drawn(row: ResultRow) -> list[float]:
    """Return the drawn scores of a row; correlations can be below 0."""
    return [row.shown or 0.0, *row.runs]


def _marks(rows: Sequence[ResultRow], colors: dict[str, str]) -> list[Patch | Line2D]:
    """Return the legend of what is drawn."""
    marks: list[Patch | Line2D] = [
        Patch(color=color, label=model)
        for model, color in colors.items()
        if color not in (_OTHER, _MAJORITY)
    ]
    if any(color == _OTHER for color in colors.values()):
        marks.append(Patch(color=_OTHER, label="other models"))
    if any(row.runs for row in rows):
        marks.append(_mark("o", face=SURFACE, label="one restart"))
    if any(row.ensemble is not None for row in rows):
        marks.append(_mark("^", face=COLORS[1], label="ensemble"))
    if any(row.majority is not None for row in rows):
        marks.append(Line2D([], [], **MAJORITY_STYLE, label=MAJORITY_CLASS))
    for name, face in (("dev", INK), ("test", SURFACE)):
        if any(row.paper_split == name and PAPER_MODEL in row.paper for row in rows):
            label = f"paper's BERT_BASE, {name}"
            marks.append(_mark("D", face=face, label=label))
    return marks


def _mark(marker: str, *, face: str, label: str) -> Line2D:
    return Line2D([], [], linestyle="", marker=marker, color=face, markeredgecolor=INK, label=label)
