"""Description of a training that travels without a store and without a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from schemas.manifest import StageInput

PLAN_FILE, DATA_FILE, WHEELS_FOLDER = "plan.json", "data.tar.zst", "wheels"


class PlannedStep(BaseModel):
    """Step that the GPU machine runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    """Label in the recipe's graph, such as `finetune.rte.bs32-lr0.0003-ep4-r0`."""

    stage: str
    """`pretrain`, `finetune` or `evaluate`."""

    config: dict[str, Any]
    inputs: dict[str, str]
    """Label of the artifact or step that is read, by input name."""


class Plan(BaseModel):
    """Artifacts of a kit, and the steps that read them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: str
    artifacts: dict[str, StageInput]
    """Artifacts in the archive by label. `data` is the folder within it."""

    steps: tuple[PlannedStep, ...]
    """Steps in topological order."""


def read_plan(kit: Path) -> Plan:
    """Return the plan of a kit."""
    return Plan.model_validate_json((kit / PLAN_FILE).read_bytes())
