"""Later jobs restore finished pieces of work, each by a fingerprint of its own.

A piece is what a job does with one planned split of its input (a range of a dump, a shard, a pass
over a shard), and what it made of it.

A job that is given a folder `ROOT/pieces/STAGE/DIGEST` (of the stage's code, environment and
configuration) leaves a record of each piece there as soon as its files are whole:

    AA/KEY.json     the piece's counts and files, and where these lie below ROOT
    AA/KEY.blobs    its blobs, where they cannot be made from its files

The key is a digest of what decides the piece's bytes, which names and numbers of shards are no part
of. So after one dump of ten changed, or after a job was killed, the other pieces' files are linked
into the new artifact under the names that they have there. A file is believed only after its bytes
have been hashed again, and a record, whose counts go into manifests, only with its own digest
(`schemas.sealed`); where either is gone or damaged, the piece is built again. Withdrawing
an artifact takes the records that it came from with it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pipelines.beam.reuse_files import PieceFiles
from pipelines.beam.work import Blob, Piece, ShardWork, WorkReport
from pipelines.counters import Counters
from schemas.manifest import FileEntry, Reuse
from schemas.sealed import read_sealed, sealed_json

RECORD_VERSION = 2
"""Those of version 1 had no digest of their own, and are not read."""

READING_IS_CHEAPER = 64
"""About so many times as doing the work: files are hashed as fast as they are read."""

WORTH_REQUESTS = 0.25
"""Seconds of work from which a piece is recorded in an object store, where restoring it costs half
a dozen requests."""

MOST_PLACES = 3
"""Artifacts that a record remembers its files in, the newest first: garbage is collected."""

_log = logging.getLogger(__name__)


class PieceWork(ShardWork, Protocol):
    """Work whose pieces can be restored; it says what a piece is, whatever its name."""

    def identity(self, piece: Any) -> Any:
        """All that decides the piece's bytes and counts, as plain JSON values.

        What the stage's configuration, code and environment say is left out, and so are the names
        and numbers that only place the piece in this job.
        """

    def has_cheap_identity(self, piece: Any) -> bool:
        """Whether `identity` reads next to nothing."""
        del piece
        return True

    def renamed(self, files: Sequence[FileEntry], piece: Any) -> list[FileEntry]:
        """The files of an earlier piece under the names and numbers that this job gives them."""

    def rows_counted(self, counters: Mapping[str, int]) -> int | None:
        """Rows of all the piece's files, by its counters; None where they do not say."""
        del counters
        return None

    def stored_blobs(self, report: WorkReport) -> bytes:
        """The bytes that `restored_blobs` needs besides the piece's files; b"" for none."""
        del report
        return b""

    def restored_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        """The blobs of a restored piece, whose files are in the output folder."""
        del files, stored
        return []


