"""What `evaluate` hands to the worker process. No torch here."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from schemas.manifest import StageInput


class EvaluationJob(BaseModel):
    """What is to be answered, by whom, and where to leave it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """What people see."""

    examples: StageInput
    members: tuple[StageInput, ...]
    """Artifacts of the models."""

    splits: tuple[str, ...]
    """To answer, `dev` first where it is one of them."""

    folder: str
    """Local folder for the predictions' files."""

    micro_batch_tokens: int
    device: str
    threads: int
