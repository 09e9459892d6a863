"""Trials and evaluations as they are handed to the process that works on them. No torch here."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model.launch.launcher import local_folder
from schemas.finetune_configs import FeaturesConfig, TrialConfig
from schemas.manifest import StageInput

CURVE_FILE = "curve.jsonl"
TIMING_FILE = "timing.json"
METRICS_FILE = "metrics.json"
MAJORITY_FILE = "majority.json"
RECORDS = frozenset({CURVE_FILE, TIMING_FILE})
"""Files of the artifact that say how it went, not what was made."""


class TrialJob(BaseModel):
    """Everything that one training needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """What people see, such as `finetune.cola.bs16-lr2e-05-ep3-r0`."""

    config: TrialConfig
    examples: StageInput
    checkpoint: StageInput | None = None
    """The artifact of the pretraining phase that the configuration starts from, if it does."""

    vocabulary: StageInput | None = None
    """That of a new model."""

    work: str
    """URL of the folder for checkpoints; training goes on from the newest one there."""

    result_folder: str = "result"
    """Name of the folder for the artifact's files. One of its own for each run: another may train
    the same trial while the files of this one are copied to the store."""

    def folder(self) -> Path:
        """Local folder for the curve and this job's own files."""
        return local_folder(self.work)

    def results(self) -> Path:
        """Local folder with the files of the artifact, once the training is finished."""
        return self.folder() / self.result_folder

    @property
    def features(self) -> FeaturesConfig:
        """What of the configuration decides the features."""
        names = FeaturesConfig.model_fields
        return FeaturesConfig(**{name: getattr(self.config, name) for name in names})


class EvaluationJob(BaseModel):
    """Splits to be answered by one model or several."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """What people see."""

    examples: StageInput
    members: tuple[StageInput, ...]
    """Artifacts of the models."""

    splits: tuple[str, ...]
    """To answer, `dev` first where it is one of them."""

    folder: str
    """Local folder for the predictions' files."""

    per_device_max_tokens: int
    device: str
    threads: int
