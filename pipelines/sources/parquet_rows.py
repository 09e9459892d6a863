"""Text in Parquet files: one document per row. Files are split between row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.io.file_systems import SMALL_READ_AHEAD
from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile, Split
from pipelines.sources.text_rows import TextRow, require_fields
from schemas.corpus_configs import TextSource
from schemas.errors import CorruptInputError, InputError

_BATCH_ROWS = 256


def plan_parquet(
    file: SourceFile, config: TextSource, *, target_split_bytes: int
) -> Iterator[Split]:
    """Yield splits of row groups of about `target_split_bytes`.

    Raises:
        InputError: A column is missing, or `text_column` has no text.
        CorruptInputError: The file is truncated or damaged.
    """
    with open_file(file.uri, ahead=SMALL_READ_AHEAD) as source, _reading(file):
        parquet = pq.ParquetFile(source)
        require_fields(parquet.schema_arrow.names, file, config, what="column")
        kind = parquet.schema_arrow.field(config.text_column).type
        sizes = [
            parquet.metadata.row_group(n).total_byte_size for n in range(parquet.num_row_groups)
        ]
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (
        pa.types.is_string(value)
        or pa.types.is_large_string(value)
        or pa.types.is_string_view(value)
    ):
        raise InputError(
            f"{file.uri}: expected text in the column {config.text_column!r}, found {kind}. Set "
            f"text_column of the source {config.name!r} to a column of strings"
        )
    if not sizes:
        yield Split(config.name, file, 0, 0)
    start, size = 0, 0
    for number, group in enumerate(sizes):
        size += group
        if size >= target_split_bytes or number == len(sizes) - 1:
            yield Split(config.name, file, start, number + 1)
            start, size = number + 1, 0


def parquet_rows(split: Split, config: TextSource) -> Iterator[TextRow]:
    """Yield the rows of a split in order.

    Raises:
        CorruptInputError: The file is truncated or damaged.
    """
    wanted = (config.text_column, config.id_column, config.title_column)
    columns = list(dict.fromkeys(name for name in wanted if name is not None))
    with open_file(split.file.uri) as source, _reading(split.file):
        parquet = pq.ParquetFile(source)
        counts = [parquet.metadata.row_group(n).num_rows for n in range(split.end)]
        number = sum(counts[: split.start])
        for group in range(split.start, split.end):
            where = _group_bytes(parquet.metadata.row_group(group))
            batches = parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns)
            for batch in batches:
                values = [
                    [None] * batch.num_rows if name is None else _values(batch.column(name))
                    for name in wanted
                ]
                for text, identifier, title in zip(*values, strict=True):
                    yield TextRow(text, identifier, title, number, *where, f"row {number}")
                    number += 1


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; bytes for strings that are not UTF-8, which Parquet allows."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        text = scalar.value if isinstance(scalar, pa.DictionaryScalar) else scalar
        return text.as_buffer().to_pybytes()


def _group_bytes(group: Any) -> tuple[int, int]:
    """Return start and end of the column chunks of a row group in the file."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    ends = [
        start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)
    ]
    return min(starts, default=0), max(ends, default=0)


@contextlib.contextmanager
def _reading(file: SourceFile) -> Iterator[None]:
    """Raise pyarrow's errors about a file as CorruptInputError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's, such as a failing disk
        raise CorruptInputError(
            f"{file.uri}: is no whole Parquet file: {error}. Expected {file.size:,} bytes that end "
            "in a Parquet footer: write or download it again",
            file=file.uri,
            offset=file.size,
        ) from error
