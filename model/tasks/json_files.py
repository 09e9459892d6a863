"""JSON files of questions and of predictions: whole, compressed or not, from any fsspec URL."""

from __future__ import annotations

import gzip
import json
from typing import Any

from pipelines.io.compression import Damage, compression_of, decompressed
from pipelines.io.file_systems import file_system
from pipelines.io.raw_files import open_file
from schemas.errors import CorruptInputError, InputError

_HEAD = 16
_SHOWN = 60


def read_json(url: str, *, error: type[InputError]) -> Any:
    """What a JSON file holds; plain, .gz, .bz2 or .zst is told by its first bytes.

    Args:
        url: a path or any fsspec URL.
        error: what is raised when the content is no JSON.

    Raises:
        MissingInputError: no file is there.
        CorruptInputError: its compressed bytes are cut off or damaged.
        InputError: of the class `error`: empty, not UTF-8, no JSON, or a key twice in an object.
    """
    data = _read(url)
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
        return json.loads(text, object_pairs_hook=distinct_keys)
    except RepeatedKeyError as fault:
        raise error(
            f"{url}: the key {fault.key!r} stands twice in one object, and one value would hide "
            "the other; remove one"
        ) from fault
    except (ValueError, RecursionError) as fault:
        raise error(
            f"{url}: no JSON ({fault}); expected one JSON value. The file begins with "
            f"{text[:_SHOWN]!r}"
        ) from fault


def write_json(value: Any, url: str) -> None:
    """Write JSON to a path or any fsspec URL, compressed if its name ends in .gz.

    Equal values in equal order are equal bytes.
    """
    data = (json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()
    if url.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    fs, path = file_system(url)
    with fs.open(path, "wb") as target:
        target.write(data)


def _read(url: str) -> bytes:
    with open_file(url) as source:
        compression = compression_of(source.read(_HEAD), name=url)
        parts: list[bytes] = []
        for chunk in decompressed(source, compression, start=0, end=1 << 62):
            if isinstance(chunk, Damage):
                raise CorruptInputError(
                    f"{url}: {chunk.reason}; expected a whole file. Download it again",
                    file=url,
                    offset=chunk.offset,
                )
            parts.append(chunk.data)
    return b"".join(parts)


class RepeatedKeyError(ValueError):
    """A key that an object has twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} stands twice in one object")
        self.key = key


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of its keys and values, for `json.loads`.

    Raises:
        RepeatedKeyError: a key is there twice, and one value would hide the other.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RepeatedKeyError(key)
            seen.add(key)
    return found
