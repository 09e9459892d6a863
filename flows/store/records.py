"""Records: the small JSON files of a store. Each ends with a digest of itself."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.store.backend import StoreBackend
from schemas.checksummed import load_json
from schemas.errors import ArtifactCorruptError

Model = TypeVar("Model", bound=BaseModel)


REMEDIES = {
    "keys": "run the recipe again: the stage is built again",
    "artifacts": "run `bertloom verify`, then the recipe again",
    "refs": "run the recipe again, or publish again",
    "pins": "delete the file and pin the artifact again",
    "runs": "delete the folder of the run: its artifacts stay",
    "reports": "run `bertloom report`",
    "leases": "delete the file if no run is active",
    "quarantine": "delete the file: it is only information",
    "tombstones": "check the artifact of this name, then delete the file",
    "pieces": "run `bertloom verify`: it deletes the record, and the item is computed again",
}
"""Remedy for a corrupt record, by top-level folder."""


def read_record(backend: StoreBackend, path: str) -> dict[str, Any]:
    """Return the content of a record.

    Raises:
        FileNotFoundError: There is no such record.
        ArtifactCorruptError: The record is corrupt.
    """
    stored = backend.read(path)
    try:
        return load_json(stored)
    except ValueError as error:
        raise corrupt_record(backend, path, error) from error


def parse_record(model: type[Model], stored: bytes, *, backend: StoreBackend, path: str) -> Model:
    """Return a record as a model, from the bytes of its file.

    Raises:
        ArtifactCorruptError: The record is corrupt.
    """
    try:
        return model.model_validate(load_json(stored))
    except ValueError as error:  # includes pydantic's
        raise corrupt_record(backend, path, error) from error


def corrupt_record(backend: StoreBackend, path: str, error: Exception) -> ArtifactCorruptError:
    """Return the error of a record that is not what was written."""
    reason = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    remedy = REMEDIES[path.partition("/")[0]]
    return ArtifactCorruptError(f"{backend.url(path)}: corrupt record: {reason}; {remedy}")
