"""Records: the small JSON files of a store, each with its own digest (`schemas.checksummed`).

A damaged one is named by its path, with what to do about it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from flows.store.backend import StoreBackend
from schemas.checksummed import load_json
from schemas.errors import ArtifactCorruptError

Model = TypeVar("Model", bound=BaseModel)


class Kind(NamedTuple):
    """The records of one folder of the store."""

    what: str
    remedy: str
    """What to do about a damaged one."""


KINDS = {
    "keys": Kind(
        "a pointer to a manifest",
        "delete the file, or run the recipe again; the stage is then built anew",
    ),
    "artifacts": Kind(
        "a manifest",
        "`bertloom verify` takes the artifact back, and the next run builds it again",
    ),
    "refs": Kind("a pointer", "run the recipe again, or publish again, which writes it anew"),
    "pins": Kind("a pin", "delete the file, and pin again"),
    "runs": Kind("the record of a run", "delete the file: what the run made is there all the same"),
    "reports": Kind("a page", "`bertloom report` writes it anew"),
    "leases": Kind("a lease", "delete the file if no run is going on"),
    "quarantine": Kind(
        "the record of what was wrong", "delete the file: it only says what was wrong before"
    ),
    "tombstones": Kind(
        "the record of a deletion that was cut off",
        "look at the artifact that it is named for, then delete the file",
    ),
    "pieces": Kind("the record of a piece", "the piece is built again where it is needed"),
}


def read_record(backend: StoreBackend, path: str) -> dict[str, Any]:
    """The content of a record at a path relative to the root of the store.

    Raises:
        FileNotFoundError: there is none.
        ArtifactCorruptError: it is not what was written.
    """
    return content_of(backend.read(path), backend.url(path), kind=path.partition("/")[0])


def content_of(stored: bytes, where: str, *, kind: str) -> dict[str, Any]:
    """The content of a record from the bytes of its file, which is at `where`.

    Raises:
        ArtifactCorruptError: they are not what was written.
    """
    try:
        return load_json(stored)
    except ValueError as error:
        raise damaged(where, kind, error) from error


def parse_record(model: type[Model], stored: bytes, where: str, *, kind: str) -> Model:
    """Like `content_of`, and checked to be of a model."""
    try:
        return model.model_validate(content_of(stored, where, kind=kind))
    except ValidationError as error:
        raise damaged(where, kind, error) from error


def damaged(where: str, kind: str, why: Exception) -> ArtifactCorruptError:
    """The error of a record that is not what was written."""
    text = f"{type(why).__name__}: {why}" if isinstance(why, KeyError | TypeError) else str(why)
    if isinstance(why, ValidationError):
        first = why.errors()[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    what, remedy = KINDS[kind]
    return ArtifactCorruptError(f"{where}: expected {what}: {text}; {remedy}")
