"""All stages by name."""

from __future__ import annotations

from model import stages as model_stages
from pipelines import stages as pipelines_stages
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.stage import Stage

STAGES = {stage.name: stage for stage in (*pipelines_stages.STAGES, *model_stages.STAGES)}
"""Stages of the corpus and of the model, each after those that it reads."""


def get_stage(name: str) -> Stage:
    """Return a stage by its name.

    Raises:
        ConfigError: There is no such stage.
    """
    try:
        return STAGES[name]
    except KeyError:
        raise ConfigError(f"no stage {name!r} in this version of bertloom") from None


def summarize(manifest: Manifest) -> str:
    """Return what an artifact holds in a few words: `1,234 documents`."""
    return get_stage(manifest.stage).summary(manifest)
