"""Stage `evaluate`: compare the trials of a grid on dev, and predict all splits with the best.

The artifact has one file of predictions per split (for spans and tags also in the official format),
`metrics.json`, computed from those files read back, and `row-terms-dev.arrow` with the scores of
each dev row, which `tabulate` resamples. The restarts of the best grid point predict
every split with known answers, so that means exist for test as for dev (Table 7). A worker process
predicts; this module does not load torch.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from model.finetuning.jobs import METRICS_FILE, EvaluationJob
from model.task_results import (
    DEV,
    TRAINED_ON,
    EvaluationResult,
    ScoredTrial,
    TrialResult,
    examples_cut,
    join_cuts,
)
from model.tasks import Task, find_task
from model.tasks.examples import labels_of, read_examples, splits_of
from model.tasks.prediction_files import predictions_file, read_lines, stored_predictions
from model.training.artifact_files import to_json, write_folder
from model.training.health import read_warnings, summarize_restarts, warnings_json
from model.training.workers import call_in_worker
from pipelines.io.stage_inputs import check_files, input_file
from pipelines.progress import current_step_name
from schemas.errors import PredictionsError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import EvaluateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import FileEntry, StageInput, StageOutput
from schemas.trial_names import AXES, grid_point, trial_entry

if TYPE_CHECKING:
    from model.finetuning import prediction as prediction  # runs elsewhere: part of the key
    from model.tasks.task_types import TaskType


_EXAMPLES = "examples"


class Trial(NamedTuple):
    """Finished training."""

    name: str
    """Name such as `bs16-lr2e-05-ep3-r0`, prefixed with the entry's name if there are several."""

    artifact: StageInput
    result: TrialResult

    @property
    def point(self) -> str:
        """Name of the grid point, shared by its restarts."""
        return grid_point(self.name)


class Ranking(NamedTuple):
    """Trials of a grid, ranked on dev."""

    best: list[Trial]
    """Trials from best to worst; equal ones in the order of `read_trials`."""

    best_point: str
    """Name of the grid point with the highest mean."""

    @property
    def restarts(self) -> list[Trial]:
        """Trials of the best point."""
        return [trial for trial in self.best if trial.point == self.best_point]

    def choose(self, size: int) -> list[Trial]:
        """Return the best trials with different models.

        Entries of equal configuration share one model, which would count twice in an ensemble.
        """
        distinct: dict[str, Trial] = {}
        for trial in self.best:
            distinct.setdefault(content_digest(trial.artifact.files), trial)
        return list(distinct.values())[:size]


def read_trials(inputs: Mapping[str, StageInput]) -> list[Trial]:
    """Return the trials of a stage's inputs, by entry, batch, learning rate, epochs and restart.

    The order does not depend on the recipe's order, which is not part of any cache key.
    """

    def order(trial: Trial) -> tuple[Any, ...]:
        return (trial_entry(trial.name), *(getattr(trial.result.cell, axis) for axis in AXES))

    return sorted(
        (
            Trial(name, artifact, TrialResult.from_statistics(artifact.statistics, where=name))
            for name, artifact in inputs.items()
        ),
        key=order,
    )


def rank_trials(trials: list[Trial], *, metric: str) -> Ranking:
    """Rank trials by a metric on dev (the larger the better).

    Raises:
        PredictionsError: A trial does not have the metric, because dev has no answers.
    """
    scores: dict[str, float] = {}
    points: dict[str, list[float]] = {}
    for trial in trials:
        value = trial.result.metrics.get(DEV, {}).get(metric)
        if value is None:
            raise PredictionsError(
                f"{trial.name}: expected {metric} on dev, got none. Give a dev split with answers"
            )
        scores[trial.name] = value
        points.setdefault(trial.point, []).append(value)
    return Ranking(
        best=sorted(trials, key=lambda trial: -scores[trial.name]),
        best_point=max(points, key=lambda name: statistics.fmean(points[name])),
    )


