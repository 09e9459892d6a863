"""`checkpoint.json`: what a checkpoint consists of."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.training.checkpoint_folder import DamagedCheckpointError
from schemas.errors import CheckpointError

FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TensorFileEntry(_Part):
    """One file of tensors."""

    path: str
    """Its name in the checkpoint's folder."""

    size: int = Field(ge=0)
    """Bytes."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class CheckpointRecord(_Part):
    """All that is known of a checkpoint without opening its tensors."""

    format: int = FORMAT
    step: int = Field(ge=0)
    """Updates of the weights done."""

    number: int = Field(ge=1)
    """Place in the order in which this folder's checkpoints were saved."""

    score: float | None
    """Held-out loss, the lower the better; None where it was not measured."""

    saved: str
    """ISO 8601, UTC."""

    files: tuple[TensorFileEntry, ...]
    state: dict[str, Any]
    """Plain JSON values of the caller's."""

    def to_bytes(self) -> bytes:
        """The file: the record and its own sha256."""
        record = self.model_dump(mode="json")
        return json.dumps({"checkpoint": record, "sha256": _digest(record)}, indent=1).encode()


def parse_record(data: bytes, *, url: str) -> CheckpointRecord:
    """Read a file back.

    Raises:
        DamagedCheckpointError: it is not what was written.
        CheckpointError: a later version wrote it.
    """
    try:
        whole = json.loads(data)
        record, expected = whole["checkpoint"], whole["sha256"]
        version = record["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{url}: not a record of a checkpoint ({error!r})") from error
    if _digest(record) != expected:
        raise DamagedCheckpointError(f"{url}: its content does not fit its own sha256")
    if version != FORMAT:
        raise CheckpointError(
            f"{url}: expected a checkpoint of format {FORMAT}, found {version}: another version "
            "of bertloom wrote it. Use that one, or start in another folder"
        )
    try:
        return CheckpointRecord.model_validate(record)
    except ValidationError as error:
        raise DamagedCheckpointError(f"{url}: not a record of a checkpoint ({error})") from error


def _digest(record: Any) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
