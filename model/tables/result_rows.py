"""Every number of every entry in one table, beside the majority baseline and the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from model.tables.evaluations import (
    DEV,
    Evaluation,
    Scores,
    feature_layers,
    is_redundant_ensemble,
    model_label,
)
from model.tables.paper_tables import PAPER_TABLES, PaperModel
from model.tasks.task import Task


class ResultRow(Scores):
    """One metric of one entry on one split, as `tables.json` has it."""

    task: str
    title: str = Field(default="", exclude=True)
    """The task's; "" where the row was read from JSON."""

    entry: str
    model: str
    """In a few words; of an ensemble over other entries, with how many answer together."""

    method: str = ""
    start: str = ""
    """What it started from: a phase, `scratch`, a folder's name."""

    features: str = ""
    """Which layers it reads, of a frozen encoder."""

    data: str = ""
    """What it is on, where that is not the task's own data."""

    split: str
    metric: str
    is_main: bool
    """Whether it is the metric that chose on dev."""

    is_listed: bool = Field(default=True, exclude=True)
    """Whether it is one of the task's own metrics; others are in JSON and CSV alone."""

    cut: tuple[str, ...] = ()
    """What the numbers were not given: rows, steps, ends of texts; a few words each."""

    majority: float | None
    """Score of the majority class on the same rows, a share of 1; None where it has no value."""

    trials: int = Field(alias="cells")
    """Trainings of the entry."""

    ensemble_of: int
    """Models that answer together; 1 for none."""

    paper: dict[PaperModel, float]
    """What the paper has for it, times 100, as printed."""

    paper_split: str
    """What the paper's numbers are on; "" where there are none."""

    reference: str = ""
    """What `bertloom lineage` and `reproduce` find its evaluation by: `CONTENT:SPLIT.METRIC`."""

    @property
    def name(self) -> str:
        """What the task is called in tables."""
        return self.title or self.task


def in_order(evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]) -> list[Evaluation]:
    """By task, in the order of `tasks`, then by entry, majorities last.

    The recipe's order changes nothing.
    """
    order = {name: number for number, name in enumerate(tasks)}

    def key(item: Evaluation) -> tuple[int, str, bool, str]:
        return order.get(item.task, len(order)), item.task, item.is_majority, item.entry

    return sorted(evaluations, key=key)


def result_rows(evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]) -> list[ResultRow]:
    """A row for each entry, split and metric; dev and the main metric first.

    Raises:
        ConfigError: a task names a column that its table has not.
    """
    return [
        row
        for item in evaluations
        for row in _rows(
            item, tasks.get(item.task), is_repeat=is_redundant_ensemble(item, evaluations)
        )
    ]


def _rows(item: Evaluation, task: Task | None, *, is_repeat: bool) -> Iterator[ResultRow]:
    size = item.ensemble if is_repeat else 1
    model = model_label(item.model, method=item.method, ensemble=size)
    for split in _splits(item, task):
        names = sorted(item.metrics[split], key=lambda name: (name != item.metric, name))
        for metric in names:
            scores = dict(item.scores(split, metric))
            if is_repeat:  # its single models have rows of their own
                scores |= {"runs": (), "failed": 0, "best": None}
            paper, paper_split = _paper(item, task, split=split, metric=metric)
            yield ResultRow(
                **scores,
                task=item.task,
                title=task.title if task else item.task,
                entry=item.entry,
                model=model,
                method=item.method,
                start=str(item.model.get("start") or ""),
                features=feature_layers(item.model) if item.method == "feature-based" else "",
                data=str(item.model.get("data") or ""),
                split=split,
                metric=metric,
                is_main=metric == item.metric,
                is_listed=task is None or metric in task.metrics,
                cut=item.cut_on(split),
                majority=item.majority(split, metric),
                trials=len(item.trials),
                ensemble_of=item.ensemble,
                paper=paper,
                paper_split=paper_split,
                reference=item.reference(split, metric),
            )


def _splits(item: Evaluation, task: Task | None) -> list[str]:
    order = {split: number for number, split in enumerate(task.splits if task else ())}

    def key(split: str) -> tuple[bool, int, str]:
        return split != DEV, order.get(split, len(order)), split

    return sorted(item.metrics, key=key)


def _paper(
    item: Evaluation, task: Task | None, *, split: str, metric: str
) -> tuple[dict[PaperModel, float], str]:
    """Fine-tuned models beside the paper's, features beside features of the same layers."""
    of_table = task.paper.get(f"{split}/{metric}") if task else None
    layers = feature_layers(item.model) if item.method == "feature-based" else ""
    is_unnamed = item.method == "feature-based" and not layers
    if of_table is None or item.is_majority or item.is_on_other_data or is_unnamed:
        return {}, ""
    table, name = PAPER_TABLES[of_table[0]], of_table[1]
    column = table.column(name, split=split)
    models: tuple[PaperModel, ...] = ("BERT_BASE", "BERT_LARGE")
    values = {model: table.value(column, model=model, layers=layers) for model in models}
    found = {model: value for model, value in values.items() if value is not None}
    return found, column.split if found else ""
