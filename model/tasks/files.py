"""Files of tasks and predictions as lines and as JSON: compressed or not, from any fsspec URL."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from pipelines.io.compression import Damage, compression_of, decompressed
from pipelines.io.lines import Line, read_lines
from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile
from schemas.errors import CorruptInputError, InputError
from schemas.redaction import public_address

_HEAD = 16
_SHOWN, _SHOWN_HEAD = 80, 60


def file_lines(url: str) -> Iterator[Line]:
    """Yield the lines of a file as bytes, without line ends (LF or CRLF) and byte-order mark.

    The first bytes of the file determine its compression: none, gzip, bzip2 or zstd.

    Raises:
        CorruptInputError: A compressed file is truncated or damaged.
        InputError: The file is missing, unreachable, UTF-16, or another kind of archive.
    """
    with open_file(url) as source:
        size = source.seek(0, io.SEEK_END)
    return read_lines(SourceFile(uri=url, name=base_name(url), size=size, sha256=""))


def file_chunks(url: str) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in chunks; its first bytes determine the compression.

    Raises:
        CorruptInputError: The compressed bytes are truncated or damaged.
        MissingInputError: The file does not exist.
    """
    with open_file(url) as source:
        compression = compression_of(source.read(_HEAD), name=url)
        for chunk in decompressed(source, compression, start=0, end=1 << 62):
            if isinstance(chunk, Damage):
                raise CorruptInputError(
                    f"{url}: {chunk.reason}; expected a whole file. Download it again",
                    file=url,
                    offset=chunk.offset,
                )
            if chunk.data:
                yield chunk.data


def base_name(url: str) -> str:
    """Return the last part of a path or public address. Manifests hold it as the file's name."""
    return public_address(url).rstrip("/").rpartition("/")[2]


def shown(value: Any) -> str:
    """Format a value as one short line."""
    text = repr(value) if not isinstance(value, str) else value.replace("\t", "\\t")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def is_text(value: Any) -> bool:
    """Return whether a value is text that UTF-8 can encode (JSON may have lone surrogates)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_json(url: str, *, error: type[InputError], expected: str = "one JSON value") -> Any:
    """Read a JSON file; its first bytes determine the compression.

    Args:
        url: Path or any fsspec URL.
        error: Error class for invalid content.
        expected: Expected content, for messages.

    Raises:
        MissingInputError: The file does not exist.
        CorruptInputError: The compressed bytes are truncated or damaged.
        InputError: Of class `error`: the file is empty, not UTF-8, not JSON, or an object repeats a
            key.
    """
    data = b"".join(file_chunks(url))
    if not data.strip():
        raise error(f"{url}: the file is empty; expected JSON. Download it again")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(
            f"{url}: byte {fault.start:,} is not UTF-8; expected JSON in UTF-8. Convert the file, "
            "or download it again"
        ) from fault
    try:
        return json.loads(text, object_pairs_hook=_distinct_keys)
    except _RepeatedKeyError as fault:
        raise error(
            f"{url}: the key {fault.args[0]!r} stands twice in one object, and one value would "
            "hide the other; remove one"
        ) from fault
    except (ValueError, RecursionError) as fault:
        raise error(
            f"{url}: no JSON ({fault}); expected {expected}. The file begins with "
            f"{text[:_SHOWN_HEAD]!r}"
        ) from fault


class _RepeatedKeyError(ValueError):
    """Error for an object that repeats a key."""


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return found
