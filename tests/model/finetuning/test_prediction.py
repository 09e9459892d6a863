"""Predicting a split: every output at its place, whatever the micro-batches."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.finetuning_builder import KINDS, VOCAB, features_of, text_rows, write_tuned

from model.finetuning import prediction
from model.finetuning.batches import task_batches
from model.finetuning.prediction import PredictionOptions, Predictor, answer, predict
from model.finetuning.saved_models import TunedModel, load_task_model
from model.finetuning.task_model import TaskModel
from model.hf_config import CONFIG_FILE, WEIGHTS_FILE
from model.tasks import classification
from model.tasks.features import Features
from model.tasks.task_types import TASK_TYPES
from schemas.arrow import TEXT_EXAMPLES
from schemas.errors import CheckpointError, PredictionsError
from schemas.finetune_configs import FeaturesConfig
from schemas.model_configs import ModelConfig

CONFIG = ModelConfig(
    num_hidden_layers=1, hidden_size=16, num_attention_heads=2, max_position_embeddings=16
)
OUTPUTS = {"classification": 3, "regression": 1, "choice": 1, "span": 2, "tagging": 3}


def model_of(kind: str) -> TaskModel:
    return TaskModel(CONFIG, vocab_size=1000, kind=kind, outputs=OUTPUTS[kind], seed=4)  # type: ignore[arg-type]


def options(limit: int, *, is_bf16: bool = False) -> PredictionOptions:
    return PredictionOptions(
        per_device_max_tokens=limit, device=torch.device("cpu"), is_bf16=is_bf16
    )


def one_by_one(model: TaskModel, features: Features) -> np.ndarray:
    """Each unit alone, in order."""
    arguments = {"batch": 1, "per_device_max_tokens": 1}
    steps = task_batches(features, np.arange(features.units), **arguments)  # type: ignore[arg-type]
    batches = [step.micro_batches[0]._replace(labels=None) for step in steps]
    with torch.no_grad():
        return np.concatenate([model.eval()(batch).logits.numpy() for batch in batches])


@pytest.mark.parametrize("limit", [1, 30, 10_000])
@pytest.mark.parametrize(("kind", "per_unit"), KINDS)
def test_outputs_lie_where_their_features_lie(kind: str, per_unit: int, limit: int) -> None:
    features, model = features_of(kind, per_unit=per_unit), model_of(kind)
    model.train()
    result = predict(model, features, options(limit))
    assert model.training
    expected = one_by_one(model, features)
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(result, expected, atol=2e-6)


@pytest.mark.parametrize(("kind", "per_unit"), KINDS)
def test_split_may_be_empty(kind: str, per_unit: int) -> None:
    whole = features_of(kind, per_unit=per_unit)
    empty, offsets = np.empty(0, np.int64), np.zeros(1, np.int64)
    is_tagging = kind == "tagging"
    none = replace(
        whole, offsets=offsets, input_ids=empty, b_starts=empty, rows=empty, labels=None,
        position_offsets=offsets if is_tagging else None, positions=empty if is_tagging else None,
    )  # fmt: skip
    shapes = [predict(model_of(kind), features, options(10)).shape for features in (none, whole)]
    assert shapes[0] == (0, *shapes[1][1:])


def test_bf16_prediction_computes_blocks_in_bfloat16() -> None:
    features, model = features_of("classification"), model_of("classification")
    types = []
    model.bert.layers[0].intermediate.register_forward_hook(
        lambda *call: types.append(call[2].dtype)
    )
    exact, rounded = (
        predict(model, features, options(1000, is_bf16=is_bf16)) for is_bf16 in (False, True)
    )
    assert types == [torch.float32, torch.bfloat16]
    np.testing.assert_allclose(rounded, exact, atol=0.05)


EXAMPLES = pa.Table.from_pylist(text_rows(12, split="dev"), schema=TEXT_EXAMPLES)


@pytest.fixture
def models(tmp_path: Path) -> list[Predictor]:
    """Models that were never trained, and do not agree."""
    result = []
    for seed in range(3):
        folder = Path(write_tuned(tmp_path / str(seed), task="sst-2", seed=seed))
        state = load_file(folder / WEIGHTS_FILE)
        state["classifier.weight"] *= 60
        save_file(state, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        result.append(Predictor.open(str(folder), device="cpu"))
    return result


def shares(predictors: list[Predictor]) -> np.ndarray:
    said = answer(predictors, EXAMPLES)
    return np.array([item["probabilities"]["1"] for item in said])


def test_ensemble_averages_probabilities(models: list[Predictor]) -> None:
    single = [shares([model]) for model in models]
    assert max(abs(single[0] - single[1])) > 0.05  # otherwise the mean proves nothing
    np.testing.assert_allclose(shares(models), np.mean(single, axis=0), atol=1e-5)


def test_ensemble_holds_one_model_and_builds_features_once(
    models: list[Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[TaskModel]] = []
    others_alive: list[int] = []
    built: list[int] = []

    def load(folder: str) -> TunedModel:
        gc.collect()
        others_alive.append(sum(each() is not None for each in loaded))
        tuned = load_task_model(folder)
        assert isinstance(tuned.model, TaskModel)
        loaded.append(weakref.ref(tuned.model))
        return tuned

    def build_features(*arguments: Any, **options: Any) -> Features:
        built.append(1)
        return classification.build_features(*arguments, **options)

    task_type = replace(TASK_TYPES["classification"], build_features=build_features)
    monkeypatch.setitem(TASK_TYPES, "classification", task_type)
    monkeypatch.setattr(prediction, "load_task_model", load)
    answer(models, EXAMPLES)
    assert others_alive == [0, 0, 0]
    assert len(built) == 1


def test_models_of_an_ensemble_must_agree(models: list[Predictor]) -> None:
    first, second = models[:2]
    words = [piece for piece in VOCAB if piece not in ("film", "song", "tale")]
    tokenizer = type(first.tokenizer)([*words, "x1", "x2", "x3"], lowercase=True)
    for changes in (
        {"labels": ("1", "0")},
        {"config": FeaturesConfig(max_seq_length=16)},
        {"tokenizer": tokenizer},
        {"tokenizer": type(first.tokenizer)(VOCAB, lowercase=False)},
    ):
        with pytest.raises(PredictionsError):
            answer([first, replace(second, **changes)], EXAMPLES)  # type: ignore[arg-type]


def test_folder_with_other_metadata_is_refused(tmp_path: Path) -> None:
    folder = Path(write_tuned(tmp_path / "tuned", task="sst-2"))
    config = (folder / CONFIG_FILE).read_text()
    (folder / CONFIG_FILE).write_text(config.replace('"task": "sst-2"', '"other": 1'))
    with pytest.raises(CheckpointError, match="task"):
        Predictor.open(str(folder))
