"""Every number of every entry in one table, beside the majority baseline and the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from model.tables.paper_tables import PAPER_TABLES, PaperModel
from model.tables.task_results import (
    DEV,
    Evaluation,
    Figures,
    baselines,
    feature_layers,
    model_label,
    repeats_others,
)
from model.tasks.task import Task


class ResultRow(NamedTuple):
    """One metric of one entry on one split."""

    task: str
    title: str
    entry: str
    model: str
    """In a few words; of an ensemble over other entries, with how many answer together."""

    split: str
    metric: str
    is_main: bool
    """Whether it is the metric that chose on dev."""

    is_listed: bool
    """Whether it is one of the task's own metrics; others are in JSON and CSV alone."""

    figures: Figures
    cut: tuple[str, ...]
    """What the numbers were not given: rows, steps, ends of texts; a few words each."""

    majority: float | None
    """What always the most frequent label gives, a share of 1; None without such an entry."""

    cells: int
    """Trainings of the entry."""

    ensemble: int
    """Models that answer together; 1 for none."""

    paper: dict[PaperModel, float]
    """What the paper has for it, times 100, as printed."""

    paper_split: str
    """What the paper's numbers are on; "" where there are none."""

    @property
    def shown(self) -> float | None:
        """The mean over restarts, or what there is: the ensemble's or the chosen model's."""
        for value in (self.figures.mean, self.figures.ensemble, self.figures.best):
            if value is not None:
                return value
        return None


def in_order(evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]) -> list[Evaluation]:
    """By task, in the order of `tasks`, then by entry, majorities last.

    The recipe's order changes nothing.
    """
    places = {name: place for place, name in enumerate(tasks)}
    return sorted(
        evaluations,
        key=lambda item: (
            places.get(item.task, len(places)),
            item.task,
            item.is_majority,
            item.entry,
        ),
    )


def result_rows(evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]) -> list[ResultRow]:
    """A row for each entry, split and metric; dev and the main metric first.

    Raises:
        ConfigError: a task names a column that its table has not.
    """
    majority = baselines(evaluations)
    found: list[ResultRow] = []
    for item in evaluations:
        others = [other for other in evaluations if other is not item]
        is_repeat = repeats_others(item, others)
        found += _rows(item, tasks.get(item.task), majority=majority, is_repeat=is_repeat)
    return found


def _rows(
    item: Evaluation,
    task: Task | None,
    *,
    majority: Mapping[tuple[str, str, str], float],
    is_repeat: bool,
) -> Iterator[ResultRow]:
    size = item.ensemble if is_repeat else 1
    model = model_label(item.model, method=item.method, ensemble=size)
    for split in _splits(item, task):
        names = sorted(item.metrics[split], key=lambda name: (name != item.metric, name))
        for metric in names:
            figures = item.figures(split, metric)
            if is_repeat:  # its single models have rows of their own
                figures = figures._replace(runs=(), failed=0, best=None)
            paper, paper_split = _paper(item, task, split=split, metric=metric)
            yield ResultRow(
                task=item.task,
                title=task.title if task else item.task,
                entry=item.entry,
                model=model,
                split=split,
                metric=metric,
                is_main=metric == item.metric,
                is_listed=task is None or metric in task.metrics,
                figures=figures,
                cut=item.cut_on(split),
                majority=majority.get((item.task, split, metric)),
                cells=len(item.cells),
                ensemble=item.ensemble,
                paper=paper,
                paper_split=paper_split,
            )


def _splits(item: Evaluation, task: Task | None) -> list[str]:
    known = list(task.splits) if task else []
    places = {split: place for place, split in enumerate(known)}
    return sorted(
        item.metrics, key=lambda split: (split != DEV, places.get(split, len(places)), split)
    )


def _paper(
    item: Evaluation, task: Task | None, *, split: str, metric: str
) -> tuple[dict[PaperModel, float], str]:
    """Fine-tuned models beside the paper's, features beside features of the same layers."""
    place = f"{split}/{metric}"
    if task is None or item.is_majority or item.is_on_other_data or place not in task.paper:
        return {}, ""
    key, name = task.paper[place]
    table = PAPER_TABLES[key]
    column = table.column(name, split=split)
    layers = feature_layers(item.model) if item.method == "features" else ""
    if item.method == "features" and not layers:
        return {}, ""
    models: tuple[PaperModel, ...] = ("BERT_BASE", "BERT_LARGE")
    found: dict[PaperModel, float] = {}
    for model in models:
        value = table.value(column, model=model, layers=layers)
        if value is not None:
            found[model] = value
    return found, column.split if found else ""