def evaluate(
    config: EvaluateConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Compare trials on dev; predict every split but the training data with the best.

    Args:
        config: Size of the ensemble, and device.
        inputs: `examples`, and the trials by name.
        output: URL of the folder to write to.
        execution: Unused.

    Raises:
        PredictionsError: Models of an ensemble differ in vocabulary, labels or features.
        ArtifactCorruptError: An input differs from its manifest.
        RunnerError: The worker process was killed.
    """
    del execution
    trials = read_trials({name: item for name, item in inputs.items() if name != _EXAMPLES})
    with TemporaryDirectory(prefix="bertloom-evaluate-") as folder:
        work = _Work(config, inputs[_EXAMPLES], folder)
        ranking = rank_trials(trials, metric=work.task.metrics[0])
        chosen = ranking.choose(config.ensemble_size)
        threshold = work.predict(chosen, work.splits)
        known = {split: metrics for split in work.splits if (metrics := work.score(split))}
        restarts = work.score_restarts(ranking, chosen, known=known)
        work.write_official_files(threshold=threshold)
        Path(folder, METRICS_FILE).write_bytes(to_json(known))
        files = write_folder(Path(folder), output=output)
        row_terms = work.write_row_terms(ranking.restarts, output=output)
    scored = tuple(
        ScoredTrial(
            name=trial.name,
            **trial.result.cell.model_dump(),
            metrics={**trial.result.metrics, **restarts.get(trial.name, {})},
        )
        for trial in sorted(trials, key=lambda trial: trial.name)
    )
    result = work.result(ranking, chosen, metrics=known, trials=scored, threshold=threshold)
    rows = work.examples.statistics["splits"]
    return StageOutput(
        files=tuple(sorted((*files, row_terms), key=lambda entry: entry.path)),
        counters={f"predictions-{split}": rows[split] for split in work.splits},
        statistics=result.to_statistics(),
        notes=_notes(config, work.task, chosen=chosen),
    )


@dataclass(frozen=True)
class _Work:
    """Predictions and scores on the examples of a task."""

    config: EvaluateConfig
    examples: StageInput
    folder: str
    """Folder for predictions."""

    @property
    def task(self) -> Task:
        return find_task(str(self.examples.statistics["task"]))

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits to predict."""
        return tuple(split for split in splits_of(self.examples) if split not in TRAINED_ON)

    @property
    def task_type(self) -> TaskType:
        from model.tasks.task_types import TASK_TYPES  # lazy: heavy imports

        return TASK_TYPES[self.task.type]

    def predict(self, trials: list[Trial], splits: Sequence[str]) -> float:
        """Write the predictions of a model or an ensemble on each split; return their threshold."""
        best = trials[0]
        if len(trials) == 1 and DEV in splits:
            # The trial already has predictions on dev.
            path = predictions_file(DEV)
            Path(self.folder, path).write_bytes(input_file(best.artifact, path).read())
            splits = [split for split in splits if split != DEV]
        if not splits:
            return best.result.threshold
        for trial in trials:
            check_files(trial.artifact)  # models are read by the URLs of their folders
        job = EvaluationJob(
            name=current_step_name(f"evaluate {self.config.entry}"),
            examples=self.examples,
            members=tuple(trial.artifact for trial in trials),
            splits=tuple(splits),
            folder=self.folder,
            per_device_max_tokens=self.config.per_device_max_tokens,
            device=self.config.device,
            threads=self.config.num_threads,
        )
        return float(call_in_worker("model.finetuning.prediction:run_evaluation", job)["threshold"])

    def read(self, split: str) -> list[dict[str, Any]]:
        """Return the predictions on a split."""
        return read_lines(f"{self.folder}/{predictions_file(split)}")

    def score(self, split: str) -> dict[str, float]:
        """Return the scores of the predictions on a split; {} if its answers are not known."""
        examples = read_examples(self.examples, split)
        return self.task_type.score_known(examples, self.read(split), task=self.task)

    def score_restarts(
        self, ranking: Ranking, chosen: list[Trial], *, known: dict[str, dict[str, float]]
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Return scores of the best point's restarts by trial and split, without dev.

        Writes their predictions as `predictions-SPLIT-TRIAL.jsonl`. An ensemble over several
        entries has none: the entries of its trials score them.

        Args:
            ranking: All trials.
            chosen: Selected models.
            known: Scores of the selected model on splits with known answers.
        """
        splits = [split for split in known if split != DEV]
        if not splits or any(trial_entry(trial.name) for trial in ranking.best):
            return {}
        single = {split: known[split] for split in splits}
        scores = {chosen[0].name: single} if len(chosen) == 1 else {}
        for trial in (trial for trial in ranking.restarts if trial.name not in scores):
            with TemporaryDirectory(prefix="restart-", dir=self.folder) as own:
                work = replace(self, folder=own)
                work.predict([trial], splits)
                scores[trial.name] = {split: work.score(split) for split in splits}
                for split in splits:
                    path = Path(self.folder, predictions_file(f"{split}-{trial.name}"))
                    Path(own, predictions_file(split)).rename(path)
        return scores

    def write_official_files(self, *, threshold: float) -> None:
        """Write the predictions on each split in the format of the task's own scorer."""
        for split in self.splits:
            files = self.task_type.official_files(
                read_examples(self.examples, split),
                self.read(split),
                task=self.task,
                split=split,
                threshold=threshold,
            )
            for name, content in files.items():
                Path(self.folder, name).write_bytes(content)

    def write_row_terms(self, restarts: Sequence[Trial], *, output: str) -> FileEntry:
        """Write the terms of dev for each restart and for the majority class."""
        from model.tasks.row_terms import write_row_terms  # lazy: heavy imports

        dev = read_examples(self.examples, DEV)
        made = itertools.chain(
            ((trial.name, stored_predictions(trial.artifact, DEV)) for trial in restarts),
            [("", self.task_type.repeat_answer(dev, self.majority_answer))],
        )
        terms = (
            (name, self.task_type.row_terms(dev, predictions, task=self.task))
            for name, predictions in made
        )
        rows = input_file(self.examples, "dev.arrow").sha256
        return write_row_terms(terms, rows=rows, output=output)

    @cached_property
    def majority_answer(self) -> dict[str, Any]:
        """Most frequent answer of train."""
        train, labels = read_examples(self.examples, "train"), labels_of(self.examples)
        return self.task_type.majority_answer(train, task=self.task, labels=labels)

    def score_majority(self, split: str) -> dict[str, float]:
        """Return the metrics of always giving the most frequent answer of train."""
        rows = read_examples(self.examples, split)
        predictions = self.task_type.repeat_answer(rows, self.majority_answer)
        return self.task_type.score(rows, predictions, task=self.task)

    def result(
        self,
        ranking: Ranking,
        chosen: list[Trial],
        *,
        metrics: dict[str, dict[str, float]],
        trials: tuple[ScoredTrial, ...],
        threshold: float,
    ) -> EvaluationResult:
        """Return the result of the entry: scores of the chosen models and of all trials."""
        best, own = chosen[0].result, {"start": self.config.start}
        if data := self.examples.statistics.get("data"):
            own["data"] = data
        trained = [trial.result.cut for trial in (*ranking.restarts, *chosen)]
        warnings = [read_warnings(trial.artifact.statistics) for trial in ranking.restarts]
        return EvaluationResult(
            task=self.task.name,
            kind=self.task.type,
            entry=self.config.entry,
            metric=self.task.metrics[0],
            ensemble=len(chosen),
            members=tuple(trial.name for trial in chosen),
            method=best.method,
            model=best.model.model_copy(update=own),
            metrics=metrics,
            baseline={split: self.score_majority(split) for split in metrics},
            majority_label=str(self.majority_answer.get("label", "")),
            cut=join_cuts([examples_cut(self.examples.statistics), *trained]),
            threshold=threshold,
            warnings=tuple(warnings_json(summarize_restarts(warnings))),
            trials=trials,
            best=ranking.best[0].name,
            best_point=ranking.best_point,
        )


def _notes(config: EvaluateConfig, task: Task, *, chosen: list[Trial]) -> tuple[str, ...]:
    notes = []
    if len(chosen) < config.ensemble_size:
        notes.append(f"requested an ensemble of {config.ensemble_size}, only {len(chosen)} exist")
    if note := task.case_note(lowercase=chosen[0].result.lowercase):
        notes.append(note)
    return tuple(notes)
