"""The finished files of an unfinished piece, from which the next worker goes on.

A piece that is one indivisible stream may take a day. Each time that one of its files is whole, the
work hands over what it has come to: a record `KEY.part-00000.json`, ... beside those of pieces
(`pipelines.beam.reuse`), with that file, and the counts of all up to it. A worker that is given the
piece after another was stopped takes over these files, as far as they and their records are there
and sound, and works on behind them. When the piece is finished, its own record takes their place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.beam.piece_records import PieceRecord, PieceRecords
from pipelines.beam.work import Blob, HandOver, Piece, WorkReport
from pipelines.counters import Counters
from schemas.manifest import FileEntry

_log = logging.getLogger(__name__)


class PartedWork(Protocol):
    """Work that goes on from finished files of a piece (`pipelines.beam.reuse.PieceWork`)."""

    def renamed(self, files: Sequence[FileEntry], piece: Any) -> list[FileEntry]: ...

    def rows_counted(self, counters: Mapping[str, int]) -> int | None: ...

    def restored_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]: ...


@dataclass
class Parts(HandOver):
    """Those of one piece."""

    records: PieceRecords
    key: str
    """Of the piece."""

    work: PartedWork
    piece: Piece
    ask: bool
    """Whether to look for them where that is a request."""

    def taken(self) -> WorkReport:
        """What earlier workers have come to, their files being in the output folder."""
        found = list(self._sound())
        report = WorkReport(self.piece.number)
        names = self.work.renamed([record.files[0] for record in found], self.piece)
        for number, (record, entry) in enumerate(zip(found, names, strict=True)):
            file = self._taken(record, entry)
            if file is None:
                break
            if (self.records.files.place_of(file.stored_name),) not in record.places:
                self.records.write(self._name(number), record, [file])
            report.files.append(file)
            report.counters, report.details = Counters(record.counters), record.details
        if report.files:
            report.blobs = self.work.restored_blobs(report.files, b"")
            _log.info("piece %s: goes on behind %d finished files", self.key, len(report.files))
        return report

    def leave(self, report: WorkReport) -> None:
        """Keep what has been come to with the last of the files."""
        record = self.records.new(report).model_copy(update={"files": (report.files[-1],)})
        self.records.write(self._name(len(report.files) - 1), record, report.files[-1:])

    def forget(self, number: int) -> None:
        """Take `number` records away, as the piece is finished."""
        for part in range(number):
            self.records.forget(self._name(part))

    def _taken(self, record: PieceRecord, entry: FileEntry) -> FileEntry | None:
        """The file of a record in the output folder; None where it is nowhere, or damaged."""
        taken = (self.records.files.restore(place, entry) for (place,) in record.places)
        return next((file for file in taken if file is not None), None)

    def _name(self, number: int) -> str:
        return f"{self.key}.part-{number:05d}"

    def _sound(self) -> Iterator[PieceRecord]:
        """Records from the first file on, as long as they go with each other."""
        number = rows = 0
        while (record := self.records.read(self._name(number), ask=self.ask)) is not None:
            number, rows = number + 1, rows + sum(entry.rows or 0 for entry in record.files)
            counted = self.work.rows_counted(Counters(record.counters))
            if len(record.files) != 1 or counted not in (None, rows):
                _log.warning("piece %s: its record %d is not of its files", self.key, number)
                return
            yield record
