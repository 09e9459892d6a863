"""Charts of results: all tasks at a glance, and every restart."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from flows.plots import Axis, Chart, linear_axis, row_axis
from flows.report.figures import Figure, Key, Panel
from flows.report.task_results import TaskResult
from model.tables.results import ResultRow, task_label
from model.task_results import DEV
from model.tasks.reduced_data import cut_notes, marked

PAPER_MODEL = "BERT_BASE"
"""Model of the paper that charts show."""

_MIN_SPAN = 10.0
"""Length of the shortest axis of scores, in points: small differences must not look large."""

_AXIS_HEIGHT = 34.0  # pixels
_SPREAD = 0.4
"""Distance of the first and the last dot of a row, in rows: equal scores would hide each other."""


def new_rows(title: str, names: Sequence[str], scores: Axis, *, row_height: float) -> Chart:
    """Return a chart with a row for each name; heights are in pixels."""
    height = _AXIS_HEIGHT + row_height * len(names)
    return Chart(title, x=scores, y=row_axis(names), height=height, has_rows=True)


def drawn_keys(keys: Mapping[Key, bool]) -> tuple[Key, ...]:
    """Return the keys of marks that are drawn."""
    return tuple(key for key, is_drawn in keys.items() if is_drawn)


def overview_figure(results: Sequence[TaskResult]) -> Figure:
    """Draw one panel with a row for each task: pretrained, from scratch, and majority class."""
    firsts = [result.rows[0] for result in results]
    data = ", ".join(dict.fromkeys(row.data for row in firsts if row.data))
    title = f"{task_label('Mean on dev', data)}, with its standard deviation"
    means = [
        (100 * row.shown, 100 * (row.sd or 0.0), color, position + offset)
        for position, result in enumerate(results)
        for row, color, offset in (
            (result.scratch, "series-2", 0.15),
            (result.pretrained, "series-1", -0.15),
        )
        if row is not None and row.shown is not None
    ]
    low = min([0.0, *(spread(mean, sd)[0] for mean, sd, _, _ in means)])
    names = [row.title or row.task for row in firsts]
    chart = new_rows(title, names, linear_axis(low, 100), row_height=26)
    for position, result in enumerate(results):
        if result.majority is not None:
            _draw_majority(chart, result.majority, position, half_height=0.36)
    for mean, sd, color, y in means:
        start, end = spread(mean, sd)
        chart.segment((start, y), (end, y), color)
        chart.dots([(mean, y)], color)
    keys = {
        Key("dot series-1", "pretrained"): any(result.pretrained for result in results),
        Key("dot series-2", "from scratch"): any(result.scratch for result in results),
        Key("dashed", "majority class"): any(result.majority is not None for result in results),
    }
    notes = cut_notes((row.entry, row.cut) for result in results for row in result.rows)
    return Figure((Panel(title, chart.svg()),), drawn_keys(keys), " ".join(notes))


def _draw_majority(chart: Chart, score: float, y: float, *, half_height: float) -> None:
    ends = (100 * score, y - half_height), (100 * score, y + half_height)
    chart.segment(*ends, "muted", is_dashed=True)


def restarts_figure(rows: Sequence[ResultRow]) -> Figure:
    """Draw a panel for each task with a dot for each restart."""
    groups = (list(group) for _, group in itertools.groupby(rows, key=lambda row: row.task))
    panels = tuple(_restarts_panel(entries) for entries in groups)
    keys = {
        Key("dot series-1", "one restart"): any(row.runs for row in rows),
        Key("tick", "their mean"): any(len(row.runs) > 1 for row in rows),
        Key("triangle series-2", "ensemble"): any(row.ensemble is not None for row in rows),
        Key("dashed", "majority class"): any(row.majority is not None for row in rows),
        Key("diamond", "the paper's BERT_BASE"): any(PAPER_MODEL in row.paper for row in rows),
    }
    notes = ["Metrics on dev, times 100.", *cut_notes((row.entry, row.cut) for row in rows)]
    return Figure(panels, drawn_keys(keys), " ".join(notes))


def _restarts_panel(entries: Sequence[ResultRow]) -> Panel:
    title = f"{entries[0].name}: {entries[0].metric}"
    values = [value for row in entries for value in _row_values(row)]
    low, high = widen(min(values, default=0.0), max(values, default=0.0))
    names = [marked(row.entry, row.cut) for row in entries]
    chart = new_rows(title, names, linear_axis(low, high), row_height=30)
    for y, row in enumerate(entries):
        if row.majority is not None:
            _draw_majority(chart, row.majority, y, half_height=0.5)
        last = len(row.runs) - 1
        offsets = (_SPREAD * (number - last / 2) / max(last, 1) for number in range(last + 1))
        points = zip((100 * run for run in row.runs), offsets, strict=True)
        chart.dots([(score, y + offset) for score, offset in points], "series-1")
        if row.ensemble is not None:
            chart.triangle((100 * row.ensemble, y), "series-2")
        if PAPER_MODEL in row.paper:
            chart.diamond((row.paper[PAPER_MODEL], y), is_filled=row.paper_split == DEV)
        if last > 0 and row.mean is not None:
            chart.segment((100 * row.mean, y - 0.34), (100 * row.mean, y + 0.34), "ink")
    return Panel(title, chart.svg())


def _row_values(row: ResultRow) -> Iterable[float]:
    """Return every number of a row that is drawn, times 100."""
    scores = [*row.runs, row.majority, row.ensemble]
    yield from (100 * score for score in scores if score is not None)
    if PAPER_MODEL in row.paper:
        yield row.paper[PAPER_MODEL]


def spread(mean: float, sd: float) -> tuple[float, float]:
    """Return one standard deviation either way of a mean, times 100, without impossible scores.

    Only correlations can be below 0.
    """
    return max(mean - sd, 0.0 if mean >= 0 else -100.0), min(mean + sd, 100.0)


def widen(low: float, high: float) -> tuple[float, float]:
    """Return limits of an axis of scores that span at least 10 points."""
    missing = max(0.0, _MIN_SPAN - (high - low))
    return low - missing / 2, high + missing / 2
