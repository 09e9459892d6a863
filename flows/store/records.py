"""Records: the small JSON files of a store, each with a pydantic model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.store.backend import StoreBackend
from schemas.errors import ArtifactCorruptError
from schemas.json_files import dump_json


class Record(BaseModel):
    """Content of a record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> bytes:
        """Return the bytes of its file. Fields with their default are not written."""
        return dump_json(self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def from_json(cls, stored: bytes | None) -> Self | None:
        """Return the record in the bytes of a file. None: corrupt, or no file."""
        try:
            return cls.model_validate_json(stored or b"")
        except ValidationError:
            return None


Model = TypeVar("Model", bound=BaseModel)


def parse_record(model: type[Model], stored: bytes, *, backend: StoreBackend, path: str) -> Model:
    """Return a record as a model, from the bytes of its file.

    Raises:
        ArtifactCorruptError: The record is corrupt. The message names its file and field.
    """
    try:
        return model.model_validate_json(stored)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field}: {first['msg']}" if field else first["msg"]
        raise ArtifactCorruptError(
            f"{backend.url(path)}: corrupt record: {reason}. Delete the file, then run "
            "`bertloom verify` to see what is missing"
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
