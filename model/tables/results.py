"""Results of evaluations as one table: a row for each entry, split and metric.

Tables, comparisons, verdicts and pictures are computed from these rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from model.tables.paper_results import PAPER_TABLES, PaperModel
from model.tables.resampling import Sample, read_samples
from model.task_types.row_terms_files import StoredTerms
from model.tasks.reduced_data import cut_on
from model.tasks.task import Task
from schemas.errors import PredictionsError
from schemas.trial_names import grid_point

MAJORITY_CLASS = "majority class"
DEV = "dev"
_DIGITS = 16

Metrics = dict[str, dict[str, float | None]]
"""Scores by split and metric, in fractions of 1. None: no value."""


class TableModel(BaseModel):
    """Model of statistics or `tables.json`; unknown fields are ignored."""

    model_config = ConfigDict(
        arbitrary_types_allowed=True,
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


def wrong_fields(error: ValidationError) -> str:
    """Return all invalid fields and their problems in one line."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


class Scores(TableModel):
    """Scores of an entry in one metric on one split, in fractions of 1."""

    runs: tuple[float, ...]
    """Scores of the restarts of the best grid point."""

    failed: int
    """Number of restarts without a value."""

    best: float | None
    """Score of the trial that is the best on dev."""

    ensemble: float | None
    """Score of the ensemble. None: no ensemble."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def mean(self) -> float | None:
        """Mean over restarts. None: no restarts, or one of them has no value."""
        return statistics.fmean(self.runs) if self.runs and not self.failed else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sd(self) -> float | None:
        """Sample standard deviation over restarts (n - 1). None: fewer than two restarts."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 and not self.failed else None

    @property
    def restarts(self) -> int:
        """Number of restarts, with or without a value."""
        return len(self.runs) + self.failed

    @property
    def shown(self) -> float | None:
        """Mean, otherwise the score of the ensemble, otherwise the best score."""
        return next((x for x in (self.mean, self.ensemble, self.best) if x is not None), None)


class Trial(TableModel):
    """Scores of one trial."""

    name: str
    """Grid point and restart: `bs16-lr2e-05-ep3-r0`."""

    batch_size: int | None = None
    learning_rate: float | None = None
    num_epochs: int | None = None
    restart: int = 0
    metrics: Metrics = {}

    @property
    def training(self) -> tuple[object, ...]:
        """Settings and dev scores, equal for entries that share the training.

        Names differ: an ensemble over several entries prepends the name of the entry. Only dev: an
        ensemble does not score its restarts on test.
        """
        grid = self.batch_size, self.learning_rate, self.num_epochs, self.restart
        return *grid, self.metrics.get(DEV)


class Evaluation(TableModel):
    """Statistics of one `evaluate` artifact."""

    entry: str
    """Name of the entry in the recipe."""

    task: str
    metric: str
    """Main metric of the task, by which models are selected on dev."""

    metrics: Metrics
    """Scores of the best model, or of the ensemble if `ensemble` is above 1."""

    baseline: Metrics = {}
    """Scores of the majority class (the most frequent label of train) on the same rows."""

    majority_label: str = ""
    """Most frequent label of train; "" for tasks without labels."""

    trials: tuple[Trial, ...] = Field(default=(), alias="cells")
    best: str = ""
    """Name of the trial with the best score on dev."""

    best_point: str = ""
    """Name of the grid point with the best mean over restarts."""

    ensemble: int = Field(default=1, ge=1)
    method: str = "fine-tune"
    cut: dict[str, Any] = {}
    """Reductions of data and steps (`model.tasks.reduced_data`)."""

    model: dict[str, Any] = {}
    """Fine-tuned model: `start`, `layers`, `hidden_size`, `heads`, `method`, and `data` if the data
    is not that of the task."""

    content: str = ""
    """First digits of the content digest of the artifact, or ""."""

    samples: Mapping[tuple[str, str], Sample] = Field(default={}, exclude=True)
    """Scores of dev rows by metric and entry, "" for the majority class."""

    @classmethod
    def from_statistics(
        cls,
        entry: str,
        statistics: Mapping[str, Any],
        *,
        content: str = "",
        row_terms: Iterable[StoredTerms] = (),
    ) -> Self:
        """Return the evaluation in the statistics of an artifact.

        Args:
            entry: Name of the entry in the recipe. Equal entries share an artifact.
            statistics: Statistics of the artifact.
            content: Content digest of the artifact.
            row_terms: Scores of dev rows in the artifact.

        Raises:
            PredictionsError: The statistics are not those of an evaluation.
        """
        try:
            own = {"entry": entry, "content": digits_of(content)}
            samples = read_samples(entry, row_terms)
            return cls.model_validate({**statistics, **own, "samples": samples})
        except ValidationError as error:
            raise PredictionsError(
                f"entry {entry}: its artifact's statistics are not those of an evaluation "
                f"({wrong_fields(error)}). Rebuild the stage evaluate"
            ) from error

    @property
    def data(self) -> str:
        """Name of the data if it is not the data of the task."""
        return str(self.model.get("data") or "")

    @property
    def feature_layers(self) -> str:
        """Layers used as features (`schemas.finetune_configs.LayerChoice`), or ""."""
        return str(self.model.get("feature_layers") or "")

    @property
    def dev_score(self) -> float | None:
        """Main metric on dev of the best model or of the ensemble."""
        return _number(self.metrics, DEV, self.metric)

    def majority(self, split: str, metric: str) -> float | None:
        """Return the score of the majority class, or None."""
        return _number(self.baseline, split, metric)

    def scores(self, split: str, metric: str) -> Scores:
        """Return the scores in a metric on a split."""
        restarts = [trial for trial in self.trials if grid_point(trial.name) == self.best_point]
        restarts.sort(key=lambda trial: (trial.restart, trial.name))
        values = [
            _number(trial.metrics, split, metric)
            for trial in restarts
            if metric in trial.metrics.get(split, {})
        ]
        runs = tuple(value for value in values if value is not None)
        score, is_single = _number(self.metrics, split, metric), self.ensemble == 1
        trials = (trial.metrics for trial in self.trials if trial.name == self.best)
        best = _number(next(trials, {}), split, metric)
        return Scores(
            runs=runs,
            failed=len(values) - len(runs),
            best=score if best is None and is_single else best,
            ensemble=None if is_single else score,
        )


