"""Results of evaluations as one table: a row for each entry, split and metric.

Tables, comparisons, verdicts and pictures are computed from these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import ConfigDict, Field

from model.tables.compare import Sample, Side, read_samples
from model.tables.paper import PAPER_TABLES, PaperModel
from model.task_results import (
    DEV,
    EvaluationResult,
    FinetunedModel,
    Scores,
    find_score,
)
from model.tasks import TASKS, Task
from model.tasks.row_terms import read_row_terms
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput

MAJORITY_CLASS = "majority class"
SCRATCH = "scratch"
"""Start of a model without pretraining."""

_DIGITS = 16


@dataclass(frozen=True)
class Evaluation:
    """An entry of the recipe with its result."""

    entry: str
    """Name of the entry in the recipe. Equal entries share an artifact."""

    result: EvaluationResult
    content: str = ""
    """Content digest of the artifact, or ""."""

    samples: Mapping[tuple[str, str], Sample] = field(default_factory=dict)
    """Scores of dev rows by metric and entry, "" for the majority class."""

    @classmethod
    def of_artifact(cls, entry: str, artifact: StageInput) -> Self:
        """Return the evaluation in an artifact, with its scores of dev rows.

        Raises:
            PredictionsError: The statistics are not those of an evaluation.
            ArtifactCorruptError: The scores of dev rows are damaged.
        """
        result = EvaluationResult.from_statistics(artifact.statistics, where=f"entry {entry}")
        samples = read_samples(entry, read_row_terms(artifact))
        return cls(entry, result, content_digest(artifact.files), samples)


def model_label(model: FinetunedModel, *, method: str, ensemble: int = 1) -> str:
    """Return a short description of a model, such as `phase-2, L=12 H=768 A=12`."""
    names = {SCRATCH: "from scratch", "init_checkpoint": "given checkpoint"}
    sizes = (model.num_hidden_layers, model.hidden_size, model.num_attention_heads)
    shape = " ".join(f"{letter}={size}" for letter, size in zip("LHA", sizes, strict=True) if size)
    parts = [names.get(model.start, model.start or "?"), shape]
    if method == "feature-based":
        parts.append(f"features: {model.feature_layers or 'of unnamed layers'}")
    if model.bilstm:
        parts.append("a BiLSTM on top")
    if ensemble > 1:
        parts.append(f"ensemble of {ensemble}")
    if model.data:
        parts.append(f"on {model.data}")
    return ", ".join(part for part in parts if part)


class ResultRow(Scores):
    """Scores of an entry in one metric on one split, as a row of `tables.json`.

    The fields that the file lacks have their defaults in rows that were read from it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    task: str
    title: str = ""
    """Title of the task."""

    entry: str
    model: str
    """Short description of the model."""

    settings: FinetunedModel = Field(default=FinetunedModel(), exclude=True)
    """Fine-tuned model."""

    method: str = ""
    start: str = ""
    """Start of fine-tuning: a phase, `scratch`, or the name of a folder."""

    data: str = ""
    """Name of the data if it is not the data of the task."""

    split: str
    metric: str
    is_main: bool
    """True for the main metric of the task."""

    cut: tuple[str, ...] = ()
    """Reductions of the data or the training."""

    majority: float | None
    """Score of the majority class on the same rows, in fractions of 1."""

    sample: Sample | None = Field(default=None, exclude=True)
    """Scores of the restarts on the rows of dev. None: not stored, or another split."""

    majority_sample: Sample | None = Field(default=None, exclude=True)
    """Scores of the majority class on the same rows."""

    dev_score: float | None = Field(default=None, exclude=True)
    """Main metric on dev of the entry's best model or of its ensemble."""

    trials: int = Field(alias="cells")
    """Number of trials of the entry."""

    ensemble_of: int
    """Number of models of the ensemble, or 1."""

    paper: dict[PaperModel, float]
    """Scores of the paper, times 100, as printed."""

    paper_split: str
    """Split of the scores of the paper, or ""."""

    reference: str = ""
    """Reference for `bertloom lineage` and `reproduce`: `CONTENT:SPLIT.METRIC`, or `CONTENT` if the
    metric has no value."""

    @property
    def name(self) -> str:
        """Name of the task in tables, with that of its data if it is not the task's own."""
        return task_label(self.title or self.task, self.data)

    @property
    def paper_cell(self) -> tuple[str, str]:
        """Keys of the paper's table and column with these scores; empty without one."""
        return TASKS[self.task].paper.get(f"{self.split}/{self.metric}", ("", ""))

    @property
    def side(self) -> Side:
        """Mean of the entry as a side of a comparison."""
        return Side(self.mean or 0.0, len(self.runs), self.sample)


