"""Chart of Figure 5: scores over steps of pretraining."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flows.plots import NUM_SERIES, Chart, linear_axis
from flows.report.figures import Figure, Key, Panel
from flows.report.result_charts import drawn_keys, spread
from model.tables.filled_tables import FilledTable
from model.tables.paper import PERPLEXITY, STEPS_FIGURE

_MIN_SPAN = 10.0
"""Length of the shortest axis of scores, in points: small differences must not look large."""


class SweepPoint(NamedTuple):
    """A mean over restarts, times 100."""

    step: float
    mean: float
    sd: float
    """Standard deviation; 0 for fewer than two restarts."""

    @property
    def ends(self) -> tuple[float, float]:
        """One standard deviation either way of the mean."""
        return spread(self.mean, self.sd)


Lines = Mapping[str, Sequence[SweepPoint]]
"""Points in the order of their steps, by variants of the sweep's other axes; "" without others."""


def sweep_figure(table: FilledTable) -> Figure | None:
    """Draw a panel for each task of Figure 5; None for other tables, and without numbers."""
    by_task = read_lines(table)
    if not by_task:
        return None
    panels = tuple(_panel(table.heading, task, lines) for task, lines in by_task.items())
    labels = dict.fromkeys(label for lines in by_task.values() for label in lines)
    keys = {Key(f"line {_series(n)}", label): label != "" for n, label in enumerate(labels)}
    note = "On dev, times 100: mean over the restarts, and one standard deviation either way."
    return Figure(panels, drawn_keys(keys), note)


def read_lines(table: FilledTable) -> dict[str, Lines]:
    """Return our rows of Figure 5 by task; {} for other tables."""
    if table.key != STEPS_FIGURE.key or not all(row.variant.isdecimal() for row in table.rows):
        return {}
    by_task: dict[str, Lines] = {}
    for column in table.columns:
        lines: dict[str, list[SweepPoint]] = {}
        for row in table.rows:
            if column.metric != PERPLEXITY and (cell := row.cells.get(column.key)) is not None:
                point = SweepPoint(float(row.variant), 100 * cell.value, 100 * (cell.sd or 0.0))
                lines.setdefault(row.context_label, []).append(point)
        if lines:
            by_task[column.key] = {name: sorted(points) for name, points in lines.items()}
    return by_task


def _series(number: int) -> str:
    return f"series-{number % NUM_SERIES + 1}"


def _panel(heading: str, task: str, lines: Lines) -> Panel:
    points = list(itertools.chain.from_iterable(lines.values()))
    values = [end for point in points for end in point.ends]
    chart = Chart(
        f"{heading}, {task}",
        x=linear_axis(0.0, max(point.step for point in points)),
        y=linear_axis(*_widen(min(values), max(values))),
    )
    for number, line in enumerate(lines.values()):
        chart.band([(point.step, *point.ends) for point in line], _series(number))
        means = [(point.step, point.mean) for point in line]
        chart.line(means, _series(number))
        chart.dots(means, _series(number))
    return Panel(task, chart.svg(), "steps of pretraining")


def _widen(low: float, high: float) -> tuple[float, float]:
    """Return limits of an axis of scores that span at least 10 points."""
    missing = max(0.0, _MIN_SPAN - (high - low))
    return low - missing / 2, high + missing / 2
