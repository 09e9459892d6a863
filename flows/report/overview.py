"""Results of all tasks in one table and one figure: pretrained next to from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows.report.figures import Figure, Key, Panel
from flows.report.plots import Axis, Plot
from model.tables.document import Tables
from model.tables.result_rows import ResultRow
from model.tables.verdicts import Verdict
from model.tasks import TASKS
from model.tasks.cut_data import cut_notes, marked
from model.telling.percent import format_percent

_ROW, _FRAME = 26.0, 30.0  # heights
_SCRATCH, _MAJORITY = "scratch", "majority"
_LEGEND = {
    "pretrained": Key(mark="dot series-1", label="pretrained"),
    "scratch": Key(mark="dot series-2", label="from scratch"),
    "majority": Key(mark="dashed", label="majority class"),
}


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """Results of a task on dev by its main metric."""

    title: str
    pretrained: ResultRow | None
    """The entry that is compared with its twin from scratch; the best one where none is."""

    scratch: ResultRow | None
    verdict: Verdict | None
    """Verdict on pretraining."""

    @property
    def rows(self) -> list[ResultRow]:
        """The entries that there are."""
        return [row for row in (self.pretrained, self.scratch) if row is not None]

    @property
    def majority(self) -> float | None:
        """Score of the majority class."""
        return next((row.majority for row in self.rows), None)

    @property
    def restarts(self) -> str:
        """Number of restarts of each entry, or one number where they are equal."""
        return " / ".join(dict.fromkeys(str(row.restarts) for row in self.rows if row.restarts))

    @property
    def difference(self) -> str:
        """Difference and its 95 % interval in points."""
        if self.verdict is None:
            return ""
        text = f"{100 * self.verdict.difference:+.1f}"
        if self.verdict.low is None or self.verdict.high is None:
            return text
        return f"{text} ({100 * self.verdict.low:.1f} to {100 * self.verdict.high:.1f})"


def task_results(tables: Tables) -> list[TaskResult]:
    """Return the results of all tasks in the order of the tables."""
    main = [row for row in tables.main if row.shown is not None and row.method != _MAJORITY]
    by_entry = {row.entry: row for row in main}
    results = []
    for task in dict.fromkeys(row.task for row in main):
        compared = [v for v in tables.verdicts if v.kind == "pretraining" and v.task == task]
        rows = sorted((row for row in main if row.task == task), key=lambda row: -(row.shown or 0))
        pretrained = next((row for row in rows if row.start != _SCRATCH), None)
        scratch = next((row for row in rows if row.start == _SCRATCH), None)
        for verdict in compared[:1]:
            pretrained, scratch = by_entry[verdict.first], by_entry[verdict.second]
        result = TaskResult(
            title=TASKS[task].title if task in TASKS else task,
            pretrained=pretrained,
            scratch=scratch,
            verdict=next(iter(compared), None),
        )
        results.append(result)
    return results


def result_columns(results: Sequence[TaskResult]) -> list[tuple[str, list[str]]]:
    """Return the table as (title, cells) of each column."""
    return [
        ("task", [item.title for item in results]),
        ("metric", [item.rows[0].metric for item in results]),
        ("pretrained", [_score(item.pretrained) for item in results]),
        ("from scratch", [_score(item.scratch) for item in results]),
        ("majority class", [format_percent(item.majority) for item in results]),
        ("restarts", [item.restarts for item in results]),
        ("difference (95 % interval)", [item.difference for item in results]),
    ]


def _score(row: ResultRow | None) -> str:
    if row is None:
        return ""
    return marked(format_percent(row.shown, row.sd if row.mean is not None else None), row.cut)


def result_figure(results: Sequence[TaskResult], *, name: str) -> Figure:
    """Return one panel with a row for each task; `name` is part of ids in the page."""
    values = [value for item in results for value in _values(item)]
    plot = Plot(
        Axis(low=min(0.0, *values), high=100.0),
        Axis(low=len(results) - 0.4, high=-0.6, names=tuple(item.title for item in results)),
        height=_FRAME + _ROW * len(results),
    )
    for position, item in enumerate(results):
        _draw(plot, position, item)
    texts = [
        f"{item.title} {' and '.join(f'{row.entry} {_score(row)}' for row in item.rows)}"
        for item in results
    ]
    title = "Mean on dev, with its standard deviation"
    svg = plot.svg(name=name, title=title, description=f"{'; '.join(texts)}.")
    drawn = {
        "pretrained": any(item.pretrained for item in results),
        "scratch": any(item.scratch for item in results),
        "majority": any(item.majority is not None for item in results),
    }
    legend = tuple(_LEGEND[key] for key, is_drawn in drawn.items() if is_drawn)
    notes = cut_notes((row.entry, row.cut) for item in results for row in item.rows)
    return Figure(panels=(Panel(title=title, svg=svg),), legend=legend, note=" ".join(notes))


def _values(item: TaskResult) -> list[float]:
    """Return all that is drawn of a task, times 100."""
    ends = [(row.shown or 0.0) - (row.sd or 0.0) for row in item.rows]
    return [100 * value for value in (*ends, item.majority) if value is not None]


def _draw(plot: Plot, position: int, item: TaskResult) -> None:
    if item.majority is not None:
        x = 100 * item.majority
        plot.line([(x, position - 0.36), (x, position + 0.36)], look="dashed muted")
    looks = ((item.scratch, "series-2", 0.15), (item.pretrained, "series-1", -0.15))
    for row, look, offset in looks:
        if row is not None and row.shown is not None:
            x, sd, y = 100 * row.shown, 100 * (row.sd or 0.0), position + offset
            plot.line([(x - sd, y), (min(x + sd, 100.0), y)], look=look)
            plot.dots([(x, y)], look=look)
