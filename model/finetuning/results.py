"""Results of a finished training: the fine-tuned model, its dev predictions and their scores."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from model.finetuning.jobs import CURVE_FILE, METRICS_FILE, TIMING_FILE
from model.finetuning.phases import TrialState, phases_of
from model.finetuning.prediction import predict
from model.finetuning.saved_models import save_task_model
from model.finetuning.setup import DEV, TRAIN, TrialSetup
from model.launch.distributed import choose_precision, device_name
from model.launch.stopping import StopRequest
from model.monitoring.reporter import TrialLogger
from model.task_types.by_name import TASK_TYPES
from model.task_types.prediction_files import predictions_file, to_lines
from model.task_types.task_type import Prediction
from model.tasks.reduced_data import examples_cut
from model.training.artifact_files import to_json
from model.training.health import TrainingWarning, check_answers, check_chance, warnings_json
from model.training.progress import PROGRESS_FILE
from pipelines.wordpiece.tokenizer import tokenizer_config_json, tokenizer_json
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.trial_names import trial_axes


def write_results(
    setup: TrialSetup,
    *,
    device: torch.device,
    done: TrialState,
    stop: StopRequest,
    logger: TrialLogger,
) -> dict[str, Any]:
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
    precision = choose_precision(setup.job.config.precision, device)
    metrics, threshold, warnings = _answer_dev(
        setup, folder, device=device, is_bf16=precision == "bf16", stop=stop
    )
    for name, content in _model_files(setup, threshold=threshold, precision=precision).items():
        (folder / name).write_bytes(content)
    (folder / METRICS_FILE).write_bytes(to_json(metrics))
    shutil.copyfile(setup.job.folder() / CURVE_FILE, folder / CURVE_FILE)
    pace = {
        "seconds": round(done.seconds, 3),
        "examples_per_second": round(done.examples / max(done.seconds, 1e-9), 2),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
    }
    (folder / TIMING_FILE).write_bytes(to_json(pace))
    logger.finish()
    statistics = _statistics(setup, metrics, threshold=threshold, done=done)
    return {
        "statistics": {**statistics, "warnings": warnings_json(warnings)},
        "counters": {**setup.counters, "steps": done.steps, "examples-trained": done.examples},
        "notes": list(setup.notes),
    }


def _answer_dev(
    setup: TrialSetup, folder: Path, *, device: torch.device, is_bf16: bool, stop: StopRequest
) -> tuple[dict[str, dict[str, float]], float, list[TrainingWarning]]:
    """Write the predictions of dev.

    Returns:
        Metrics by split, threshold of no answer, warnings.
    """
    if DEV not in setup.splits:
        return {}, 0.0, []
    examples, features = setup.splits[DEV]
    task, job = setup.task, setup.job
    task_type = TASK_TYPES[task.type]
    outputs = predict(
        setup.model,
        features,
        per_device_max_tokens=job.config.per_device_max_tokens,
        device=device,
        pad_id=setup.tokenizer.pad_id,
        is_bf16=is_bf16,
        progress=f"{job.name}: dev",
        progress_file=job.folder() / PROGRESS_FILE,
        stop=stop,
    )
    predictions = task_type.decode(examples, outputs, encoding=setup)
    threshold = task_type.tune_threshold(examples, predictions, task=task)
    if threshold is not None:
        predictions = task_type.apply_threshold(predictions, threshold)
    file = folder / predictions_file(DEV)
    file.write_bytes(to_lines(predictions))
    found = task_type.score_file(str(file), examples, task=task).metrics
    warnings = _find_warnings(setup, predictions, found)
    return ({DEV: found} if found else {}), threshold or 0.0, warnings


def _find_warnings(
    setup: TrialSetup, predictions: Sequence[Prediction], metrics: Mapping[str, float]
) -> list[TrainingWarning]:
    """Check predictions on dev for one constant answer, then their scores for chance.

    A model from scratch is not checked: it is the baseline of pretraining and often scores at
    chance.
    """
    if not metrics or setup.job.config.model is not None:
        return []
    dev, task, task_type = setup.splits[DEV].examples, setup.task, TASK_TYPES[setup.task.type]
    predicted, right = (
        Counter(answer for row in rows for answer in task_type.list_answers(row))
        for rows in (predictions, dev.to_pylist())
    )
    warning = check_answers(predicted, right)
    if warning is None:
        train, metric = setup.splits[TRAIN].examples, task.metrics[0]
        answer = task_type.majority_answer(train, task=task, labels=setup.labels)
        constant = task_type.score(dev, task_type.majority_predictions(dev, answer), task=task)
        warning = check_chance(
            metric, metrics[metric], constant_score=constant[metric], examples=len(dev)
        )
    return [] if warning is None else [warning]


def _model_files(setup: TrialSetup, *, threshold: float, precision: str) -> dict[str, bytes]:
    job, tokenizer = setup.job, setup.tokenizer
    about = {
        "task": setup.task.name,
        "method": job.config.method,
        "precision": precision,
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


def _statistics(
    setup: TrialSetup,
    metrics: dict[str, dict[str, float]],
    *,
    threshold: float,
    done: TrialState,
) -> dict[str, Any]:
    config, shape = setup.job.config, setup.model.config
    model: dict[str, Any] = {
        "num_hidden_layers": shape.num_hidden_layers,
        "hidden_size": shape.hidden_size,
        "num_attention_heads": shape.num_attention_heads,
    }
    if config.method == "feature-based":
        model["feature_layers"] = config.feature_layers
    if config.bilstm:
        model["bilstm"] = True
    return {
        "task": setup.task.name,
        "kind": setup.task.type,
        "method": config.method,
        "cell": trial_axes(config),
        "metrics": metrics,
        "threshold": threshold,
        **setup.tokenizer.rules,
        "model": model,
        "cut": _cut(setup),
        "training": {"steps": done.steps, "examples": done.examples, "tokens": done.tokens},
    }


def _cut(setup: TrialSetup) -> dict[str, Any]:
    """Return the reductions of the data and the steps of this training."""
    cut = examples_cut(setup.job.examples.statistics)
    phases, config = phases_of(setup), setup.job.config
    steps, whole = sum(phase.steps for phase in phases), sum(phase.whole for phase in phases)
    if steps < whole:
        cut["training"].append(f"{steps:,} of {whole:,} steps")
    counters = setup.counters
    unused = sum(n for name, n in counters.items() if _is_unused_in_training(name))
    if unused:
        cut["training"].append(f"without {unused:,} training rows that make no sequence")
    if config.max_seq_length < setup.task.max_seq_length:
        texts = sum(n for name, n in counters.items() if name.startswith("texts-truncated@"))
        if texts:
            cut["training"].append(f"{texts:,} texts cut at {config.max_seq_length} tokens")
    return cut


def _is_unused_in_training(counter: str) -> bool:
    name, _, split = counter.partition("@")
    return name.startswith("rows-dropped-") and split != DEV
