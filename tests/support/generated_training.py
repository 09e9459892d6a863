"""Pretraining jobs on random instances, without a corpus: for machines that have only torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.instance_builder import VOCAB_SIZE, random_shards, write_artifact

from model.pretraining.job import TrainingJob
from pipelines.io.files import write_text_file
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, VOCAB_FILE
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def write_vocabulary(folder: str) -> StageInput:
    """Write a vocabulary with the number of pieces of the random instances."""
    pieces = [*FIXED_TOKENS, *(f"piece{number}" for number in range(len(FIXED_TOKENS), VOCAB_SIZE))]
    file = write_text_file(VOCAB_FILE, "".join(f"{piece}\n" for piece in pieces), output=folder)
    statistics = {"vocab_size": VOCAB_SIZE, "lowercase": True}
    return StageInput(
        name="vocabulary",
        artifact_id="0" * 16,
        data=folder,
        files=(file,),
        statistics=statistics,
    )


def generated_job(folder: Path, *, device: str, dropout: float, **changes: Any) -> TrainingJob:
    """Return a job of 20 steps below `folder`, in fp32 unless the changes say otherwise."""
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = {
        "instances": "random",
        "model": {**SHAPE, **rates},
        "budget": {"max_steps": 20},
        "batch": {"global_batch_size": 16, "per_device_max_tokens": 256},
        "optimizer": {"learning_rate": 1e-3},
        "checkpoints": {"save_steps": 0},
        "logging_steps": 1,
        "device": device,
        "precision": "fp32",
        "num_processes": 1,
        **changes,
    }
    return TrainingJob(
        name="pretrain test",
        config=PretrainConfig.model_validate(config),
        instances=write_artifact(str(folder / "instances"), random_shards(96)),
        vocabulary=write_vocabulary(str(folder / "vocabulary")),
        work=str(folder / "work"),
    )


def logged_losses(job: TrainingJob) -> list[float]:
    """Return the training loss of each step from the job's curves."""
    lines = (job.folder() / "curves" / "curves.jsonl").read_text().splitlines()
    return [record["loss"] for record in map(json.loads, lines) if record["kind"] == "train"]
