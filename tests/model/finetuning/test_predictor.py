"""Models that answer together: what is averaged, and who may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.finetuning_builder import VOCAB, text_rows, write_checkpoint

from model.encoder.hf_config import CONFIG_FILE
from model.finetuning.prediction import Predictor, answer
from model.finetuning.saved_models import save_task_model
from model.finetuning.task_model import task_model_from_checkpoint
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.arrow import TEXT_EXAMPLES
from schemas.errors import CheckpointError, PredictionsError
from schemas.finetune_configs import FeaturesConfig

EXAMPLES = pa.Table.from_pylist(text_rows(12, split="dev"), schema=TEXT_EXAMPLES)


def tuned(folder: Path, *, seed: int) -> str:
    """A model that was never trained, in a fine-tuned artifact's layout."""
    checkpoint = write_checkpoint(folder / f"bert-{seed}")
    started = task_model_from_checkpoint(
        checkpoint, kind="classification", outputs=2, dropout=0.0, seed=seed
    )
    about = {
        "task": "sst-2",
        "method": "fine-tune",
        "features": FeaturesConfig(max_seq_length=32).model_dump(),
        "lowercase": True,
    }
    with_scale = started.model
    with_scale.classifier.weight.data.mul_(60)  # so that the models are sure, and do not agree
    target = folder / f"tuned-{seed}"
    target.mkdir()
    for name, content in save_task_model(with_scale, labels=("0", "1"), about=about).items():
        (target / name).write_bytes(content)
    (target / VOCAB_FILE).write_text("".join(f"{piece}\n" for piece in VOCAB))
    return str(target)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Predictor]:
    folder = tmp_path_factory.mktemp("models")
    return [Predictor.open(tuned(folder, seed=seed), device="cpu") for seed in (1, 2, 3)]


def shares(predictors: list[Predictor]) -> np.ndarray:
    said = answer(predictors, EXAMPLES)
    return np.array([item["probabilities"]["1"] for item in said])


def test_an_ensemble_says_the_mean_of_the_probabilities(models: list[Predictor]) -> None:
    single = [shares([model]) for model in models]
    assert max(abs(single[0] - single[1])) > 0.05  # otherwise the mean proves nothing
    np.testing.assert_allclose(shares(models), np.mean(single, axis=0), atol=1e-5)
    np.testing.assert_allclose(shares(models[::-1]), shares(models), atol=1e-6)


def test_models_of_an_ensemble_must_agree(models: list[Predictor]) -> None:
    first, second = models[:2]
    words = [piece for piece in VOCAB if piece not in ("film", "song", "tale")]
    tokenizer = type(first.tokenizer)([*words, "x1", "x2", "x3"], lowercase=True)
    for changes in (
        {"labels": ("1", "0")},
        {"config": FeaturesConfig(max_seq_length=16)},
        {"tokenizer": tokenizer},
    ):
        with pytest.raises(PredictionsError):
            answer([first, replace(second, **changes)], EXAMPLES)  # type: ignore[arg-type]


def test_folder_without_metadata_of_bertloom_is_refused(tmp_path: Path) -> None:
    folder = Path(tuned(tmp_path, seed=4))
    config = (folder / CONFIG_FILE).read_text()
    (folder / CONFIG_FILE).write_text(config.replace('"task": "sst-2"', '"other": 1'))
    with pytest.raises(CheckpointError, match="task"):
        Predictor.open(str(folder))
