"""Results that stages pass on: of a trial (`finetune`) and of an entry (`evaluate`).

They are the `statistics` of the artifacts. The stages write them, and `evaluate`, `tabulate`, cards
and reports read them through these models. Scores are fractions of 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from schemas.errors import PredictionsError
from schemas.manifest import Manifest
from schemas.trial_names import grid_point, trial_entry

DEV = "dev"
TRAINED_ON = ("augmentation", "train")
"""Splits that models learn from, in the order of training."""

_MARK = "\u2020"  # a dagger after the number; a note explains it

Metrics = dict[str, dict[str, float | None]]
"""Scores by split and metric. None: no value."""


class Result(BaseModel):
    """Base of results; unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    @classmethod
    def from_statistics(cls, statistics: Mapping[str, Any], *, where: str) -> Self:
        """Return the result in the statistics of an artifact.

        Raises:
            PredictionsError: The statistics are not such a result.
        """
        try:
            return cls.model_validate(statistics)
        except ValidationError as error:
            raise PredictionsError(
                f"{where}: expected the statistics of {cls.__name__} ({wrong_fields(error)}). "
                "Rebuild the artifact"
            ) from error

    def to_statistics(self) -> dict[str, Any]:
        """Return JSON values, without fields that were not set."""
        return self.model_dump(mode="json", exclude_unset=True)


def wrong_fields(error: ValidationError) -> str:
    """Return all invalid fields and their problems in one line."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


class Cut(Result):
    """Reductions of data and training, as texts. A score with one is marked next to the paper's."""

    training: tuple[str, ...] = ()
    """Reductions of the training data or of the training."""

    splits: dict[str, str] = {}
    """Reduction of each other split that is not complete."""

    def on(self, split: str) -> tuple[str, ...]:
        """Return the texts that apply to a score on a split."""
        return (*self.training, *([self.splits[split]] if split in self.splits else ()))


def join_cuts(cuts: Iterable[Cut]) -> Cut:
    """Return the reductions of several trainings without repeats."""
    parts = list(cuts)
    texts = dict.fromkeys(text for cut in parts for text in cut.training)
    splits = {split: text for cut in parts for split, text in cut.splits.items()}
    return Cut(training=tuple(texts), splits=splits)


def split_text(split: str, cut: Mapping[str, Any]) -> str:
    """Return the size of a reduced split, such as `4,000 of 67,349 training rows`."""
    name = "training" if split == "train" else split
    return f"{cut['kept']:,} of {cut['of']:,} {name} {cut['unit']}"


def examples_cut(statistics: Mapping[str, Any]) -> Cut:
    """Return the reductions that trials inherit from the statistics of their examples."""
    texts = {split: split_text(split, cut) for split, cut in statistics.get("cut", {}).items()}
    return Cut(
        training=tuple(texts[split] for split in TRAINED_ON if split in texts),
        splits={split: text for split, text in texts.items() if split not in TRAINED_ON},
    )


