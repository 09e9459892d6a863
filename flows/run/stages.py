"""Stages by name."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys

from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.stage import Stage

_PACKAGES = ("pipelines", "model")
_NAME = re.compile(r"[a-z]+(?:-[a-z]+)*")


def get_stage(name: str) -> Stage:
    """Return a stage by its name. Loads the stage's module and no other.

    Raises:
        ConfigError: There is no such stage.
    """
    if _NAME.fullmatch(name):
        for package in _PACKAGES:
            module = f"{package}.{name.replace('-', '_')}"
            if module in sys.modules or importlib.util.find_spec(module) is not None:
                stage = getattr(importlib.import_module(module), "STAGE", None)
                if isinstance(stage, Stage):
                    return stage
    raise ConfigError(f"no stage {name!r} in this version of bertloom")


def summarize(manifest: Manifest) -> str:
    """Return what an artifact holds in a few words: `1,234 documents`."""
    return get_stage(manifest.stage).summary(manifest)
