"""Results of fine-tuning: a panel for each task, a dot for each restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows.report.drawing import GRID, INK, MUTED, PAPER, SERIES, draw_panel
from flows.report.kept_figures import Figure, Key, Panel
from flows.report.result_tables import cut_notes, main_results, marked, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW, _FRAME = 0.42, 0.75  # inches
_SPREAD = 0.22  # of a row, over which dots of restarts are set
_LEAST_SPAN = 10.0
_LEGEND = (
    Key(mark="dot series-1", label="one restart"),
    Key(mark="tick", label="their mean"),
    Key(mark="triangle series-2", label="ensemble"),
    Key(mark="dashed", label="majority class"),
    Key(mark="diamond", label="the paper's BERT_BASE"),
)


def result_figure(data: dict[str, Any], *, name: str) -> Figure:
    """The main metric on dev of every entry, with its restarts.

    Args:
        data: what `tables.json` of the tabulate artifact holds.
        name: see `draw_panel`.
    """
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in main_results(data):
        by_task.setdefault(str(row["task"]), []).append(row)
    panels = tuple(
        _panel(task, rows, name=f"{name}-{number}")
        for number, (task, rows) in enumerate(by_task.items())
    )
    note = " ".join(["Metrics on dev, times 100.", *cut_notes(main_results(data))])
    return Figure(panels=panels, legend=_legend(data), note=note)


def _legend(data: dict[str, Any]) -> tuple[Key, ...]:
    """What is drawn of it."""
    rows = main_results(data)
    has = (
        any(len(row["runs"]) > 0 for row in rows),
        any(len(row["runs"]) > 1 for row in rows),
        any(row["ensemble"] is not None for row in rows),
        any(row["majority"] is not None for row in rows),
        any("BERT_BASE" in row["paper"] for row in rows),
    )
    return tuple(key for key, is_drawn in zip(_LEGEND, has, strict=True) if is_drawn)


def _panel(task: str, rows: Sequence[dict[str, Any]], *, name: str) -> Panel:
    title = f"{task}: {rows[0]['metric']}"
    said = [
        f"{row['entry']} {marked(percent(row['mean'], row['sd']), row) or 'no value'}"
        for row in rows
    ]

    def draw(axes: Axes) -> None:
        for place, row in enumerate(rows):
            _draw_row(axes, place, row)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), [marked(str(row["entry"]), row) for row in rows])
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.locator_params(axis="x", nbins=6)
        axes.margins(x=0.08)
        low, high = axes.get_xlim()
        if high - low < _LEAST_SPAN:  # else a tenth looks like a world
            middle = (low + high) / 2
            axes.set_xlim(middle - _LEAST_SPAN / 2, middle + _LEAST_SPAN / 2)

    svg = draw_panel(
        draw,
        name=name,
        title=title,
        description=f"Each restart as a dot. Means: {'; '.join(said)}.",
        height=_FRAME + _ROW * len(rows),
    )
    return Panel(title=title, note="", svg=svg)


def _draw_row(axes: Axes, place: int, row: dict[str, Any]) -> None:
    runs = [100 * run for run in row["runs"]]
    axes.axhline(place, color=GRID, linewidth=0.7, zorder=1)
    if len(runs) > 1:
        offsets = [_SPREAD * (2 * n / (len(runs) - 1) - 1) for n in range(len(runs))]
        mean = sum(runs) / len(runs)
        axes.plot([mean, mean], [place - 0.34, place + 0.34], color=INK, linewidth=1.8, zorder=3)
    else:
        offsets = [0.0] * len(runs)
    heights = [place + offset for offset in offsets]
    axes.scatter(runs, heights, s=30, color=SERIES[0], edgecolors=PAPER, lw=0.7, zorder=4)
    if row["ensemble"] is not None:
        x = 100 * row["ensemble"]
        axes.scatter(x, place, s=46, marker="^", color=SERIES[1], edgecolors=PAPER, zorder=5)
    if row["majority"] is not None:
        x, reach = 100 * row["majority"], (place - 0.45, place + 0.45)
        axes.plot([x, x], reach, color=MUTED, linewidth=1.2, linestyle=(0, (3, 2)), zorder=2)
    if "BERT_BASE" in row["paper"]:
        x = row["paper"]["BERT_BASE"]
        axes.scatter(x, place, s=40, marker="D", color=PAPER, edgecolors=INK, lw=1.0, zorder=5)
