"""Training of one fine-tuning trial, and the artifact's files: model, dev predictions, scores.

`model.training.loop` has the steps.
"""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch

from model.data.loader import prefetch
from model.finetuning.batches import TaskBatch, TaskStep
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.jobs import CURVE_FILE, METRICS_FILE, TIMING_FILE, TrialJob
from model.finetuning.prediction import compute_outputs, predict
from model.finetuning.saved_models import save_task_model
from model.finetuning.setup import (
    Phase,
    Split,
    TrialSetup,
    TrialState,
    open_trial,
    phases_of,
    steps_of,
)
from model.optim import Optimizer, build_optimizer, learning_rate
from model.task_results import (
    DEV,
    Cut,
    FinetunedModel,
    GridCell,
    TrainedAmount,
    TrialResult,
    examples_cut,
)
from model.tasks.prediction_files import Prediction, predictions_file, to_lines
from model.tasks.qa import apply_threshold
from model.tasks.squad_metrics import best_threshold
from model.tasks.task_types import TASK_TYPES
from model.training.artifact_files import to_json
from model.training.checkpoints import Checkpoints
from model.training.distributed import ProcessGroup, device_name
from model.training.health import PAGE, TrainingWarning, check_answers, warnings_json
from model.training.log import JsonLines
from model.training.loop import StepMetrics, Trainer, resume_from_checkpoint
from model.training.progress import PROGRESS_FILE, TrainingProgress
from model.training.stopping import StopRequest
from pipelines.arrays import Float32s
from pipelines.seeds import key_for
from pipelines.wordpiece.tokenizer import tokenizer_config_json, tokenizer_json
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.errors import TrainingError
from schemas.model_configs import BudgetConfig, ScheduleConfig
from schemas.trial_names import trial_axes

_CURVE_LINES = 500  # of a trial, about
_PREFETCHED_STEPS = 2
_LAST_SAVE_SECONDS = 60.0
"""Seconds since the last checkpoint after which the end of a training writes another one, before
the prediction of dev."""


def train_trial(job: TrialJob, *, stop: StopRequest) -> dict[str, Any]:
    """Train a trial to its end, from its newest checkpoint if any, and predict dev.

    Writes the files of the artifact to `job.results()`.

    Returns:
        `statistics`, `counters` and `notes`, as in `StageOutput`.

    Raises:
        TaskDataError, ConfigError, CheckpointError, VocabularyError: Before the first step, if
            inputs are invalid; CheckpointError also if a checkpoint cannot be written.
        DivergenceError: The loss is not finite.
        TrainingError: The training was asked to stop, and has written a checkpoint.
    """
    if job.config.num_threads:
        torch.set_num_threads(job.config.num_threads)
    checkpoints = Checkpoints(
        f"{job.work}/checkpoints", keep_last=job.config.checkpoints.save_total_limit
    )
    with checkpoints.lock():
        setup = open_trial(job)
        if isinstance(setup.model, FeatureTagger):
            setup = encode_splits(setup, setup.model, stop=stop)
        trainer = FineTuningTrainer(setup, checkpoints=checkpoints, stop=stop)
        with closing(trainer):
            trainer.run()
            trainer.save_if_needed(older_than=_LAST_SAVE_SECONDS)
            try:
                return write_results(setup, state=trainer.state, stop=stop)
            except TrainingError:
                if stop.reason:
                    trainer.save_if_needed()
                raise
            finally:
                del trainer
                if setup.device.type == "cuda":  # free memory for other trials of this process
                    torch.cuda.empty_cache()


def encode_splits(setup: TrialSetup, model: FeatureTagger, *, stop: StopRequest) -> TrialSetup:
    """Return a trial whose training data has the outputs of its frozen encoder.

    The encoder reads the data once, not in each epoch. A file in the trial's folder holds the
    outputs, because those of a large encoder exceed the memory; it vanishes with the process.

    Raises:
        TrainingError: A stop was requested.
    """
    folder = setup.job.folder()
    folder.mkdir(parents=True, exist_ok=True)
    splits = dict(setup.splits)
    for name, (examples, features) in setup.splits.items():
        if name == DEV:
            continue
        options = setup.prediction_options(f"encode {name}", stop=stop)
        new_array = functools.partial(_new_file_array, folder=folder)
        encoded = compute_outputs(model.encode, features, options, new_array=new_array)
        splits[name] = Split(examples, replace(features, encoded=encoded))
    return replace(setup, splits=splits)


def _new_file_array(shape: tuple[int, ...], *, folder: Path) -> Float32s:
    file = TemporaryFile(dir=folder)  # noqa: SIM115  # the array closes it
    return np.memmap(file, np.float32, mode="w+", shape=shape)