def _number(metrics: Metrics, split: str, metric: str) -> float | None:
    """Return a score if it is finite, otherwise None."""
    value = metrics.get(split, {}).get(metric)
    return value if value is not None and math.isfinite(value) else None


def digits_of(content: str) -> str:
    """Return the first digits of a content digest, which identify an artifact."""
    return content.removeprefix("sha256:")[:_DIGITS]


def is_redundant_ensemble(evaluation: Evaluation, evaluations: Sequence[Evaluation]) -> bool:
    """Return whether all single models of an ensemble are also models of other entries."""
    if evaluation.ensemble == 1:
        return False
    known = [
        trial.training
        for other in evaluations
        if other.task == evaluation.task and _precedence(other) < _precedence(evaluation)
        for trial in other.trials
    ]
    return all(trial.training in known for trial in evaluation.trials)


def _precedence(evaluation: Evaluation) -> tuple[bool, int, str]:
    """Return a sort key: of entries with equal trials, the first one owns them."""
    return evaluation.ensemble > 1, len(evaluation.trials), evaluation.entry


def model_label(model: Mapping[str, Any], *, method: str, ensemble: int = 1) -> str:
    """Return a short description of a model, such as `phase-2, L=12 H=768 A=12`."""
    names = {"scratch": "from scratch", "init_checkpoint": "given checkpoint"}
    start = str(model.get("start", "?"))
    sizes = {"L": "num_hidden_layers", "H": "hidden_size", "A": "num_attention_heads"}
    shape = [f"{letter}={model[key]}" for letter, key in sizes.items() if model.get(key)]
    parts = [names.get(start, start), " ".join(shape)]
    if method == "feature-based":
        parts.append(f"features: {model.get('feature_layers') or 'of unnamed layers'}")
    if model.get("bilstm"):
        parts.append("a BiLSTM on top")
    if ensemble > 1:
        parts.append(f"ensemble of {ensemble}")
    if model.get("data"):
        parts.append(f"on {model['data']}")
    return ", ".join(part for part in parts if part)


class ResultRow(Scores):
    """Scores of an entry in one metric on one split, as a row of `tables.json`.

    The fields that the file lacks have their defaults in rows that were read from it.
    """

    task: str
    title: str = ""
    """Title of the task."""

    entry: str
    model: str
    """Short description of the model."""

    settings: dict[str, Any] = Field(default={}, exclude=True)
    """Fine-tuned model, as in `Evaluation.model`."""

    method: str = ""
    start: str = ""
    """Start of fine-tuning: a phase, `scratch`, or the name of a folder."""

    features: str = ""
    """Layers of a frozen encoder that are used as features."""

    data: str = ""
    """Name of the data if it is not the data of the task."""

    split: str
    metric: str
    is_main: bool
    """True for the main metric of the task."""

    is_listed: bool = Field(default=True, exclude=True)
    """True for metrics of the task. Others are only in JSON and CSV."""

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

    paper_table: str = Field(default="", exclude=True)
    """Table of the paper with these scores, or ""."""

    paper_column: str = Field(default="", exclude=True)
    """Key of the column in this table."""

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


