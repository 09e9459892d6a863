"""What evaluations say: scores of one entry, over its restarts; which entries repeat others."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from model.tasks.cut_data import cut_on
from schemas.errors import PredictionsError
from schemas.trial_names import grid_point

MAJORITY = "majority"
MAJORITY_CLASS = "majority class"
DEV = "dev"

Metrics = dict[str, dict[str, float | None]]
"""Shares of 1 by split and metric; None where the metric has no value (a correlation of one
constant, say)."""


class TableModel(BaseModel):
    """What is read from statistics or `tables.json`; what another version adds is no fault."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


def wrong_fields(error: ValidationError) -> str:
    """What is wrong with which fields, in one line."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


class Scores(TableModel):
    """One metric of one entry on one split, in shares of 1."""

    runs: tuple[float, ...]
    """Scores of the best grid point's restarts, where they were scored on this split."""

    failed: int
    """Restarts of it whose metric has no value."""

    best: float | None
    """Score of the trial that is best on dev."""

    ensemble: float | None
    """Score of the ensemble, where the entry asks for one."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def mean(self) -> float | None:
        """Over the restarts; None where one of them has no value, or there are none."""
        return statistics.fmean(self.runs) if self.runs and not self.failed else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sd(self) -> float | None:
        """Standard deviation over the restarts (of a sample: n - 1); None below two."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 and not self.failed else None

    @property
    def restarts(self) -> int:
        """How many there are, with a value or without."""
        return len(self.runs) + self.failed

    @property
    def shown(self) -> float | None:
        """The mean over restarts, or what there is: the ensemble's or the chosen model's."""
        return next((x for x in (self.mean, self.ensemble, self.best) if x is not None), None)


class Trial(TableModel):
    """What one training of a grid scored."""

    name: str
    """Point and restart: `bs16-lr2e-05-ep3-r0`."""

    batch: int | None = None
    learning_rate: float | None = None
    epochs: int | None = None
    restart: int = 0
    metrics: Metrics = {}

    @property
    def point(self) -> str:
        """The name of its grid point."""
        return grid_point(self.name)


class Evaluation(TableModel):
    """The statistics of one `evaluate` artifact."""

    entry: str
    """Its name in the recipe's `finetune`."""

    task: str
    metric: str
    """The one that chose on dev."""

    metrics: Metrics
    """Scores of the chosen model, or of the ensemble where `ensemble` is above 1."""

    baseline: Metrics = {}
    """Scores of the majority class on the same rows: always the most frequent label of train."""

    trials: tuple[Trial, ...] = Field(default=(), alias="cells")
    best: str = ""
    """Name of the trial with the best dev score."""

    best_point: str = ""
    """Name of the grid point with the best mean over its restarts."""

    ensemble: int = Field(default=1, ge=1)
    method: str = "fine-tune"
    cut: dict[str, Any] = {}
    """What of the data and the steps was left out (`model.tasks.cut_data`)."""

    model: dict[str, Any] = {}
    """What was fine-tuned: `start`, `layers`, `hidden_size`, `heads`, `method`; and `data`, what it
    was fine-tuned and scored on, where that is not the task's own."""

    content: str = ""
    """First digits of its artifact's content digest, by which the artifact is found; "" where the
    artifact is not known."""

    @property
    def is_on_other_data(self) -> bool:
        """Whether its scores are of other data than the paper's."""
        return bool(self.model.get("data"))

    @classmethod
    def read(cls, entry: str, statistics: Mapping[str, Any], *, content: str = "") -> Self:
        """The evaluation of an entry; `content` is its artifact's content digest.

        The entry's name is the recipe's, not that of the statistics: one artifact serves all
        entries of equal configuration.

        Raises:
            PredictionsError: the statistics are not those of an evaluation.
        """
        try:
            return cls.model_validate({**statistics, "entry": entry, "content": digits_of(content)})
        except ValidationError as error:
            raise PredictionsError(
                f"entry {entry}: its artifact's statistics are not those of an evaluation "
                f"({wrong_fields(error)}). Rebuild the stage evaluate"
            ) from error

    @property
    def is_majority(self) -> bool:
        """Whether it is no model, but always the most frequent label."""
        return self.method == MAJORITY

    def cut_on(self, split: str) -> tuple[str, ...]:
        """What its scores on a split were not given, in a few words each."""
        return cut_on(split, self.cut)

    def reference(self, split: str, metric: str) -> str:
        """What `bertloom lineage` and `reproduce` find a number by, on any machine.

        `CONTENT:SPLIT.METRIC`; the artifact alone where its metric has no value.
        """
        has_value = number(self.metrics.get(split, {}).get(metric)) is not None
        return reference_to(self.content, f"{split}.{metric}" if has_value else "")

    def majority(self, split: str, metric: str) -> float | None:
        """Return the score of the majority class, None where it has no value."""
        return number(self.baseline.get(split, {}).get(metric))

    @property
    def dev_score(self) -> float | None:
        """Main metric of the chosen model or ensemble on dev."""
        return number(self.metrics.get(DEV, {}).get(self.metric))

    @property
    def restarts(self) -> tuple[Trial, ...]:
        """The trials of the best grid point, by restart."""
        trials = [trial for trial in self.trials if trial.point == self.best_point]
        return tuple(sorted(trials, key=lambda trial: (trial.restart, trial.name)))

    def scores(self, split: str, metric: str) -> Scores:
        """What there is of one metric on one split."""
        given = [trial.metrics.get(split, {}) for trial in self.restarts]
        found = [number(values.get(metric)) for values in given if metric in values]
        runs = tuple(value for value in found if value is not None)
        chosen = number(self.metrics.get(split, {}).get(metric))
        is_single = self.ensemble == 1
        best_trial = next((trial for trial in self.trials if trial.name == self.best), None)
        best = number(best_trial.metrics.get(split, {}).get(metric)) if best_trial else None
        if best is None and is_single:
            best = chosen
        return Scores(
            runs=runs,
            failed=len(found) - len(runs),
            best=best,
            ensemble=None if is_single else chosen,
        )


