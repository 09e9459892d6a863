"""Prediction with fine-tuned models. Loads torch."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pydantic import BaseModel, Field
from torch import nn
from tqdm import tqdm

from model.finetuning.batches import TaskBatch, group_bounds, lay_out_units
from model.finetuning.jobs import EvaluationJob
from model.finetuning.saved_models import describe_task_model, load_task_model
from model.finetuning.task_model import HEADS
from model.hf_config import validate, vocabulary_url
from model.tasks import find_task
from model.tasks.examples import read_examples
from model.tasks.features import Encoding, Features
from model.tasks.prediction_files import predictions_file, to_lines
from model.tasks.qa import apply_threshold
from model.tasks.squad_metrics import best_threshold
from model.tasks.task_types import TASK_TYPES
from model.training.distributed import choose_worker_device
from model.training.progress import ProgressFile
from model.training.stopping import StopRequest
from pipelines.arrays import Float32s, Int64s, ranges
from pipelines.wordpiece.text_rules import get_text_rules
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import read_vocab
from schemas.errors import PredictionsError, TrainingError
from schemas.finetune_configs import FeaturesConfig


def run_evaluation(job: EvaluationJob, *, stop: StopRequest) -> dict[str, Any]:
    """Write `predictions-SPLIT.jsonl` for each split.

    For an ensemble on questions that may have no answer, the threshold is tuned on dev.

    Returns:
        `threshold`: The tau that was used.
    """
    if job.threads:
        torch.set_num_threads(job.threads)
    predictors = [Predictor.open(member.data, device=job.device) for member in job.members]
    task, threshold = predictors[0].task, predictors[0].threshold
    tables = {split: read_examples(job.examples, split) for split in job.splits}
    predictions = _answer_splits(
        predictors,
        tables,
        per_device_max_tokens=job.per_device_max_tokens,
        progress=job.name,
        stop=stop,
    )
    for split, rows in predictions.items():
        if task.has_unanswerable:
            is_tuned = len(predictors) > 1 and split == "dev"
            if is_tuned and TASK_TYPES[task.type].is_answered(tables[split]):
                threshold = best_threshold(tables[split], rows)
            rows = apply_threshold(rows, threshold)
        Path(job.folder, predictions_file(split)).write_bytes(to_lines(rows))
    return {"threshold": threshold}


@dataclass(frozen=True, kw_only=True)
class Predictor(Encoding):
    """Fine-tuned model with its tokenizer and features."""

    folder: str
    threshold: float
    """Tau of questions without answer, tuned on dev; 0 for other tasks."""

    device: torch.device
    is_bf16: bool
    """True if the model was trained, and predicts, under autocast to bfloat16."""

    @classmethod
    def open(cls, folder: str, *, device: str = "auto") -> Predictor:
        """Read all but the weights of a fine-tuned artifact, from a local path or any fsspec URL.

        Raises:
            CheckpointError: It has no model fine-tuned by bertloom.
        """
        labels, own = describe_task_model(folder)
        about = validate(_About, own, where=f"{folder}: config.json, bertloom")
        vocab = read_vocab(vocabulary_url(folder))
        return cls(
            folder=folder,
            tokenizer=WordPieceTokenizer(vocab, **get_text_rules(about.model_dump())),
            task=find_task(about.task),
            labels=labels,
            config=about.features,
            threshold=about.threshold,
            device=choose_worker_device(device),
            is_bf16=about.precision == "bf16",
        )

    @functools.cached_property
    def model(self) -> nn.Module:
        """Model in evaluation mode, loaded at its first use."""
        return load_task_model(self.folder).model.to(self.device).eval()

    def unload(self) -> None:
        """Free the model; the next use loads it again."""
        self.__dict__.pop("model", None)


class _About(BaseModel):
    """Description of a model that bertloom fine-tuned."""

    task: str
    features: FeaturesConfig
    lowercase: bool
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    threshold: float = Field(default=0.0, strict=True)
    precision: str = "fp32"


def answer(
    predictors: Sequence[Predictor],
    examples: pa.Table,
    *,
    per_device_max_tokens: int = 16_384,
    progress: str = "",
) -> list[dict[str, Any]]:
    """Return the answers of one model, or of an ensemble, to examples.

    An ensemble averages probabilities for softmax outputs, otherwise scores and start and end
    logits.

    Args:
        predictors: At least one, all of one task with equal labels, features and vocabulary.
        examples: Examples of the task's type.
        per_device_max_tokens: Limits memory.
        progress: Name in a progress bar; "" for none.

    Raises:
        PredictionsError: The models differ in vocabulary, labels or features.
    """
    first = predictors[0]
    predictions = _answer_splits(
        predictors,
        {"": examples},
        per_device_max_tokens=per_device_max_tokens,
        progress=progress,
    )[""]
    if not first.task.has_unanswerable:
        return predictions
    return apply_threshold(predictions, first.threshold)


def _answer_splits(
    predictors: Sequence[Predictor],
    tables: Mapping[str, pa.Table],
    *,
    per_device_max_tokens: int,
    progress: str,
    stop: StopRequest | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Return the answers to each split, with a threshold of 0.

    Each model predicts all splits; an ensemble holds one model at a time.
    """
    first = predictors[0]
    for predictor in predictors[1:]:
        _check_alike(predictor, first)
    task_type, head = TASK_TYPES[first.task.type], HEADS[first.task.type]
    features = {
        split: task_type.build_features(table, first, is_training=False)
        for split, table in tables.items()
    }
    outputs: dict[str, list[Float32s]] = {split: [] for split in tables}
    for predictor in predictors:
        for split, own in features.items():
            options = PredictionOptions(
                per_device_max_tokens=per_device_max_tokens,
                device=predictor.device,
                is_bf16=predictor.is_bf16,
                progress=f"{progress} {split}".strip(),
                stop=stop,
            )
            outputs[split].append(predict(predictor.model, own, options))
        if len(predictors) > 1:
            predictor.unload()
    return {
        split: task_type.decode(
            table,
            features[split],
            _mean(outputs[split], is_probable=head.is_softmax),
            encoding=first,
        )
        for split, table in tables.items()
    }


