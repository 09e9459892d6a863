"""Descriptions of trials and evaluations, sent to the processes that run them. Without torch."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model.training.workers import local_folder
from schemas.finetune_configs import FeaturesConfig, TrialConfig
from schemas.manifest import StageInput

CURVE_FILE = "curve.jsonl"
TIMING_FILE = "timing.json"
METRICS_FILE = "metrics.json"
RECORDS = frozenset({CURVE_FILE, TIMING_FILE})
"""Records of the training in the artifact, outside its content digest."""


class TrialJob(BaseModel):
    """Description of one training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name in messages, such as `finetune.cola.bs16-lr2e-05-ep3-r0`."""

    config: TrialConfig
    examples: StageInput
    checkpoint: StageInput | None = None
    """Artifact of the pretraining phase that the training starts from, if any."""

    vocabulary: StageInput | None = None
    """Artifact of the vocabulary of a new model."""

    work: str
    """URL of the folder for checkpoints; training resumes from its newest one."""

    result_folder: str = "result"
    """Name of the folder for the artifact's files, unique per run: another run may train the same
    trial while these files are copied to the store."""

    def folder(self) -> Path:
        """Local folder for the curve and other files of this job."""
        return local_folder(self.work)

    def results(self) -> Path:
        """Return the local folder of the artifact's files, complete after the training."""
        return self.folder() / self.result_folder

    @property
    def features(self) -> FeaturesConfig:
        """Part of the configuration that determines the features."""
        names = FeaturesConfig.model_fields
        return FeaturesConfig(**{name: getattr(self.config, name) for name in names})


class EvaluationJob(BaseModel):
    """Description of predictions of one or several models on some splits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name in messages."""

    examples: StageInput
    members: tuple[StageInput, ...]
    """Artifacts of the models."""

    splits: tuple[str, ...]
    """Splits to predict, `dev` first."""

    folder: str
    """Local folder for the predictions' files."""

    per_device_max_tokens: int
    device: str
    threads: int