_DIGITS = 16


def digits_of(content: str) -> str:
    """The digits of a content digest that name an artifact."""
    return content.removeprefix("sha256:")[:_DIGITS]


def reference_to(content: str, metric: str = "") -> str:
    """An artifact of some content, and a metric of it; "" where the artifact is not known."""
    return f"{content}:{metric}" if content and metric else content


def number(value: float | None) -> float | None:
    """The value, or None for what is no finite number."""
    return value if value is not None and math.isfinite(value) else None


def is_redundant_ensemble(evaluation: Evaluation, evaluations: Sequence[Evaluation]) -> bool:
    """Whether an ensemble's single models are all those of other entries, and stand there already.

    That is so for an ensemble over the trials of entries; an entry of its own trains its own.
    """
    if evaluation.ensemble == 1:
        return False
    known = {
        _what_ran(trial)
        for other in evaluations
        if other.task == evaluation.task and _precedence(other) < _precedence(evaluation)
        for trial in other.trials
    }
    return all(_what_ran(trial) in known for trial in evaluation.trials)


def _precedence(evaluation: Evaluation) -> tuple[bool, int, str]:
    """Whose trials they are where several have the same: some order, for any two of them."""
    return evaluation.ensemble > 1, len(evaluation.trials), evaluation.entry


def _what_ran(trial: Trial) -> str:
    # Not by the name: an ensemble over several entries puts the entry's before it.
    point = [trial.batch, trial.learning_rate, trial.epochs, trial.restart]
    # On test only the evaluation of their own entry scores restarts.
    return json.dumps([point, trial.metrics.get(DEV)], sort_keys=True)


def model_label(model: Mapping[str, Any], *, method: str, ensemble: int = 1) -> str:
    """A model in a few words, such as `phase-2, L=12 H=768 A=12`."""
    if method == MAJORITY:
        return MAJORITY_CLASS
    names = {"scratch": "from scratch", "init_checkpoint": "given checkpoint"}
    start = str(model.get("start", "?"))
    shape = [
        f"{letter}={model[name]}"
        for letter, name in (
            ("L", "num_hidden_layers"),
            ("H", "hidden_size"),
            ("A", "num_attention_heads"),
        )
        if model.get(name) is not None
    ]
    parts = [names.get(start, start), " ".join(shape)]
    if method == "feature-based":
        parts.append(f"features: {feature_layers(model) or 'of unnamed layers'}")
    if model.get("bilstm"):
        parts.append("a BiLSTM on top")
    if ensemble > 1:
        parts.append(f"ensemble of {ensemble}")
    if model.get("data"):
        parts.append(f"on {model['data']}")
    return ", ".join(part for part in parts if part)


def feature_layers(model: Mapping[str, Any]) -> str:
    """Which layers the features are of (`schemas.finetune_configs.LayerChoice`), or ""."""
    return str(model.get("feature_layers") or "")
