"""A task's file as a table of records, whatever its format: the parts that all formats share."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.tasks.task import Bad
from pipelines.io.lines import Line, read_lines
from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile

_SHOWN = 80


class Record(NamedTuple):
    """A row of a file, not yet an example."""

    place: str
    """Where it is, for messages: `line 17`, `row 3`."""

    number: int
    """Rows of the file before it, blank lines and the header not counted."""

    values: Mapping[str, Any]
    """By column. A column that the row lacks (JSON) is missing here too."""

    notes: tuple[str, ...] = ()


class RawTable(NamedTuple):
    """A file whose columns are known and whose records can be read."""

    columns: tuple[str, ...]
    records: Callable[[Sequence[str]], Iterator[Record | Bad]]
    """Given the columns that are wanted, the rows in order, with at least those."""

    label_names: Mapping[str, tuple[str, ...]] = {}
    """Of columns that hold integers in place of names: the names, where the file tells them."""


def file_lines(url: str) -> Iterator[Line]:
    """The lines of a file as bytes, without line ends (LF or CRLF) and without a byte-order mark.

    The file may be plain, gzip, bzip2 or zstd, which its first bytes tell, not its name.

    Raises:
        CorruptInputError: a compressed file is cut off or damaged.
        InputError: it is missing, cannot be reached, is UTF-16, or another kind of archive.
    """
    with open_file(url) as source:
        size = source.seek(0, io.SEEK_END)
    return read_lines(SourceFile(uri=url, name=base_name(url), size=size, sha256=""))


def base_name(url: str) -> str:
    """The last part of a path or URL."""
    return url.rstrip("/").rpartition("/")[2]


def shown(value: Any) -> str:
    """A value for people, cut to one short line."""
    text = repr(value) if not isinstance(value, str) else value.replace("\t", "\\t")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