def task_label(name: str, data: str) -> str:
    """Return a name with that of its data, such as `SST-2 (generated sample)`."""
    return with_bracket(name, data) if data else name


def with_bracket(text: str, remark: str) -> str:
    """Return a text with a remark in brackets; a bracket that ends the text takes it in.

    >>> with_bracket("+56 points on SST-2", "p 0.01"), with_bracket("CoLA (own data)", "p 0.01")
    ('+56 points on SST-2 (p 0.01)', 'CoLA (own data, p 0.01)')
    """
    return f"{text[:-1]}, {remark})" if text.endswith(")") else f"{text} ({remark})"


def result_rows(evaluations: Iterable[Evaluation]) -> list[ResultRow]:
    """Return one row per entry, split and metric, by task in the order of `TASKS` and by entry; dev
    and the main metric first."""
    order = list(TASKS)
    ranked = sorted(evaluations, key=lambda item: (order.index(item.result.task), item.entry))
    return [row for item in ranked for row in _rows(item, TASKS[item.result.task])]


def main_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Return the row of each entry on dev in the main metric of its task."""
    return [row for row in rows if row.is_main and row.split == DEV]


def comparable_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Return the main rows with a mean."""
    return [row for row in main_rows(rows) if row.mean is not None]


def _rows(item: Evaluation, task: Task) -> Iterator[ResultRow]:
    result, model = item.result, item.result.model
    size = result.ensemble if result.has_shared_trials else 1
    about: dict[str, Any] = {
        "task": result.task,
        "title": task.title,
        "entry": item.entry,
        "model": model_label(model, method=result.method, ensemble=size),
        "settings": model,
        "method": result.method,
        "start": model.start,
        "data": model.data,
        "dev_score": result.dev_score,
        "trials": len(result.trials),
        "ensemble_of": result.ensemble,
    }
    splits = list(task.splits)
    for split in sorted(result.metrics, key=lambda name: (name != DEV, splits.index(name))):
        for metric in sorted(result.metrics[split], key=lambda name: (name != result.metric, name)):
            scores = dict(result.scores(split, metric))
            if result.has_shared_trials:  # its single models have other rows
                scores |= {"runs": (), "failed": 0, "best": None}
            has_value = result.value(split, metric) is not None
            is_dev, runs = split == DEV, scores["runs"]
            yield ResultRow(
                **about,
                **scores,
                **_paper_scores(result, task, split=split, metric=metric),
                split=split,
                metric=metric,
                is_main=metric == result.metric,
                sample=item.samples.get((metric, item.entry)) if is_dev and runs else None,
                majority_sample=item.samples.get((metric, "")) if is_dev else None,
                cut=result.cut.on(split),
                majority=find_score(result.baseline, split, metric),
                reference=reference_to(item.content, f"{split}.{metric}" if has_value else ""),
            )


def reference_to(content: str, metric: str = "") -> str:
    """Return a reference to an artifact by the first digits of its content, and to a metric."""
    digits = content.removeprefix("sha256:")[:_DIGITS]
    return f"{digits}:{metric}" if digits and metric else digits


def _paper_scores(
    result: EvaluationResult, task: Task, *, split: str, metric: str
) -> dict[str, Any]:
    """Return the scores of the same method and layers in the paper."""
    if (cell := task.paper.get(f"{split}/{metric}")) is None:
        return {"paper": {}, "paper_split": ""}
    (key, column), layers = cell, result.model.feature_layers
    table = PAPER_TABLES[key]
    known: dict[PaperModel, float] = {}
    if not result.model.data and (result.method == "feature-based") == bool(layers):
        models: tuple[PaperModel, ...] = ("BERT_BASE",) if layers else ("BERT_BASE", "BERT_LARGE")
        values = {model: table.value(layers or model, column) for model in models}
        known = {model: value for model, value in values.items() if value is not None}
    return {"paper": known, "paper_split": table.columns_by_key[column].split if known else ""}
