"""Predicting a split: every output at its place, whatever the micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.finetuning_builder import KINDS, features_of

from model.finetuning.batches import task_batches
from model.finetuning.prediction import predict
from model.finetuning.task_model import TaskModel
from model.launch.stopping import StopRequest
from model.task_types.features import Features
from schemas.errors import TrainingError
from schemas.model_configs import ModelConfig

CONFIG = ModelConfig(
    num_hidden_layers=1, hidden_size=16, num_attention_heads=2, max_position_embeddings=16
)
OUTPUTS = {"classification": 3, "regression": 1, "choice": 1, "span": 2, "tagging": 3}


def model_of(kind: str) -> TaskModel:
    return TaskModel(CONFIG, vocab_size=1000, kind=kind, outputs=OUTPUTS[kind], seed=4)  # type: ignore[arg-type]


def one_by_one(model: TaskModel, features: Features) -> np.ndarray:
    """Each unit alone, in order."""
    model.eval()
    found = []
    with torch.no_grad():
        for step in task_batches(
            features,
            np.arange(features.units),
            batch=1,
            layout="packed",
            per_device_max_tokens=1,
            pad_id=0,
        ):
            (batch,) = step.micro_batches
            found.append(model(batch._replace(labels=None)).logits.numpy())
    return np.concatenate(found)


@pytest.mark.parametrize("limit", [1, 30, 10_000])
@pytest.mark.parametrize(("kind", "per_unit"), KINDS)
def test_outputs_lie_where_their_features_lie(kind: str, per_unit: int, limit: int) -> None:
    features, model = features_of(kind, per_unit=per_unit), model_of(kind)
    model.train()
    found = predict(model, features, per_device_max_tokens=limit, device="cpu", pad_id=0)
    assert model.training
    expected = one_by_one(model, features)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize(("kind", "per_unit"), KINDS)
def test_split_may_be_empty(kind: str, per_unit: int) -> None:
    whole = features_of(kind, per_unit=per_unit)
    empty, offsets = np.empty(0, np.int64), np.zeros(1, np.int64)
    is_tagging = kind == "tagging"
    none = Features(
        kind=whole.kind, offsets=offsets, input_ids=empty, b_starts=empty, rows=empty,
        per_unit=per_unit, position_offsets=offsets if is_tagging else None,
        positions=empty if is_tagging else None,
    )  # fmt: skip
    shapes = [
        predict(model_of(kind), features, per_device_max_tokens=10, device="cpu", pad_id=0).shape
        for features in (none, whole)
    ]
    assert shapes[0] == (0, *shapes[1][1:])


def test_bf16_prediction_computes_blocks_in_bfloat16() -> None:
    features, model = features_of("classification"), model_of("classification")
    types = []
    model.bert.layers[0].intermediate.register_forward_hook(
        lambda *call: types.append(call[2].dtype)
    )
    exact, rounded = (
        predict(
            model, features, per_device_max_tokens=1000, device="cpu", pad_id=0, is_bf16=is_bf16
        )
        for is_bf16 in (False, True)
    )
    assert types == [torch.float32, torch.bfloat16]
    np.testing.assert_allclose(rounded, exact, atol=0.05)


def test_prediction_stops_when_asked() -> None:
    stop = StopRequest()
    stop.request("SIGTERM")
    features = features_of("span")
    with pytest.raises(TrainingError, match="SIGTERM"):
        predict(
            model_of("span"), features, per_device_max_tokens=10, device="cpu", pad_id=0, stop=stop
        )
