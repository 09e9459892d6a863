"""Records of finished pieces: what a piece came to, and where in the store its files are.

They lie where `pipelines.beam.reuse` says. A record is believed only with its own digest
(`schemas.checksummed`); one that is damaged is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pipelines.beam.reuse_files import PieceFiles
from pipelines.beam.work import WorkReport
from schemas.checksummed import dump_json, load_json
from schemas.manifest import FileEntry, RelativePath

RECORD_VERSION = 2
"""Those of version 1 had no digest of their own, and are not read."""

MOST_PLACES = 3
"""Artifacts that a record remembers its files in, the newest first: garbage is collected."""

_log = logging.getLogger(__name__)


class PieceRecord(BaseModel):
    """A finished piece, or a finished file of one: its counts, and where its files are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(default=RECORD_VERSION, ge=RECORD_VERSION, le=RECORD_VERSION)
    files: tuple[FileEntry, ...]
    """As they were first described; `object` says nothing here."""

    places: tuple[tuple[RelativePath, ...], ...]
    """Paths of all the files, relative to the root of the store: one tuple an artifact."""

    made_in: RelativePath
    """Output folder of the job that did the work, relative to the root of the store."""

    counters: dict[str, int]
    details: list[Any]
    keepsake: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """sha256 of the file beside the record; "" where there is none."""


def piece_key(identity: Any) -> str:
    """64 hex digits that name a piece in its folder, from plain texts, whole numbers and lists."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class PieceRecords:
    """The records of a folder, each by its name, such as `KEY`. Sent to workers by value."""

    files: PieceFiles

    _known: set[str] | None = field(default=None, repr=False)
    """Names of the records there are, where asking for one would be a request."""

    def setup(self) -> None:
        """Look which there are, once a worker."""
        self._known = set(self.files.names()) if self.files.is_remote else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    def read(self, name: str, *, ask: bool = False) -> PieceRecord | None:
        """A record; None where there is none, or a damaged one.

        Args:
            name: of the record.
            ask: whether to look again for one that was not there when this worker was set up.
        """
        if not ask and self._known is not None and f"{name}.json" not in self._known:
            return None
        data = self.files.read(f"{name[:2]}/{name}.json")
        if data is None:
            return None
        try:
            return _checked(data)
        except ValueError as error:  # of which pydantic's are
            _log.warning("piece %s: its record is damaged, so it is built again: %s", name, error)
            return None

    def new(self, report: WorkReport, *, keepsake: str = "") -> PieceRecord:
        """A record of what this job has made."""
        return PieceRecord(
            files=tuple(report.files),
            places=(),
            made_in=self.files.place_of("").rstrip("/"),
            counters=dict(report.counters),
            details=report.details,
            keepsake=keepsake,
        )

    def write(self, name: str, record: PieceRecord, files: list[FileEntry]) -> None:
        """Keep a record; its files are in this job's output folder, too."""
        here = tuple(self.files.place_of(entry.stored_name) for entry in files)
        places = tuple(dict.fromkeys([here, *record.places]))[:MOST_PLACES]
        kept = record.model_copy(update={"places": places})
        self.files.write(f"{name[:2]}/{name}.json", dump_json(kept.model_dump(mode="json")))
        if self._known is not None:
            self._known.add(f"{name}.json")

    def forget(self, name: str) -> None:
        """Take a record away if it is known to be there."""
        if self._known is None or f"{name}.json" in self._known:
            self.files.delete(f"{name[:2]}/{name}.json")


def _checked(data: bytes) -> PieceRecord:
    """A record that is what was written; else a ValueError."""
    record = PieceRecord.model_validate(load_json(data))
    if any(len(place) != len(record.files) for place in record.places):
        raise ValueError("it names more files than places, or fewer")
    return record
