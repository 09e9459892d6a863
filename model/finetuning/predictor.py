"""A fine-tuned model with all it needs to answer: text in, predictions out. Loads torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from pydantic import ValidationError
from torch import nn

from model.encoder.checkpoint_layout import shown
from model.finetuning.hf_models import load_task_model
from model.finetuning.prediction import predict
from model.task_types import kind_module
from model.task_types.features import Features
from model.tasks import Task, find_task
from pipelines.wordpiece.ids import WordPieceTokenizer
from pipelines.wordpiece.vocabulary import VOCAB_FILE, read_vocab
from schemas.errors import CheckpointError, PredictionsError
from schemas.task_configs import FeaturesConfig

_PROBABLE = frozenset({"classification", "choice", "tagging"})
"""Kinds whose outputs are logits of a softmax over each row."""


@dataclass(frozen=True)
class Predictor:
    """A model, its tokenizer, and how its features are made."""

    folder: str
    model: nn.Module
    tokenizer: WordPieceTokenizer
    task: Task
    labels: tuple[str, ...]
    config: FeaturesConfig
    threshold: float
    """Tau of questions without answer, tuned on dev; 0 for other tasks."""

    device: torch.device

    @classmethod
    def open(cls, folder: str, *, device: str = "auto") -> Predictor:
        """Load a fine-tuned artifact's folder, local or of any fsspec URL.

        Raises:
            CheckpointError: it holds no model that was fine-tuned here, or its files do not fit.
        """
        tuned = load_task_model(folder)
        about = tuned.about
        missing = [name for name in ("task", "features", "lowercase") if name not in about]
        if missing:
            raise CheckpointError(
                f"{folder}: config.json says nothing of {', '.join(missing)} under bertloom: "
                "expected a model that bertloom fine-tuned"
            )
        vocab = read_vocab(f"{folder.rstrip('/')}/{VOCAB_FILE}")
        chosen = _device(device)
        return cls(
            folder=folder,
            model=tuned.model.to(chosen).eval(),
            tokenizer=WordPieceTokenizer(vocab, lowercase=bool(about["lowercase"])),
            task=find_task(str(about["task"])),
            labels=tuple(tuned.labels),
            config=_features_config(about["features"], folder=folder),
            threshold=_threshold(about.get("threshold", 0.0), folder=folder),
            device=chosen,
        )

    def features(self, examples: pa.Table) -> Features:
        """The examples as this model reads them."""
        features: Features = kind_module(self.task.kind).build_features(
            examples,
            self.tokenizer,
            task=self.task,
            labels=self.labels,
            config=self.config,
            is_training=False,
        )
        return features

    def outputs(
        self, features: Features, *, micro_batch_tokens: int = 16_384, progress: str = ""
    ) -> npt.NDArray[np.float32]:
        """Raw outputs, see `model.task_types`."""
        return predict(
            self.model,
            features,
            micro_batch_tokens=micro_batch_tokens,
            device=self.device,
            pad_id=self.tokenizer.pad_id,
            progress=progress,
        )

    def decode(
        self,
        examples: pa.Table,
        features: Features,
        *,
        outputs: npt.NDArray[np.float32],
        threshold: float | None = None,
    ) -> list[dict[str, Any]]:
        """Predictions from raw outputs, one a row of the examples."""
        found: list[dict[str, Any]] = kind_module(self.task.kind).decode(
            examples,
            features,
            outputs,
            tokenizer=self.tokenizer,
            task=self.task,
            labels=self.labels,
            config=self.config,
            threshold=self.threshold if threshold is None else threshold,
        )
        return found


def answer(
    predictors: Sequence[Predictor],
    examples: pa.Table,
    *,
    threshold: float | None = None,
    micro_batch_tokens: int = 16_384,
    progress: str = "",
) -> list[dict[str, Any]]:
    """What one model, or several together, say of examples.

    Several answer by the mean of what each says: of probabilities where a row's outputs are a
    softmax's, of scores and of the logits of starts and ends otherwise.

    Args:
        predictors: at least one, all of one task with equal labels and features.
        examples: of the task's kind.
        threshold: tau in place of the first model's own.
        micro_batch_tokens: bounds memory.
        progress: what to call this in a progress bar; "" for none.

    Raises:
        PredictionsError: the models do not read or answer alike.
    """
    first = predictors[0]
    features = first.features(examples)
    said = []
    for predictor in predictors:
        _check_alike(predictor, first)
        own = features if predictor is first else predictor.features(examples)
        if not np.array_equal(own.input_ids, features.input_ids):
            raise PredictionsError(
                f"{predictor.folder} and {first.folder} cut the examples into other word pieces: "
                "expected models with one vocabulary in an ensemble"
            )
        said.append(
            predictor.outputs(own, micro_batch_tokens=micro_batch_tokens, progress=progress)
        )
    outputs = _mean(said, is_probable=first.task.kind in _PROBABLE)
    return first.decode(examples, features, outputs=outputs, threshold=threshold)


def _check_alike(predictor: Predictor, first: Predictor) -> None:
    for name in ("task", "labels", "config"):
        if getattr(predictor, name) != getattr(first, name):
            raise PredictionsError(
                f"{predictor.folder} and {first.folder} differ in {name}: expected models of one "
                "task with the same labels and features in an ensemble"
            )


def _mean(said: list[npt.NDArray[np.float32]], *, is_probable: bool) -> npt.NDArray[np.float32]:
    if len(said) == 1:
        return said[0]
    stacked = np.stack(said).astype(np.float64)
    mean: npt.NDArray[np.float32]
    if not is_probable:
        mean = stacked.mean(axis=0).astype(np.float32)
        return mean
    stacked -= stacked.max(axis=-1, keepdims=True)
    shares = np.exp(stacked)
    shares /= shares.sum(axis=-1, keepdims=True)
    # Logits whose softmax is the mean.
    mean = np.log(np.maximum(shares.mean(axis=0), 1e-30)).astype(np.float32)
    return mean


def _features_config(given: Any, *, folder: str) -> FeaturesConfig:
    try:
        return FeaturesConfig.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'all of it'}: {item['msg']}"
            for item in error.errors()
        )
        raise CheckpointError(f"{folder}: config.json, bertloom.features: {wrong}") from error


def _threshold(given: Any, *, folder: str) -> float:
    if type(given) not in (int, float):
        raise CheckpointError(
            f"{folder}: config.json, bertloom.threshold is {shown(given)}, expected a number"
        )
    return float(given)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