def _check_alike(predictor: Predictor, first: Predictor) -> None:
    own, other = (
        (one.task, one.labels, one.config, one.tokenizer.vocab, one.tokenizer.rules)
        for one in (predictor, first)
    )
    if own != other:
        raise PredictionsError(
            f"{predictor.folder}: expected the task, labels, features and vocabulary of "
            f"{first.folder} in an ensemble, got others. Take models of one task and vocabulary"
        )


def _mean(outputs: list[Float32s], *, is_probable: bool) -> Float32s:
    if len(outputs) == 1:
        return outputs[0]
    stacked = torch.from_numpy(np.stack(outputs)).double()
    if is_probable:  # logits whose softmax is the mean
        mean = stacked.softmax(dim=-1).mean(dim=0).clamp(min=1e-30).log()
    else:
        mean = stacked.mean(dim=0)
    return mean.float().numpy()


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """Options of a prediction."""

    per_device_max_tokens: int
    """Maximum tokens per micro-batch; limits memory."""

    device: torch.device
    is_bf16: bool = False
    """True to compute under autocast to bfloat16, like the training."""

    progress: str = ""
    """Name in the terminal's progress bar; "" for none."""

    progress_file: Path | None = None
    """File for the progress of a worker process, which has no terminal."""

    stop: StopRequest | None = None
    """Stop request, checked between micro-batches."""


def predict(model: nn.Module, features: Features, options: PredictionOptions) -> Float32s:
    """Return the raw outputs of all sequences, concatenated in the order of the features.

    Args:
        model: Model such as a `TaskModel`, on the device; its mode is restored.
        features: Features of one split; labels are ignored.
        options: Device and limits.

    Returns:
        float32 by kind: classification (U, labels), regression (U,), choice (U, choices), span
        (T, 2), tagging (positions, labels).

    Raises:
        TrainingError: A stop was requested, or a sequence exceeds the model's positions.
    """
    was_training = model.training
    model.eval()
    try:
        outputs = compute_outputs(lambda batch: model(batch).logits, features, options)
    finally:
        model.train(was_training)
    return _nothing(model, features) if outputs is None else outputs


def compute_outputs(
    compute: Callable[[TaskBatch], torch.Tensor],
    features: Features,
    options: PredictionOptions,
    *,
    new_array: Callable[[tuple[int, ...]], Float32s] = lambda shape: np.empty(shape, np.float32),
) -> Float32s | None:
    """Return the outputs of a function for all batches, in the order of the features.

    Batches are packed, longest units first: units of a micro-batch have similar lengths, and a lack
    of memory shows at once.

    Args:
        compute: Function of a batch without labels that returns a row for each row of a model's
            outputs.
        features, options: See `predict`.
        new_array: Function that allocates the outputs.

    Returns:
        Outputs; None for features without units.
    """
    outputs: Float32s | None = None
    offsets, device, stop = features.output_offsets, options.device, options.stop
    sizes = np.diff(features.offsets[:: features.per_unit])  # tokens per unit
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=options.is_bf16)
    with (
        _show_progress(options, total=int(sizes.sum())) as advance,
        torch.inference_mode(),
        autocast,
    ):
        for units in _group_units(sizes, limit=options.per_device_max_tokens):
            if stop is not None and stop.reason:
                raise TrainingError(f"{options.progress or 'prediction'}: stopped ({stop.reason})")
            step = lay_out_units(features, units, per_device_max_tokens=1 << 62)
            (batch,) = step.micro_batches
            values = compute(batch._replace(labels=None).to(device)).float().cpu().numpy()
            rows = units
            if offsets is not None:
                rows = ranges(offsets[units], offsets[units + 1] - offsets[units])
            if outputs is None:
                size = features.units if offsets is None else int(offsets[-1])
                outputs = new_array((size, *values.shape[1:]))
            outputs[rows] = values
            advance(step.tokens)
    return outputs


@contextlib.contextmanager
def _show_progress(options: PredictionOptions, *, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts finished tokens in the terminal and the progress file."""
    file = ProgressFile(options.progress_file, job=options.progress, unit="token", total=total)
    bar = tqdm(
        total=total,
        desc=options.progress,
        unit="token",
        unit_scale=True,
        leave=False,
        disable=not (options.progress and sys.stderr.isatty()),
    )

    done = 0

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        bar.update(tokens)
        file.write(done)

    with bar:
        yield advance


def _group_units(sizes: Int64s, *, limit: int) -> list[Int64s]:
    """Return groups of units, longest first; each group is in ascending order."""
    order = np.argsort(-sizes, kind="stable")
    bounds = group_bounds(sizes[order], limit=limit)
    return [np.sort(order[begin:end]) for begin, end in itertools.pairwise(bounds.tolist())]


def _nothing(model: nn.Module, features: Features) -> Float32s:
    """Return the outputs of zero units."""
    if features.kind == "regression":
        return np.empty(0, np.float32)
    width = features.per_unit if features.kind == "choice" else int(getattr(model, "outputs", 0))
    return np.empty((0, width), np.float32)
