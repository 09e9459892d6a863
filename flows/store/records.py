"""Records: the small JSON files of a store. Each ends with a digest of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.store.backend import StoreBackend
from schemas.checksummed import dump_json, load_json
from schemas.errors import ArtifactCorruptError

REMEDIES = {
    "keys": "run the recipe again: the stage is built again",
    "artifacts": "run `bertloom verify`, then the recipe again",
    "refs": "run the recipe again, or publish again",
    "runs": "delete the folder of the run: its artifacts stay",
    "reports": "run `bertloom report`",
    "active": "delete the file if the run has ended",
    "leases": "delete the file if no run is active",
    "quarantine": "delete the file: it is only information",
    "pieces": "run `bertloom verify`: it deletes the record, and the item is computed again",
}
"""Remedy for a corrupt record, by top-level folder."""


class Record(BaseModel):
    """Content of a record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def is_at_home(self, path: str) -> bool:
        """Return False if the record belongs at another path: a misplaced copy is not used."""
        del path
        return True

    def to_json(self) -> bytes:
        """Return the bytes of its file. Fields with their default are not written."""
        return dump_json(self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def from_json(cls, stored: bytes | None) -> Self | None:
        """Return the record in the bytes of a file. None: corrupt, or no file."""
        try:
            return cls.model_validate(load_json(stored or b""))
        except ValueError:  # includes pydantic's
            return None


class Located(Protocol):
    """Pydantic model that knows where it belongs: a `Record` or a manifest."""

    @classmethod
    def model_validate(cls, obj: Any, /) -> Self: ...

    def is_at_home(self, path: str, /) -> bool: ...


Model = TypeVar("Model", bound=Located)


def parse_record(model: type[Model], stored: bytes, *, backend: StoreBackend, path: str) -> Model:
    """Return a record as a model, from the bytes of its file.

    Raises:
        ArtifactCorruptError: The record is corrupt.
    """
    try:
        record = model.model_validate(load_json(stored))
        if not record.is_at_home(path):
            raise ValueError("it is the record of another path")
        return record
    except ValueError as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        remedy = REMEDIES[path.partition("/")[0]]
        raise ArtifactCorruptError(
            f"{backend.url(path)}: corrupt record: {reason}; {remedy}"
        ) from error


def read_record(backend: StoreBackend, model: type[Model], path: str) -> Model | None:
    """Return a record as a model, None if it does not exist.

    Raises:
        ArtifactCorruptError: The record is corrupt.
    """
    stored = backend.read_if_exists(path)
    return None if stored is None else parse_record(model, stored, backend=backend, path=path)


def read_records(
    backend: StoreBackend, model: type[Model], paths: Iterable[str]
) -> dict[str, Model | ArtifactCorruptError]:
    """Return the records that exist, by path, or the error of a corrupt one."""
    records: dict[str, Model | ArtifactCorruptError] = {}
    for path, stored in backend.read_many(dict.fromkeys(paths)).items():
        try:
            records[path] = parse_record(model, stored, backend=backend, path=path)
        except ArtifactCorruptError as error:
            records[path] = error
    return records


def load_records(backend: StoreBackend, model: type[Model], folder: str) -> dict[str, Model]:
    """Return every record of a folder, by path.

    Raises:
        ArtifactCorruptError: A record is corrupt.
    """
    return {
        path: parse_record(model, stored, backend=backend, path=path)
        for path, stored in backend.read_many(backend.names(folder)).items()
    }
