"""The reports of a job's pieces on their way to the launching process, and in it.

Those of an element of the graph go along as they are where they are short, and else by files, whose
names go along: so what a runner brings together for one worker stays small, however many pieces
there are. The launching process keeps them in a temporary file and reads one at a time.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from pipelines.beam.work import WorkReport
from pipelines.io.file_systems import file_system
from schemas.manifest import FileEntry

MOST_TOGETHER = 8 << 20
"""Bytes of the reports of all elements that go along as they are."""

_FILE_BYTES = 4 << 20


class Outbox:
    """Sends the reports of one element."""

    def __init__(self, url: str, *, most_bytes: int) -> None:
        """`url` begins the names of files, in which there are reports of more than `most_bytes`."""
        self._url, self._most = url, most_bytes
        self._texts: list[str] = []
        self._size = 0

    def add(self, report: WorkReport) -> Iterator[str]:
        """Take a report; gives what is to be sent by now."""
        text = report.to_json()
        self._texts.append(text)
        self._size += len(text)
        if self._size > max(_FILE_BYTES, self._most):
            yield self._written()

    def rest(self) -> Iterator[str]:
        """What is to be sent at the end."""
        if self._size > self._most:
            yield self._written()
        else:
            yield from self._texts

    def _written(self) -> str:
        name = f"{self._url}-{uuid.uuid4().hex}"
        fs, path = file_system(name)
        fs.pipe_file(path, "\n".join(self._texts).encode())
        self._texts, self._size = [], 0
        return name


def sent_texts(url: str) -> Iterator[str]:
    """The JSON texts of all reports whose list is at `url`; the list and its files are deleted."""
    fs, path = file_system(url)
    named = False
    for line in fs.cat_file(path).decode().split("\n"):
        if not line or line.startswith("{"):
            yield from filter(None, [line])
            continue
        _, file = file_system(line)
        named = True
        yield from fs.cat_file(file).decode().split("\n")
    fs.rm_file(path)
    if named:  # and perhaps there are some of workers that were repeated
        names = fs.ls(path.rpartition("/")[0], detail=False)
        for name in names:
            if name.rpartition("/")[2].startswith(f"{path.rpartition('/')[2]}-"):
                fs.rm_file(name)


class _Place(NamedTuple):
    number: int
    start: int
    size: int


class Reports(Sequence[WorkReport]):
    """The reports of a job by their numbers, each parsed when it is asked for."""

    def __init__(self, url: str) -> None:
        """Take those whose list is at `url` (`sent_texts`)."""
        spool = tempfile.TemporaryFile(prefix="bertloom-reports-")  # noqa: SIM115 - see below
        weakref.finalize(self, spool.close)
        self._spool, start = spool, 0
        places: list[_Place] = []
        files: dict[int, list[FileEntry]] = {}
        reused: list[int] = []
        for text in sent_texts(url):
            report, data = WorkReport.from_json(text), zlib.compress(text.encode(), 1)
            places.append(_Place(report.index, start, spool.write(data)))
            start += len(data)
            files[report.index] = report.files
            reused += [report.index] if report.reused else []
        spool.flush()
        self._places = sorted(places)
        self.numbers = [place.number for place in self._places]
        """Of the pieces, ascending."""

        self.files = tuple(entry for number in sorted(files) for entry in files[number])
        """All files, in the order of the numbers."""

        self.reused = frozenset(reused)
        """Numbers of the pieces that were restored."""

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, item: int) -> WorkReport: ...

    @overload
    def __getitem__(self, item: slice) -> list[WorkReport]: ...

    def __getitem__(self, item: int | slice) -> WorkReport | list[WorkReport]:
        if isinstance(item, slice):
            return [self[number] for number in range(len(self))[item]]
        _, start, size = self._places[item]
        data = os.pread(self._spool.fileno(), size, start)
        return WorkReport.from_json(zlib.decompress(data).decode())