class FineTuningTrainer(Trainer[TaskStep]):
    """Trainer of a trial."""

    advice = f"Lower learning_rate, or lengthen warmup_ratio. See {PAGE}#the-loss-becomes-nan"

    def __init__(self, setup: TrialSetup, *, checkpoints: Checkpoints, stop: StopRequest) -> None:
        """Resume from the newest checkpoint, if any."""
        self.setup, self.config, job = setup, setup.job.config, setup.job
        self.phases = phases_of(setup)
        self.total_steps: int = sum(phase.steps for phase in self.phases)
        self._schedule = ScheduleConfig(
            lr_scheduler_type="linear", warmup_ratio=self.config.warmup_ratio
        )
        optimizer = self._new_optimizer()
        self.state = resume_from_checkpoint(
            checkpoints, model=setup.model, optimizer=optimizer, state=TrialState()
        )
        done, folder = self.state.done, job.folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._curve = JsonLines(folder / CURVE_FILE, resume_step=done.steps)
        budget = BudgetConfig(max_steps=self.total_steps)
        super().__init__(
            job.name,
            model=setup.model,
            optimizer=optimizer,
            state=self.state,
            group=ProcessGroup(0, 1, setup.device),
            checkpoints=checkpoints,
            checkpoint_config=self.config.checkpoints,
            stop=stop,
            log=self._curve,
            progress=TrainingProgress(
                job.name, path=folder / PROGRESS_FILE, budget=budget, done=done
            ),
            is_bf16=setup.is_bf16,
        )

    def _new_optimizer(self) -> Optimizer:
        config = self.config.optimizer.model_copy(
            update={"learning_rate": self.config.learning_rate}
        )
        return build_optimizer(self.setup.model.named_parameters(), config)

    def batches(self) -> Generator[TaskStep]:
        """Yield the remaining batches of all phases, each with a new optimizer state."""
        for phase in self.phases:
            if phase.start and self.done.steps == phase.start:
                self.optimizer = self._new_optimizer()
            with closing(self._batches_of(phase)) as batches:
                yield from batches

    def _batches_of(self, phase: Phase) -> Generator[TaskStep]:
        """Return the remaining batches of a phase; for a GPU, a thread prepares and pins them."""
        steps = steps_of(phase, self.setup, done=self.done.steps - phase.start)
        if self.group.device.type != "cuda":
            return steps
        return prefetch((step.pin_memory() for step in steps), size=_PREFETCHED_STEPS)

    def _phase_of(self, step: int) -> Phase:
        """Return the phase of a step, from 1."""
        return next(phase for phase in self.phases if step <= phase.end)

    def learning_rate(self) -> float:
        phase = self._phase_of(self.done.steps + 1)
        return learning_rate(
            self.done.steps - phase.start,
            total=phase.steps,
            peak=self.config.learning_rate,
            schedule=self._schedule,
        )

    def dropout_key(self, number: int) -> int:
        phase = self._phase_of(self.done.steps + 1)
        seed, restart = self.config.seed, self.config.restart
        step = self.done.steps - phase.start
        return key_for(seed, "task-dropout", restart, phase.name, step, number)

    def compute_loss(
        self, micro_batch: TaskBatch, batch: TaskStep
    ) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        return self.wrapped_model(micro_batch, scale=batch.scale).loss, ()

    def on_step_end(self, batch: TaskStep, metrics: StepMetrics) -> str:
        state, step = self.state, self.done.steps
        phase = self._phase_of(step)
        state.examples += len(batch.units)
        state.loss += metrics.loss
        state.losses += 1
        is_last = step == phase.end
        if is_last or step % max(1, self.total_steps // _CURVE_LINES) == 0:
            self._curve.append(
                {
                    "step": step,
                    "split": phase.name,
                    "epoch": round((step - phase.start) / phase.batches, 6),
                    "loss": state.loss / state.losses,
                    "rate": metrics.learning_rate,
                }
            )
            state.loss, state.losses = 0.0, 0
        self.progress.details = [f"loss {metrics.loss:.3f}"]
        return ""

    def batch_contents(self, batch: TaskStep) -> tuple[str, list[str]]:
        split = self._phase_of(self.done.steps).split
        rows = split.features.rows[batch.units]
        return "examples", [str(split.examples["id"][int(row)]) for row in rows]


# Results


def write_results(setup: TrialSetup, *, state: TrialState, stop: StopRequest) -> dict[str, Any]:
    """Predict dev, score the predictions, and write all files of the artifact to the job's folder.

    Returns:
        `statistics`, `counters` and `notes`, as in `StageOutput`.

    Raises:
        TrainingError: A stop was requested.
        PredictionsError: The outputs are not finite.
    """
    folder = setup.job.results()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    metrics, threshold, warnings = _answer_dev(setup, folder, stop=stop)
    for name, content in _model_files(setup, threshold=threshold).items():
        (folder / name).write_bytes(content)
    (folder / METRICS_FILE).write_bytes(to_json(metrics))
    shutil.copyfile(setup.job.folder() / CURVE_FILE, folder / CURVE_FILE)
    pace = {
        "seconds": round(state.done.seconds, 3),
        "examples_per_second": round(state.examples / max(state.done.seconds, 1e-9), 2),
        "device": device_name(setup.device),
        "threads": torch.get_num_threads(),
    }
    (folder / TIMING_FILE).write_bytes(to_json(pace))
    result = _trial_result(setup, metrics, threshold=threshold, state=state, warnings=warnings)
    return {
        "statistics": result.to_statistics(),
        "counters": {
            **setup.counters,
            "steps": state.done.steps,
            "examples-trained": state.examples,
        },
        "notes": list(setup.notes),
    }


def _answer_dev(
    setup: TrialSetup, folder: Path, *, stop: StopRequest
) -> tuple[dict[str, dict[str, float]], float, list[TrainingWarning]]:
    """Write the predictions of dev.

    Returns:
        Metrics by split, threshold of no answer, warnings.
    """
    if DEV not in setup.splits:
        return {}, 0.0, []
    examples, features = setup.splits[DEV]
    task, task_type = setup.task, TASK_TYPES[setup.task.type]
    outputs = predict(setup.model, features, setup.prediction_options(DEV, stop=stop))
    predictions = task_type.decode(examples, features, outputs, encoding=setup)
    threshold = 0.0
    if task.has_unanswerable and task_type.is_answered(examples):
        threshold = best_threshold(examples, predictions)
        predictions = apply_threshold(predictions, threshold)
    (folder / predictions_file(DEV)).write_bytes(to_lines(predictions))
    metrics = task_type.score_known(examples, predictions, task=task)
    warnings = _find_warnings(setup, predictions, metrics)
    return ({DEV: metrics} if metrics else {}), threshold, warnings


def _find_warnings(
    setup: TrialSetup, predictions: Sequence[Prediction], metrics: Mapping[str, float]
) -> list[TrainingWarning]:
    """Check predictions on dev for one constant answer.

    A model from scratch is not checked: it is the baseline of pretraining.
    """
    if not metrics or setup.job.config.model is not None:
        return []
    predicted, right = (
        Counter(answer for row in rows for answer in TASK_TYPES[setup.task.type].list_answers(row))
        for rows in (predictions, setup.splits[DEV].examples.to_pylist())
    )
    warning = check_answers(predicted, right)
    return [] if warning is None else [warning]


def _model_files(setup: TrialSetup, *, threshold: float) -> dict[str, bytes]:
    job, tokenizer = setup.job, setup.tokenizer
    about = {
        "task": setup.task.name,
        "method": job.config.method,
        "precision": "bf16" if setup.is_bf16 else "fp32",
        "features": job.features.model_dump(mode="json"),
        **tokenizer.rules,
        "threshold": threshold,
    }
    files = save_task_model(
        setup.model.cpu(), labels=setup.labels, about=about, pad_token_id=tokenizer.pad_id
    )
    return {
        **files,
        VOCAB_FILE: vocab_text(tokenizer.vocab).encode(),
        TOKENIZER_FILE: tokenizer_json(tokenizer.vocab, **tokenizer.rules).encode(),
        TOKENIZER_CONFIG_FILE: tokenizer_config_json(**tokenizer.rules).encode(),
    }


def _trial_result(
    setup: TrialSetup,
    metrics: dict[str, dict[str, float]],
    *,
    threshold: float,
    state: TrialState,
    warnings: Sequence[TrainingWarning | None],
) -> TrialResult:
    config, shape = setup.job.config, setup.model.config
    features = {"feature_layers": config.feature_layers}
    return TrialResult(
        task=setup.task.name,
        kind=setup.task.type,
        method=config.method,
        cell=GridCell(**trial_axes(config)),
        metrics=metrics,
        threshold=threshold,
        **setup.tokenizer.rules,
        model=FinetunedModel(
            num_hidden_layers=shape.num_hidden_layers,
            hidden_size=shape.hidden_size,
            num_attention_heads=shape.num_attention_heads,
            **(features if config.method == "feature-based" else {}),
            **({"bilstm": True} if config.bilstm else {}),
        ),
        cut=_cut(setup),
        training=TrainedAmount(
            steps=state.done.steps, examples=state.examples, tokens=state.done.tokens
        ),
        warnings=tuple(warnings_json(warnings)),
    )


def _cut(setup: TrialSetup) -> Cut:
    """Return the reductions of the data and the steps of this training."""
    cut = examples_cut(setup.job.examples.statistics)
    texts = list(cut.training)
    phases, config = phases_of(setup), setup.job.config
    steps, whole = sum(phase.steps for phase in phases), sum(phase.whole for phase in phases)
    if steps < whole:
        texts.append(f"{steps:,} of {whole:,} steps")
    counters = setup.counters
    unused = sum(n for name, n in counters.items() if _is_unused_in_training(name))
    if unused:
        texts.append(f"without {unused:,} training rows that make no sequence")
    if config.max_seq_length < setup.task.max_seq_length:
        cut_texts = sum(n for name, n in counters.items() if name.startswith("texts-truncated@"))
        if cut_texts:
            texts.append(f"{cut_texts:,} texts cut at {config.max_seq_length} tokens")
    return Cut(training=tuple(texts), splits=cut.splits)


def _is_unused_in_training(counter: str) -> bool:
    name, _, split = counter.partition("@")
    return name.startswith("rows-dropped-") and split != DEV
