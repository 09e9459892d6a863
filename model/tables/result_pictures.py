"""The results as a picture: bars of means, their deviations, single restarts and baselines."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

# Figure and canvas themselves, not pyplot, which would choose a backend for the whole process.
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from model.monitoring.formatting import format_percent
from model.tables.evaluations import DEV, MAJORITY_CLASS
from model.tables.result_rows import ResultRow
from model.tasks.cut_data import cut_notes, marked
from schemas.errors import PredictionsError

# Okabe and Ito's palette without black and yellow, which bars are hard to read in.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_OTHER, _MAJORITY, _GREY, INK = "#BBBBBB", "#CCCCCC", "#666666", "#222222"
WIDTH, DPI = 10.0, 120
_ROW, _FRAME = 0.36, 0.95  # inches: of a bar, and of title and axis
_LEGEND_LINE, _LEGEND_COLUMNS = 0.18, 3  # inches, and how many side by side
_NOTE_WIDTH = 100  # letters of a line of notes below
_GAP = 0.9  # between tasks, in bars
_DOT_SPREAD = 0.18  # dots of restarts stand apart by so much of a bar at most
_NUMBERS, _RIGHT = 102.0, 112.0  # where the column of numbers begins and ends


class _Bar(NamedTuple):
    row: ResultRow
    y: float  # downward


def draw_results(rows: Sequence[ResultRow], *, title: str = "") -> bytes:
    """A PNG: the main metric on dev of every entry, in groups by task.

    A bar is the mean over the restarts of the best grid point, the whisker its standard deviation,
    the dots are the single restarts, a triangle is the ensemble. A dashed line is the majority
    class, a diamond the paper's BERT_BASE, hollow where that is on test. Nothing of matplotlib's
    global state is used, no screen is needed, and equal rows give equal bytes with one version of
    matplotlib.

    Raises:
        PredictionsError: no row has a main metric on dev.
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
    colours = _colours(bars)
    marks = _marks([bar.row for bar in bars], colours)
    cut = [line for note in _cut_notes(bars) for line in textwrap.wrap(note, _NOTE_WIDTH)]
    lines = -(-len(marks) // _LEGEND_COLUMNS) + len(cut)
    height = (bars[-1].y + 2) * _ROW + _FRAME + lines * _LEGEND_LINE
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for bar in bars:
        _draw_bar(axes, bar, colour=colours[bar.row.model])
    _draw_tasks(axes, bars)
    _set_axes(axes, bars)
    axes.set_xlabel("\n".join(["times 100", *cut]), parse_math=False)
    figure.legend(
        handles=marks, loc="outside lower center", ncols=_LEGEND_COLUMNS, fontsize=8, frameon=False
    )
    figure.suptitle(title or "Main metric on dev", fontsize=12)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # else it names the version
    return data.getvalue()


def _cut_notes(bars: Sequence[_Bar]) -> list[str]:
    return cut_notes((bar.row.entry, bar.row.cut) for bar in bars)


def _colours(bars: Sequence[_Bar]) -> dict[str, str]:
    """A colour for each model; grey for the majority class and for more than there are colours."""
    models = dict.fromkeys(bar.row.model for bar in bars)
    free = iter(COLOURS)
    return {model: _MAJORITY if model == MAJORITY_CLASS else next(free, _OTHER) for model in models}


def _draw_bar(axes: Axes, bar: _Bar, *, colour: str) -> None:
    row, y = bar
    value = 100 * (row.shown or 0.0)
    axes.barh(y, value, height=0.72, color=colour, zorder=2)
    if row.sd is not None:
        axes.errorbar(value, y, xerr=100 * row.sd, color=INK, linewidth=1.2, capsize=3, zorder=4)
    runs = [100 * run for run in row.runs]
    if len(runs) > 1:
        offsets = [_DOT_SPREAD * (2 * n / (len(runs) - 1) - 1) for n in range(len(runs))]
        heights = [y + offset for offset in offsets]
        axes.scatter(runs, heights, s=13, color="white", edgecolors=INK, linewidths=0.7, zorder=5)
    base = row.paper.get("BERT_BASE")
    if base is not None:
        face = "white" if row.paper_split != DEV else INK
        axes.scatter(base, y, s=42, marker="D", color=face, edgecolors=INK, zorder=6)
    if row.ensemble is not None and row.shown != row.ensemble:
        together = 100 * row.ensemble
        axes.scatter(together, y, s=36, marker="^", color="white", edgecolors=INK, zorder=6)
    number = marked(format_percent(row.shown, row.sd), row.cut)
    axes.text(_NUMBERS, y, number, va="center", fontsize=8, color=INK)


def _draw_tasks(axes: Axes, bars: Sequence[_Bar]) -> None:
    """The name of each group, and its majority line."""
    for task in dict.fromkeys(bar.row.task for bar in bars):
        group = [bar for bar in bars if bar.row.task == task]
        first, top, bottom = group[0].row, group[0].y - 0.5, group[-1].y + 0.5
        axes.text(
            0.0,
            top - 0.02,
            f"{first.name} ({first.metric})",
            va="bottom",
            fontsize=9,
            fontweight="bold",
            color=INK,
        )
        if first.majority is not None:
            axes.vlines(
                100 * first.majority, top, bottom, color=_GREY, linestyle="--", lw=1.3, zorder=3
            )


def _set_axes(axes: Axes, bars: Sequence[_Bar]) -> None:
    axes.set_ylim(bars[-1].y + 0.7, bars[0].y - 1.3)  # downward
    lowest = min(100 * run for bar in bars for run in _drawn(bar.row))
    axes.set_xlim(min(0.0, lowest - 3), _RIGHT)
    axes.set_xticks(range(0, 101, 10))
    axes.set_yticks([bar.y for bar in bars])
    axes.set_yticklabels([bar.row.entry for bar in bars], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.axvline(0.0, color=_GREY, linewidth=0.8)


def _drawn(row: ResultRow) -> list[float]:
    """Where something of a row is drawn: correlations may be below 0."""
    return [row.shown or 0.0, *row.runs]


def _marks(rows: Sequence[ResultRow], colours: dict[str, str]) -> list[Patch | Line2D]:
    """What the legend explains: only what is drawn."""
    marks: list[Patch | Line2D] = [
        Patch(color=colour, label=model)
        for model, colour in colours.items()
        if colour not in (_OTHER, _MAJORITY)
    ]
    if any(colour == _OTHER for colour in colours.values()):
        marks.append(Patch(color=_OTHER, label="other models"))
    if any(len(row.runs) > 1 for row in rows):
        marks.append(_mark("o", 4.5, face="white", label="one restart"))
    if any(row.ensemble not in (None, row.shown) for row in rows):
        marks.append(_mark("^", 5.5, face="white", label="ensemble"))
    if any(row.majority is not None for row in rows):
        marks.append(Line2D([], [], color=_GREY, linestyle="--", label=MAJORITY_CLASS))
    for name, face in (("dev", INK), ("test", "white")):
        if any(row.paper_split == name and "BERT_BASE" in row.paper for row in rows):
            label = f"paper's BERT_BASE, {name}"
            marks.append(_mark("D", 6.0, face=face, label=label))
    return marks


def _mark(marker: str, size: float, *, face: str, label: str) -> Line2D:
    # mfc and mec: of its face and edge.
    return Line2D(
        [], [], color="none", marker=marker, markersize=size, mfc=face, mec=INK, label=label
    )
