"""Later jobs restore finished pieces of work, each by a fingerprint of its own.

A piece is what a job does with one planned split of its input (a range of a dump, a shard, a pass
over a shard), and what it made of it.

A job that is given a folder `ROOT/pieces/STAGE/DIGEST` (of the stage's code, environment and
configuration) leaves a record of each piece there as soon as its files are whole:

    AA/KEY.json     the piece's counts and files, and where these lie below ROOT
    AA/KEY.blobs    its blobs, where they cannot be made from its files
    AA/KEY.part-00000.json, ...   what an unfinished piece has come to (`pipelines.beam.parts`)

The key is a digest of what decides the piece's bytes, which names and numbers of shards are no part
of. So after one dump of ten changed, or after a job was killed, the other pieces' files are linked
into the new artifact under the names that they have there. A file is believed only after its bytes
have been hashed again, and a record, whose counts go into manifests, only with its own digest
(`schemas.checksummed`); where either is gone or damaged, the piece is built again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.beam.parts import Parts
from pipelines.beam.piece_records import PieceRecord, PieceRecords, piece_key
from pipelines.beam.reuse_files import PieceFiles
from pipelines.beam.work import Blob, HandOver, Piece, ShardWork, WorkReport
from pipelines.counters import Counters
from schemas.manifest import FileEntry, Reuse

READING_IS_CHEAPER = 64
"""About so many times as doing the work: files are hashed as fast as they are read."""

WORTH_REQUESTS = 0.25
"""Seconds of work from which a piece is recorded in an object store, where restoring it costs half
a dozen requests."""

_log = logging.getLogger(__name__)


class PieceWork(ShardWork, Protocol):
    """Work whose pieces can be restored; it says what a piece is, whatever its name."""

    def setup(self) -> None:
        """Open what is read-only and large, once per worker. Default: nothing."""
        return

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

    def weight_of_parts(self) -> int | None:
        """From about which weight on a piece has several files; None where it hands none over."""
        return None

    def go_on(self, piece: Any, begun: WorkReport, hand_over: HandOver) -> WorkReport:
        """Like `process`, behind what earlier workers came to.

        Args:
            piece: to work on.
            begun: its first files with all their blobs, and the counters and details that were
                handed over with the last of them; empty if there are none.
            hand_over: told each time that a file is whole and another follows.
        """
        del begun, hand_over
        return self.process(piece)


@dataclass
class ReusingWork:
    """Does `work` on the pieces that no earlier job has finished, and restores the others."""

    work: PieceWork
    files: PieceFiles
    worth_seconds: float = 0.0
    """Processor time: what took less is not recorded, as it is done again sooner than found."""

    def __post_init__(self) -> None:
        self._records = PieceRecords(self.files)

    def setup(self) -> None:
        self._records.setup()
        self.work.setup()

    def process(self, piece: Any) -> WorkReport:
        key = piece_key(self.work.identity(piece))
        parts = self._parts(key, piece)
        record = self._records.read(key)
        if record is not None and self._is_sound(record, key):
            for place in record.places:
                report = self._restore(record, place, piece, key=key)
                if report is not None:
                    self._remember(key, report, record, parts=parts)
                    return report
        began = time.process_time()
        begun = parts.taken() if parts else WorkReport(piece.number)
        is_begun = bool(begun.files)
        report = self.work.go_on(piece, begun, parts) if parts else self.work.process(piece)
        if is_begun or time.process_time() - began >= self.worth_seconds:
            self._remember(key, report, self._new_record(key, report), parts=parts)
        return report

    def _parts(self, key: str, piece: Piece) -> Parts | None:
        least = self.work.weight_of_parts()
        if least is None:
            return None
        return Parts(self._records, key, self.work, piece, ask=piece.weight >= least)

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

    def _is_sound(self, record: PieceRecord, key: str) -> bool:
        """Whether a record does not contradict itself."""
        counted = self.work.rows_counted(Counters(record.counters))
        rows = sum(entry.rows or 0 for entry in record.files)
        if counted in (None, rows):
            return True
        _log.warning(
            "piece %s: its record's counters say %s rows, its files %d; it is built again",
            *(key, counted, rows),
        )
        return False

    def _new_record(self, key: str, report: WorkReport) -> PieceRecord:
        data = self.work.stored_blobs(report)
        blobs = self.files.write(f"{key[:2]}/{key}.blobs", data) if data else ""
        return self._records.new(report, keepsake=blobs)

    def _remember(
        self, key: str, report: WorkReport, record: PieceRecord, *, parts: Parts | None
    ) -> None:
        self._records.write(key, record, report.files)
        if parts is not None:
            parts.forget(len(report.files) - 1)

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


def reuse_of(pieces: Iterable[Piece], restored: Iterable[int]) -> Reuse:
    """How much of the planned work was restored, by the numbers of the pieces."""
    weights = {piece.number: piece.weight for piece in pieces}
    reused = [weights[number] for number in restored]
    return Reuse(
        items=len(weights),
        items_reused=len(reused),
        weight=sum(weights.values()),
        weight_reused=sum(reused),
    )
