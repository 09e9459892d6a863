"""A cell of a grid as it is handed to the process that trains it. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from model.child_processes import local_folder
from schemas.manifest import StageInput
from schemas.task_configs import CellConfig, FeaturesConfig

CURVE_FILE = "curve.jsonl"
TIMING_FILE = "timing.json"
METRICS_FILE = "metrics.json"
MAJORITY_FILE = "majority.json"
RECORDS = frozenset({CURVE_FILE, TIMING_FILE})
"""Files of the artifact that say how it went, not what was made."""

_RESULT_FOLDER = "result"


class CellJob(BaseModel):
    """Everything that one training needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """What people see, such as `finetune cola b16-lr2e-05-e3-r0`."""

    config: CellConfig
    examples: StageInput
    checkpoint: StageInput | None = None
    """The artifact of the pretraining phase that the configuration starts from, if it does."""

    vocabulary: StageInput | None = None
    """That of a new model."""

    work: str
    """URL of the folder for checkpoints; training goes on from the newest one there."""

    def folder(self) -> Path:
        """Local folder for the curve and this job's own files."""
        return local_folder(self.work)

    def results(self) -> Path:
        """Local folder with the files of the artifact, once the training is finished."""
        return self.folder() / _RESULT_FOLDER

    @property
    def features(self) -> FeaturesConfig:
        """What of the configuration decides the features."""
        names = FeaturesConfig.model_fields
        return FeaturesConfig(**{name: getattr(self.config, name) for name in names})


def cell_name(config: CellConfig, *, task: str) -> str:
    """What people call a cell."""
    point = f"b{config.batch}-lr{config.learning_rate:g}-e{config.epochs}-r{config.restart}"
    return f"finetune {task} {point}"


def cell_point(config: CellConfig) -> dict[str, Any]:
    """What tells a cell from the others of its grid, for its statistics."""
    return {
        "batch": config.batch,
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "restart": config.restart,
    }
