"""Files of tasks and predictions, on any fsspec URL: opened once, the first bytes decide.

The content of a file determines its compression (none, gzip, bzip2 or zstd) and its format; its
name does not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any, Literal

from pipelines.io.compression import Damage, compression_of, decompressed
from pipelines.io.raw_files import open_file
from schemas.errors import CorruptInputError, InputError
from schemas.redaction import public_address

_HEAD = 16
_PARQUET_MARK = b"PAR1"
_UTF8_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_JSON_START = re.compile(rb'\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_SHOWN, _SHOWN_HEAD = 80, 60

Format = Literal["parquet", "json-lines", "json", "text"]


class DataFile:
    """Open file of a task. Its content can be read once, by one of the methods or from `stream`."""

    def __init__(self, url: str, stream: IO[bytes]) -> None:
        self.url, self.stream = url, stream
        self.first_line = b""
        """First line that is not blank; b"" for Parquet."""
        self._first_value: Any = None
        self._chunks: Iterator[bytes] = iter(())
        self._head = b""
        """Bytes up to the end of the first line, or some more."""
        if stream.read(len(_PARQUET_MARK)) == _PARQUET_MARK:
            self.format: Format = "parquet"
            return
        self._chunks = _decompress(url, stream)
        self._head = _read_first_line(self._chunks)
        text = len(self._head) - len(self._head.lstrip())
        start, end = self._head.rfind(b"\n", 0, text) + 1, self._head.find(b"\n", text)
        self._line_end = end if end >= 0 else len(self._head)
        self.first_line = self._head[start : self._line_end].removesuffix(b"\r")
        self.format = self._find_text_format()

    def _find_text_format(self) -> Format:
        if _JSON_START.match(self.first_line) is None:
            return "text"
        with contextlib.suppress(ValueError, RecursionError):
            self._first_value = parse_json(self.first_line)
        if isinstance(self._first_value, dict) and not _holds_rows(self._first_value):
            return "json-lines"
        # A tab outside of a JSON value separates the columns of a table.
        is_text = self._first_value is None and b"\t" in self.first_line.strip()
        return "text" if is_text else "json"

    def lines(self) -> Iterator[bytes]:
        """Yield the lines without line ends (LF or CRLF) and byte-order mark."""
        return _split_lines(itertools.chain([self._head], self._chunks))

    def read_json(self, error: type[InputError], *, expected: str = "one JSON value") -> Any:
        """Return the value of a JSON file.

        Args:
            error: Error class for invalid content.
            expected: Expected content, for messages.

        Raises:
            InputError: Of class `error`: the file is empty, not UTF-8, not JSON, or an object
                repeats a key.
        """
        data = b"".join([self._head, *self._chunks])
        if not data.strip():
            content = "Parquet" if self.format == "parquet" else "an empty file"
            raise error(f"{self.url}: expected JSON, got {content}. Download it again")
        if self._first_value is not None and not data[self._line_end :].strip():
            return self._first_value
        try:
            return parse_json(data)
        except UnicodeDecodeError as fault:
            line = data.count(b"\n", 0, fault.start) + 1
            raise error(
                f"{self.url}: line {line:,}: expected UTF-8, got {data[fault.start]:#04x}. Convert "
                "the file, e.g. with iconv, or download it again"
            ) from fault
        except RepeatedKeyError as fault:
            raise error(
                f"{self.url}: the key {fault.args[0]!r} stands twice in one object, and one value "
                "would hide the other; remove one"
            ) from fault
        except (ValueError, RecursionError) as fault:
            start = data[:_SHOWN_HEAD].decode(errors="replace")
            raise error(
                f"{self.url}: no JSON ({fault}); expected {expected}. The file begins with "
                f"{start!r}"
            ) from fault


@contextlib.contextmanager
def open_data(url: str) -> Iterator[DataFile]:
    """Open a file once and find its format.

    Raises:
        CorruptInputError: The compressed bytes are truncated or damaged.
        InputError: The file is missing, unreachable, UTF-16, or another kind of archive.
    """
    with open_file(url) as stream:
        yield DataFile(url, stream)


def _decompress(url: str, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the text of a file in chunks, without byte-order mark."""
    stream.seek(0)
    compression = compression_of(stream.read(_HEAD), name=url)
    is_start = True
    for chunk in decompressed(stream, compression, start=0, end=1 << 62):
        if isinstance(chunk, Damage):
            raise CorruptInputError(
                f"{url}: {chunk.reason}; expected a whole file. Download it again",
                file=url,
                offset=chunk.offset,
            )
        if is_start and chunk.data.startswith(_WIDE_MARKS):
            raise InputError(
                f"{url}: expected UTF-8, got UTF-16 or UTF-32. Convert it, e.g. `iconv -f UTF-16 "
                "-t UTF-8`"
            )
        yield chunk.data.removeprefix(_UTF8_MARK if is_start else b"")
        is_start = is_start and not chunk.data


def _read_first_line(chunks: Iterator[bytes]) -> bytes:
    """Read chunks up to the end of the first line that is not blank."""
    head: list[bytes] = []
    has_text = False
    for chunk in chunks:
        head.append(chunk)
        text = chunk if has_text else chunk.lstrip()
        has_text = has_text or bool(text)
        if b"\n" in text:
            break
    return b"".join(head)


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines. They end at LF only: a text may contain Unicode's other line ends."""
    unfinished: list[bytes] = []  # parts of a line that continues in the next chunk
    for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        unfinished.append(first)
        if lines:
            for line in (b"".join(unfinished), *lines[:-1]):
                yield line.removesuffix(b"\r")
            unfinished = [lines[-1]]
    if last := b"".join(unfinished):
        yield last.removesuffix(b"\r")


# JSON


class RepeatedKeyError(ValueError):
    """Error for an object that repeats a key."""


def parse_json(data: bytes) -> Any:
    """Return a JSON value.

    Raises:
        UnicodeDecodeError: The text is not UTF-8.
        RepeatedKeyError: An object repeats a key.
        ValueError: The text is not JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(data.decode(), object_pairs_hook=_distinct_keys)


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return values


def _holds_rows(value: dict[str, Any]) -> bool:
    """Return whether an object holds all rows of a file: SQuAD's `data`, or an object by id."""
    return isinstance(value.get("data"), list) or all(isinstance(v, dict) for v in value.values())


# Text


def base_name(url: str) -> str:
    """Return the last part of a path or public address. Manifests hold it as the file's name."""
    return public_address(url).rstrip("/").rpartition("/")[2]


def shown(value: Any) -> str:
    """Format a value as one short line."""
    text = repr(value) if not isinstance(value, str) else value.replace("\t", "\\t")
    text = text.encode(errors="backslashreplace").decode()  # surrogates
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def is_text(value: Any) -> bool:
    """Return whether a value is text that UTF-8 can encode (JSON may have lone surrogates)."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
