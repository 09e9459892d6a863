"""Results of a finished training: the fine-tuned model, its dev predictions and their scores."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from model.finetuning.jobs import CURVE_FILE, METRICS_FILE, TIMING_FILE
from model.finetuning.prediction import predict
from model.finetuning.saved_models import save_task_model
from model.finetuning.setup import DEV, TrialSetup, TrialState, phases_of
from model.task_results import Cut, FinetunedModel, GridCell, TrainedAmount, TrialResult
from model.tasks.prediction_files import Prediction, predictions_file, to_lines
from model.tasks.qa import apply_threshold
from model.tasks.reduced_data import examples_cut
from model.tasks.squad_metrics import best_threshold
from model.tasks.task_types import TASK_TYPES
from model.training.artifact_files import to_json
from model.training.distributed import device_name
from model.training.health import TrainingWarning, check_answers, warnings_json
from model.training.stopping import StopRequest
from pipelines.wordpiece.tokenizer import tokenizer_config_json, tokenizer_json
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.trial_names import trial_axes


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
