"""Facts about text files that planning needs, found in the pass that computes their digests.

They are cached with the digests, so that planning a known corpus reads no text.
"""

from __future__ import annotations

import abc
import functools
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from pipelines.io.compression import Chunk, compression_of, decompressed
from pipelines.io.encodings import UTF8, EncodingSample, convert_to_utf8, detect_encoding
from pipelines.io.raw_files import DescribedFile, Observers, describe_files
from pipelines.io.splits import SourceFile, Split

_HEAD_BYTES = 16
_PROBED_BYTES, _PROBED_ROWS = 1 << 20, 100
MAX_LINE = 1 << 20
"""Number of bytes of a line that observers look at."""


@functools.cache
def encoding_fact() -> str:
    """Return the name of the fact that `Encoding` finds."""
    return f"encoding by chardet {version('chardet')}"


def describe_texts(
    names: list[tuple[str, str]], observers: Callable[[str], Observers]
) -> list[DescribedFile]:
    """Return files (`describe_files`), with the encodings of those that an `Encoding` observes."""
    return [
        each._replace(file=each.file._replace(encoding=each.facts.get(encoding_fact(), "")))
        for each in describe_files(names, observers)
    ]


class Encoding:
    """Finds the encoding of a plain text; "" if it is compressed or unknown."""

    def __init__(self, name: str) -> None:
        self._name, self._head, self._sample = name, b"", EncodingSample()

    def update(self, data: bytes) -> None:
        """Look at the next bytes of the file."""
        self._head = self._head or data[:_HEAD_BYTES]
        self._sample.update(data)

    def hexdigest(self) -> str:
        """Return the result.

        Raises:
            InputError: The file is another type of archive, or does not match its name.
        """
        if compression_of(self._head, name=self._name) != "plain":
            return ""
        return detect_encoding(self._sample.data) or ""


class DocumentStarts(abc.ABC):
    """Finds, for each multiple of `step`, the first document that begins there or later.

    The result is a JSON array of offsets. Files that are not plain UTF-8 need none.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._starts: list[int] = []
        self._position = 0
        self._line, self._line_start = b"", 0
        self._wanted = 0
        """Offset of the next byte to look at."""

    @abc.abstractmethod
    def begins_document(self, line: bytes) -> bool:
        """Return whether a line begins a document. `line` has at most its first megabyte."""

    def goal(self) -> int:
        """Return the next multiple of `step` to find a document for."""
        return self._step * (len(self._starts) + 1)

    def update(self, data: bytes) -> None:
        """Look at the next bytes of the file."""
        at = self._wanted - self._position
        while at < len(data):
            end = data.find(b"\n", at)
            self._line += data[at : end if end >= 0 else None][: MAX_LINE - len(self._line)]
            if end < 0:
                break
            self._take_line(self._position + end + 1)
            at = self._wanted - self._position
        self._position += len(data)
        self._wanted = max(self._wanted, self._position)

    def _take_line(self, end: int) -> None:
        if self.begins_document(self._line):
            while self.goal() <= self._line_start:
                self._starts.append(self._line_start)
        self._line, self._line_start, self._wanted = b"", end, end

    def hexdigest(self) -> str:
        """Return the result."""
        self._take_line(self._position)
        return json.dumps(self._starts)


class SeparatedDocuments(DocumentStarts):
    """Documents of a text: lines that are not blank, or that follow a blank line.

    Only lines behind a multiple of `step` are looked at. The line that contains it is not, because
    its beginning is unknown.
    """

    def __init__(self, step: int, *, needs_blank_line: bool) -> None:
        super().__init__(step)
        self._needs_blank_line = needs_blank_line
        self._skip_to_goal(0)

    def _skip_to_goal(self, end: int) -> None:
        self._wanted = self._line_start = max(end, self.goal())
        self._is_cut, self._is_ended = self.goal() >= end, not self._needs_blank_line

    def begins_document(self, line: bytes) -> bool:
        """Return whether a line begins a document."""
        is_blank = not line.strip()
        begins = self._is_ended and not is_blank and not self._is_cut
        self._is_ended |= is_blank and not self._is_cut
        self._is_cut = False
        return begins

    def _take_line(self, end: int) -> None:
        known = len(self._starts)
        super()._take_line(end)
        if len(self._starts) > known:
            self._skip_to_goal(end)


class RowKeys:
    """Finds the keys of the first rows of a .jsonl file, as a JSON array."""

    def __init__(self, name: str) -> None:
        self._name, self._head = name, b""

    def update(self, data: bytes) -> None:
        """Look at the next bytes of the file."""
        self._head += data[: _PROBED_BYTES - len(self._head)]

    def hexdigest(self) -> str:
        """Return the result."""
        compression = compression_of(self._head[:_HEAD_BYTES], name=self._name)
        chunks = decompressed(io.BytesIO(self._head), compression, start=0, end=len(self._head))
        plain = (chunk.data for chunk in chunks if isinstance(chunk, Chunk))
        text = b"".join(convert_to_utf8(plain, lambda _: None))
        rows = map(parse_row, text.splitlines()[:_PROBED_ROWS])
        return json.dumps(list(dict.fromkeys(key for row in rows if row for key in row)))


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line; None if it has none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def plan_ranges(
    source: str, file: SourceFile, starts: Sequence[int], *, step: int, target: int
) -> Iterator[Split]:
    """Yield splits of a file, of about `target` bytes if it can be read in parts.

    Args:
        source: Name of the source.
        file: A text.
        starts: Result of `DocumentStarts`.
        step: Its `step`, of which `target` is a multiple.
        target: Size of a split in bytes.
    """
    every = target // step
    inner = starts[every - 1 :: every] if file.encoding == UTF8 else ()
    bounds = [0, *dict.fromkeys(start for start in inner if start < file.size), file.size]
    for start, end in itertools.pairwise(bounds):
        yield Split(source, file, start, end)