def _check_path(path: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise ValueError(f"expected a path inside the store, found {path!r}")
    return path


StorePath = Annotated[str, AfterValidator(_check_path)]


class PieceRecord(BaseModel):
    """A finished piece: its counts, and where its files are."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: int = Field(default=RECORD_VERSION, ge=RECORD_VERSION, le=RECORD_VERSION)
    files: tuple[FileEntry, ...]
    """As they were first described; `object` says nothing here."""

    places: tuple[tuple[StorePath, ...], ...]
    """Paths of all the files, relative to the root of the store: one tuple an artifact."""

    made_in: StorePath
    """Output folder of the job that did the work, relative to the root of the store."""

    counters: dict[str, int]
    details: list[Any]
    keepsake: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """sha256 of the file beside the record; "" where there is none."""


def piece_key(identity: Any) -> str:
    """64 hex digits that name a piece in its folder, from plain texts, whole numbers and lists."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def moved_record(stored: bytes, places: Mapping[str, str]) -> bytes | None:
    """A record whose files are found in another artifact, too.

    Args:
        stored: the record as it was written.
        places: where each file is, by where it was; both relative to the root of the store.

    Returns:
        the record with the new places before its old ones; None where it is damaged, or none of
        its artifacts is the one that moved.
    """
    try:
        record = PieceRecord.model_validate(read_sealed(stored).value)
    except ValueError:  # of which pydantic's are; whoever needs the piece builds it again
        return None
    moved = [tuple(places[path] for path in held) for held in record.places if {*held} <= {*places}]
    if not moved:
        return None
    changed = record.model_copy(update={"places": (*moved, *record.places)})
    return sealed_json(changed.model_dump(mode="json"))


@dataclass
class ReusingWork:
    """Does `work` on the pieces that no earlier job has finished, and restores the others."""

    work: PieceWork
    files: PieceFiles
    worth_seconds: float = 0.0
    """Processor time: what took less is not recorded, as it is done again sooner than found."""

    _known: set[str] | None = field(default=None, repr=False)
    """Names of the records there are, where asking for one would be a request."""

    def setup(self) -> None:
        self._known = set(self.files.names()) if self.files.is_remote else None
        self.work.setup()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    def process(self, piece: Any) -> WorkReport:
        key = piece_key(self.work.identity(piece))
        record = self._record(key)
        if record is not None:
            for place in record.places:
                report = self._restore(record, place, piece, key=key)
                if report is not None:
                    self._remember(key, report, record)
                    return report
        began = time.process_time()
        report = self.work.process(piece)
        if time.process_time() - began >= self.worth_seconds:
            self._remember(key, report, self._new_record(key, report))
        return report

    def weights_left(self, pieces: Iterable[Piece]) -> dict[int, int]:
        """About what each piece weighs by its number; restoring one weighs little."""
        known = self.files.names()
        weights = {}
        for piece in pieces:
            is_cheap = self.work.has_cheap_identity(piece)
            key = piece_key(self.work.identity(piece)) if is_cheap else ""
            is_known = f"{key}.json" in known
            weights[piece.number] = piece.weight // READING_IS_CHEAPER if is_known else piece.weight
        return weights

    def has_nearly_all(self, pieces: Sequence[Piece], *, but: int) -> bool:
        """Whether earlier jobs have finished every piece, or some, with less than `but` left."""
        left = self.weights_left(pieces)
        undone = [piece for piece in pieces if left[piece.number] >= max(1, piece.weight)]
        return len(undone) < len(pieces) and sum(piece.weight for piece in undone) < but

    def _record(self, key: str) -> PieceRecord | None:
        name = f"{key}.json"
        if self._known is not None and name not in self._known:
            return None
        data = self.files.read(f"{key[:2]}/{name}")
        if data is None:
            return None
        try:
            return self._checked(data)
        except ValueError as error:  # of which pydantic's are
            _log.warning("piece %s: its record is damaged, so it is built again: %s", key, error)
            return None

    def _checked(self, data: bytes) -> PieceRecord:
        """A record that is what was written and does not contradict itself; else a ValueError."""
        value, is_sealed = read_sealed(data)
        if not is_sealed:
            raise ValueError("it has no digest of its own")
        record = PieceRecord.model_validate(value)
        if any(len(place) != len(record.files) for place in record.places):
            raise ValueError("it names more files than places, or fewer")
        counted = self.work.rows_counted(Counters(record.counters))
        rows = sum(entry.rows or 0 for entry in record.files)
        if counted is not None and counted != rows:
            raise ValueError(f"its counters say {counted:,} rows, its files {rows:,}")
        return record

    def _new_record(self, key: str, report: WorkReport) -> PieceRecord:
        data = self.work.stored_blobs(report)
        blobs = self.files.write(f"{key[:2]}/{key}.blobs", data) if data else ""
        return PieceRecord(
            files=tuple(report.files),
            places=(),
            made_in=self.files.place_of("").rstrip("/"),
            counters=dict(report.counters),
            details=report.details,
            keepsake=blobs,
        )

    def _remember(self, key: str, report: WorkReport, record: PieceRecord) -> None:
        here = tuple(self.files.place_of(entry.object) for entry in report.files)
        places = tuple(dict.fromkeys([here, *record.places]))[:MOST_PLACES]
        kept = record.model_copy(update={"places": places})
        self.files.write(f"{key[:2]}/{key}.json", sealed_json(kept.model_dump(mode="json")))
        if self._known is not None:
            self._known.add(f"{key}.json")

    def _restore(
        self, record: PieceRecord, place: Sequence[str], piece: Piece, *, key: str
    ) -> WorkReport | None:
        """The report of an earlier piece as this job's, its files linked; None if one is gone."""
        stored = b""
        if record.keepsake:
            found = self.files.read(f"{key[:2]}/{key}.blobs", sha256=record.keepsake)
            if found is None:
                return None
            stored = found
        entries: list[FileEntry] = []
        for entry, source in zip(self.work.renamed(record.files, piece), place, strict=True):
            taken = self.files.restore(source, entry)
            if taken is None:
                self.files.discard(entries)
                return None
            entries.append(taken)
        return WorkReport(
            piece.number,
            entries,
            Counters(record.counters),
            self.work.restored_blobs(entries, stored),
            record.details,
            # What a job finds of its own, as of two pieces that say the same, is no reuse.
            reused=not self.files.is_here(f"{record.made_in}/"),
        )


def reusing(work: PieceWork, *, pieces: str, output: str) -> ShardWork:
    """The work, with reuse where there is a folder for records.

    Args:
        pieces: URL of the folder, `ROOT/pieces/STAGE/DIGEST`; "" for no reuse.
        output: URL of the folder that the work writes to, below the same ROOT.

    Raises:
        ConfigError: the two are not in one store.
    """
    return ReusingWork(work, PieceFiles(pieces=pieces, output=output)) if pieces else work


def reuse_of(pieces: Iterable[Piece], reports: Iterable[WorkReport]) -> Reuse:
    """How much of the planned work was restored."""
    weights = {piece.number: piece.weight for piece in pieces}
    reused = [weights[report.index] for report in reports if report.reused]
    return Reuse(
        pieces=len(weights),
        pieces_reused=len(reused),
        work=sum(weights.values()),
        work_reused=sum(reused),
    )
