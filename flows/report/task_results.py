"""Results of each task: the pretrained model next to the one from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.formatting import format_percent
from model.tables.render import Tables, TextTable
from model.tables.results import SCRATCH, ResultRow, task_label
from model.tables.verdicts import Verdict
from model.task_results import marked


class TaskResult(NamedTuple):
    """Results of a task on dev by its main metric."""

    task: str
    """Title of the task."""

    data: str = ""
    """Name of the data if it is not the data of the task."""

    pretrained: ResultRow | None = None
    """The entry that is compared with its twin from scratch; by default the best one."""

    scratch: ResultRow | None = None
    verdict: Verdict | None = None
    """Verdict on pretraining."""

    @property
    def rows(self) -> list[ResultRow]:
        """The entries of the task, pretrained first."""
        return [row for row in (self.pretrained, self.scratch) if row is not None]

    @property
    def majority(self) -> float | None:
        """Score of the majority class, in [0, 1]."""
        return next((row.majority for row in self.rows), None)


def task_results(tables: Tables) -> list[TaskResult]:
    """Return the results of all tasks in the order of the tables."""
    rows = [row for row in tables.main if row.shown is not None]
    by_entry = {row.entry: row for row in rows}
    verdicts = {item.task: item for item in tables.verdicts[::-1] if item.kind == "pretraining"}
    results = []
    for task in dict.fromkeys(row.task for row in rows):
        ranked = sorted((r for r in rows if r.task == task), key=lambda row: -(row.shown or 0))
        pretrained = next((row for row in ranked if row.start != SCRATCH), None)
        scratch = next((row for row in ranked if row.start == SCRATCH), None)
        if verdict := verdicts.get(task):
            pretrained, scratch = by_entry[verdict.test.first], by_entry[verdict.test.second]
        title, data = ranked[0].title or task, ranked[0].data
        results.append(TaskResult(title, data, pretrained, scratch, verdict))
    return results


def overview_table(results: Sequence[TaskResult]) -> TextTable:
    """Return a table with a row for each task.

    Data that all tasks share are named in the title, because the columns would not fit otherwise.
    """
    names = {result.data for result in results}
    shared = names.pop() if len(names) == 1 else ""
    header = (
        *("task", "metric", "pretrained", "from scratch", "majority class", "restarts"),
        "difference (95 % interval)",
    )
    rows = tuple(
        (
            result.task if shared else task_label(result.task, result.data),
            result.rows[0].metric,
            _score(result.pretrained),
            _score(result.scratch),
            format_percent(result.majority),
            " / ".join(dict.fromkeys(str(row.restarts) for row in result.rows if row.restarts)),
            _difference(result.verdict),
        )
        for result in results
    )
    title = task_label("Mean ± standard deviation on dev, times 100", shared)
    return TextTable(title, header, (rows,), (), texts=2)


def _score(row: ResultRow | None) -> str:
    """Return the mean and standard deviation of an entry, or the score that it has."""
    if row is None:
        return ""
    return marked(format_percent(row.shown, row.sd if row.mean is not None else None), row.cut)


def _difference(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    text = f"{100 * verdict.test.difference:+.1f}"
    if verdict.test.low is None or verdict.test.high is None:
        return text
    return f"{text} ({100 * verdict.test.low:.1f} to {100 * verdict.test.high:.1f})"