def task_label(name: str, data: str) -> str:
    """Return a name with that of its data, such as `SST-2 (generated sample)`."""
    return with_bracket(name, data) if data else name


def with_bracket(text: str, remark: str) -> str:
    """Return a text with a remark in brackets; a bracket that ends the text takes it in.

    >>> with_bracket("+56 points on SST-2", "p 0.01"), with_bracket("CoLA (own data)", "p 0.01")
    ('+56 points on SST-2 (p 0.01)', 'CoLA (own data, p 0.01)')
    """
    return f"{text[:-1]}, {remark})" if text.endswith(")") else f"{text} ({remark})"


def in_order(evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]) -> list[Evaluation]:
    """Return evaluations sorted by task in the order of `tasks`, then by entry."""
    order = {name: number for number, name in enumerate(tasks)}

    def key(item: Evaluation) -> tuple[int, str, str]:
        return order.get(item.task, len(order)), item.task, item.entry

    return sorted(evaluations, key=key)


def result_rows(evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]) -> list[ResultRow]:
    """Return one row per entry, split and metric; dev and the main metric first.

    Raises:
        ConfigError: A task refers to a column that its paper table does not have.
    """
    return [
        row
        for item in evaluations
        for row in _rows(
            item, tasks.get(item.task), is_redundant=is_redundant_ensemble(item, evaluations)
        )
    ]


def main_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Return the row of each entry on dev in the main metric of its task."""
    return [row for row in rows if row.is_main and row.split == DEV]


def _rows(item: Evaluation, task: Task | None, *, is_redundant: bool) -> Iterator[ResultRow]:
    size = item.ensemble if is_redundant else 1
    about: dict[str, Any] = {
        "task": item.task,
        "title": task.title if task else item.task,
        "entry": item.entry,
        "model": model_label(item.model, method=item.method, ensemble=size),
        "settings": item.model,
        "method": item.method,
        "start": str(item.model.get("start") or ""),
        "features": item.feature_layers if item.method == "feature-based" else "",
        "data": item.data,
        "dev_score": item.dev_score,
        "trials": len(item.trials),
        "ensemble_of": item.ensemble,
    }
    for split in _splits(item, task):
        for metric in sorted(item.metrics[split], key=lambda name: (name != item.metric, name)):
            scores = dict(item.scores(split, metric))
            if is_redundant:  # its single models have other rows
                scores |= {"runs": (), "failed": 0, "best": None}
            has_value = _number(item.metrics, split, metric) is not None
            is_dev, runs = split == DEV, scores["runs"]
            yield ResultRow(
                **about,
                **scores,
                **_paper_scores(item, task, split=split, metric=metric),
                split=split,
                metric=metric,
                is_main=metric == item.metric,
                sample=item.samples.get((metric, item.entry)) if is_dev and runs else None,
                majority_sample=item.samples.get((metric, "")) if is_dev else None,
                is_listed=task is None or metric in task.metrics,
                cut=cut_on(split, item.cut),
                majority=item.majority(split, metric),
                reference=reference_to(item.content, f"{split}.{metric}" if has_value else ""),
            )


def reference_to(content: str, metric: str = "") -> str:
    """Return a reference to an artifact and one of its metrics, or "" for an unknown artifact."""
    return f"{content}:{metric}" if content and metric else content


def _splits(item: Evaluation, task: Task | None) -> list[str]:
    order = list(task.splits if task else ())

    def key(split: str) -> tuple[bool, int, str]:
        return split != DEV, order.index(split) if split in order else len(order), split

    return sorted(item.metrics, key=key)


def _paper_scores(
    item: Evaluation, task: Task | None, *, split: str, metric: str
) -> dict[str, Any]:
    """Return the column of a score in the paper, and the scores of the same method and layers."""
    key, name = task.paper.get(f"{split}/{metric}", ("", "")) if task else ("", "")
    if not key:
        return {"paper": {}, "paper_split": ""}
    table = PAPER_TABLES[key]
    column = table.column(name, split=split)
    is_frozen = item.method == "feature-based"
    layers = item.feature_layers if is_frozen else ""
    known: dict[PaperModel, float] = {}
    if not item.data and is_frozen == bool(layers):
        models: tuple[PaperModel, ...] = ("BERT_BASE",) if layers else ("BERT_BASE", "BERT_LARGE")
        values = {model: table.value(layers or model, column.key) for model in models}
        known = {model: value for model, value in values.items() if value is not None}
    return {
        "paper_table": key,
        "paper_column": column.key,
        "paper": known,
        "paper_split": column.split if known else "",
    }