def cut_notes(cuts: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Return one line per entry with reductions."""
    texts: dict[str, dict[str, None]] = {}
    for entry, cut in cuts:
        texts.setdefault(entry, {}).update(dict.fromkeys(cut))
    return [f"{_MARK} {entry}: {'; '.join(cut)}." for entry, cut in texts.items() if cut]


def marked(text: str, cut: Sequence[str]) -> str:
    """Format a number, with a mark for reduced data."""
    return f"{text} {_MARK}" if text and cut else text


class FinetunedModel(Result):
    """Description of a fine-tuned model. Of trials, `start` and `data` are not set."""

    num_hidden_layers: int = 0
    hidden_size: int = 0
    num_attention_heads: int = 0
    feature_layers: str = ""
    """Layers of a frozen encoder (`schemas.finetune_configs.LayerChoice`); "": fine-tuned."""

    bilstm: bool = False
    """True with a BiLSTM on top."""

    start: str = ""
    """Start of fine-tuning: a phase, `scratch`, or the name of a folder."""

    data: str = ""
    """Name of the data; "" for the task's own."""


class GridCell(Result):
    """Point of a grid, and restart."""

    batch_size: int | None = None
    learning_rate: float | None = None
    num_epochs: int | None = None
    restart: int = 0


class TaskResult(Result):
    """Facts that results of a trial and of an evaluation share."""

    task: str
    kind: str = ""
    """Type of the task."""

    method: str = "fine-tune"
    metrics: Metrics
    """Scores of the model."""

    model: FinetunedModel = FinetunedModel()
    cut: Cut = Cut()
    threshold: float = 0.0
    """Threshold of `null_odds`, above which a question has no answer."""

    warnings: tuple[dict[str, str], ...] = ()
    """Problems of the training (`model.training.health`)."""

    def value(self, split: str, metric: str) -> float | None:
        """Return a score if it is finite, otherwise None."""
        return find_score(self.metrics, split, metric)


def find_score(metrics: Metrics, split: str, metric: str) -> float | None:
    """Return a score if it is finite, otherwise None."""
    value = metrics.get(split, {}).get(metric)
    return value if value is not None and math.isfinite(value) else None


class TrainedAmount(Result):
    """Length of a training."""

    steps: int
    examples: int
    tokens: int


class TrialResult(TaskResult):
    """Result of one training."""

    cell: GridCell = GridCell()
    training: TrainedAmount | None = None
    lowercase: bool = True
    """Text rules of the tokenizer (`pipelines.wordpiece.text_rules`)."""

    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True


class ScoredTrial(GridCell):
    """Trial of an evaluation with its scores."""

    name: str
    """Grid point and restart: `bs16-lr2e-05-ep3-r0`, after the entry if there are several."""

    metrics: Metrics = {}


class Scores(Result):
    """Scores of an entry in one metric on one split."""

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


class EvaluationResult(TaskResult):
    """Result of an entry of the recipe: its best model, or the ensemble of its best ones."""

    entry: str = ""
    """Name of the entry in the recipe. Equal entries share an artifact."""

    metric: str = ""
    """Main metric of the task, by which models are selected on dev."""

    baseline: Metrics = {}
    """Scores of the majority class (the most frequent label of train) on the same rows."""

    majority_label: str = ""
    """Most frequent label of train; "" for tasks without labels."""

    trials: tuple[ScoredTrial, ...] = Field(default=(), alias="cells")
    best: str = ""
    """Name of the trial with the best score on dev."""

    best_point: str = ""
    """Name of the grid point with the best mean over restarts."""

    ensemble: int = Field(default=1, ge=1)
    """Number of models."""

    members: tuple[str, ...] = ()
    """Names of the trials of these models."""

    @property
    def has_shared_trials(self) -> bool:
        """True for an entry of `ensembles`: the entries of its trials score them, too."""
        return any(trial_entry(trial.name) for trial in self.trials)

    @property
    def dev_score(self) -> float | None:
        """Main metric on dev of the best model or of the ensemble."""
        return self.value(DEV, self.metric)

    def scores(self, split: str, metric: str) -> Scores:
        """Return the scores in a metric on a split."""
        restarts = [trial for trial in self.trials if grid_point(trial.name) == self.best_point]
        restarts.sort(key=lambda trial: (trial.restart, trial.name))
        values = [
            find_score(trial.metrics, split, metric)
            for trial in restarts
            if metric in trial.metrics.get(split, {})
        ]
        runs = tuple(value for value in values if value is not None)
        score, is_single = self.value(split, metric), self.ensemble == 1
        trials = (trial.metrics for trial in self.trials if trial.name == self.best)
        best = find_score(next(trials, {}), split, metric)
        return Scores(
            runs=runs,
            failed=len(values) - len(runs),
            best=score if best is None and is_single else best,
            ensemble=None if is_single else score,
        )


def read_evaluation(manifest: Manifest) -> EvaluationResult:
    """Return the result in the manifest of an evaluation, or of a trial as its only model.

    Raises:
        PredictionsError: The statistics are not such a result.
    """
    return EvaluationResult.from_statistics(manifest.statistics, where=manifest.artifact_id)
