"""The file `expected.json`: the artifacts that a recipe is to make again, and what made them.

    {
      "format": 1, "recipe": ..., "target": LABEL, "asked": ..., "metrics": {...}, "notes": [...],
      "inputs": [{path, step, name, size, sha256, ...}],
      "environments": {ID: {python, platform, packages}},
      "steps": [{"label": ..., "environment": ID, and all else of its manifest}],
      "sha256": ...
    }

Manifests are as the store has them, but that their configuration is the part that decides bytes and
no path of a machine is in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.reproduction.inputs import InputFile
from schemas.checksummed import dump_json, load_json
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.fingerprint import fingerprint
from schemas.manifest import Manifest

FILE = "expected.json"
_ENVIRONMENTS = "environments"


class Expected(BaseModel):
    """What a folder for reproduction expects."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal[1] = 1
    recipe: str
    """Name of the recipe."""

    target: str
    """Label of the step that made the artifact which was asked for."""

    asked: str
    """What it was asked for by."""

    metrics: dict[str, float] = {}
    """The numbers that were asked for, by their names in the target's statistics."""

    notes: tuple[str, ...] = ()
    """What is to be known before it is made again."""

    inputs: tuple[InputFile, ...]
    steps: dict[str, Manifest]
    """By label, each after those it reads from."""

    @property
    def artifact(self) -> Manifest:
        """The artifact that was asked for."""
        return self.steps[self.target]


def without_places(manifest: Manifest) -> Manifest:
    """A manifest without what of it is of one machine: paths, and how rather than what was made."""
    notes = manifest.notes
    for item in manifest.raw_inputs:
        notes = tuple(note.replace(item.uri, item.name) for note in notes)
    raw = tuple(item.model_copy(update={"uri": item.name}) for item in manifest.raw_inputs)
    config = manifest.key_spec["config"]
    return manifest.model_copy(update={"config": config, "raw_inputs": raw, "notes": notes})


def to_json(expected: Expected) -> bytes:
    """Return the contents of the file; an environment that several steps share is in it once."""
    data = expected.model_dump(mode="json")
    environments: dict[str, Any] = {}
    steps = []
    for label, manifest in data.pop("steps").items():
        environment_id = fingerprint(manifest["environment"]).removeprefix("sha256:")[:12]
        environments[environment_id] = manifest["environment"]
        steps.append({"label": label, **manifest, "environment": environment_id})
    return dump_json({**data, _ENVIRONMENTS: environments, "steps": steps})


def read_expected(folder: Path) -> Expected:
    """What a folder expects.

    Raises:
        ConfigError: the folder is none for reproduction.
        ArtifactCorruptError: the file is not what was written.
    """
    path = folder / FILE
    try:
        data = load_json(path.read_bytes())
        environments = data.pop(_ENVIRONMENTS)
        data["steps"] = {
            step.pop("label"): {**step, "environment": environments[step["environment"]]}
            for step in data["steps"]
        }
        return Expected.model_validate(data)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{folder}: expected a folder that `bertloom reproduce ARTIFACT FOLDER` wrote, found "
            f"no {FILE} in it"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise ArtifactCorruptError(
            f"{path}: is not what `bertloom reproduce` wrote: {error}. Write the folder again"
        ) from error
