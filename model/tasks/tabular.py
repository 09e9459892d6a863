"""Tables with types: Parquet as the Hugging Face hub lays it out, and JSON.

JSON may be one object a line, an array of objects, an object of objects by id, or an object whose
`data` is an array of objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.tasks.json_files import distinct_keys
from model.tasks.raw_tables import RawTable, Record, file_lines, shown
from model.tasks.task import Bad
from pipelines.io.raw_files import open_file
from schemas.errors import CorruptInputError, ExamplesError

_PARQUET_MARK = b"PAR1"
_HUB_KEY = b"huggingface"
_BATCH_ROWS = 4096
_PROBED_RECORDS = 1000
_JSON_START = re.compile(rb'\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_ID_OF_KEY = "id"


def is_parquet(url: str) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    with open_file(url) as stream:
        return stream.read(len(_PARQUET_MARK)) == _PARQUET_MARK


def is_json(url: str) -> bool:
    """Whether a text file is JSON, by how its first line with text begins."""
    first = next((line.data for line in file_lines(url) if line.data.strip()), b"")
    return b"\t" not in first.strip() and _JSON_START.match(first) is not None


def open_parquet(url: str) -> RawTable:
    """The table in a Parquet file; the names of its labels where the hub wrote them into it.

    Raises:
        CorruptInputError: it is cut off or damaged.
    """
    with open_file(url) as stream:
        schema = _parquet_file(stream, url).schema_arrow
    return RawTable(tuple(schema.names), partial(_parquet_records, url), _hub_label_names(schema))


def _parquet_file(stream: Any, url: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(url, error) from error


def _damaged(url: str, error: Exception) -> CorruptInputError:
    return CorruptInputError(
        f"{url}: begins as a Parquet file, but cannot be read: {error}. Expected a whole file: "
        "download it again",
        file=url,
        offset=0,
    )


def _parquet_records(url: str, wanted: Sequence[str]) -> Iterator[Record | Bad]:
    with open_file(url) as stream:
        file = _parquet_file(stream, url)
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=list(wanted))
        number = 0
        while True:
            try:
                batch = next(batches, None)
                rows = [] if batch is None else batch.to_pylist()
            except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
                raise _damaged(url, error) from error
            if batch is None:
                return
            for values in rows:
                yield Record(f"row {number}", number, values)
                number += 1


def _hub_label_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    # `datasets` writes the features of its tables into the schema's metadata as JSON.
    try:
        features = json.loads((schema.metadata or {})[_HUB_KEY])["info"]["features"]
        return {
            column: tuple(str(name) for name in feature["names"])
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError):
        return {}  # another program's metadata, or none: the task's own order of labels counts


def open_json(url: str) -> RawTable:
    """The table in a JSON file. Its columns are the keys of its first thousand objects.

    Raises:
        ExamplesError: it is not JSON, or not in one of the layouts.
    """
    if _is_json_lines(url):
        probed = [value for _, value in zip(range(_PROBED_RECORDS), _lines(url), strict=False)]
        records = [item for item in probed if isinstance(item, Record)]
        return RawTable(_keys([record.values for record in records]), lambda _wanted: _lines(url))
    rows = _whole(url)
    keys = _keys([row for row in rows[:_PROBED_RECORDS] if isinstance(row, dict)])
    return RawTable(keys, lambda _wanted: _listed(rows))


def _keys(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for row in rows for key in row))


def _is_json_lines(url: str) -> bool:
    """Whether the first line is a whole object that is not itself an object of objects."""
    first = next(line.data for line in file_lines(url) if line.data.strip())
    row = _parsed(first)
    return isinstance(row, dict) and not _holds_records(row)


def _holds_records(value: dict[str, Any]) -> bool:
    is_list = isinstance(value.get("data"), list)
    return is_list or all(isinstance(item, dict) for item in value.values())


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _lines(url: str) -> Iterator[Record | Bad]:
    number = 0
    for line_number, line in enumerate(file_lines(url), start=1):
        place = f"line {line_number}"
        if not line.data.strip():
            yield Bad(place, "blank-line", "a blank line", is_fault=False)
            continue
        row = _parsed(line.data)
        if isinstance(row, dict):
            yield Record(place, number, row)
        else:
            yield Bad(place, "malformed-json", shown(line.data.decode(errors="replace")))
        number += 1


def _whole(url: str) -> list[Any]:
    text = b"\n".join(line.data for line in file_lines(url))
    try:
        value = json.loads(text, object_pairs_hook=distinct_keys)
    except (ValueError, RecursionError) as error:
        raise ExamplesError(
            f"{url}: begins like JSON, but cannot be read: {error}. Expected an object a line, an "
            "array of objects, or an object of objects"
        ) from error
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    if isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
        return [{_ID_OF_KEY: key, **row} for key, row in value.items()]
    if isinstance(value, list) and value:
        return value
    raise ExamplesError(
        f"{url}: expected an object a line, an array of objects, or an object of objects, found "
        f"{shown(value)}. Is it empty, or another data set's?"
    )


def _listed(rows: Sequence[Any]) -> Iterator[Record | Bad]:
    for number, row in enumerate(rows):
        place = f"row {number}"
        if isinstance(row, dict):
            yield Record(place, number, row)
        else:
            yield Bad(place, "not-an-object", shown(row))
