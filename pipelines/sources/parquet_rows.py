"""Text in Parquet files, which are split where row groups end, or at the next document."""

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
    """Yield splits of about `target_split_bytes`, whose positions are row numbers.

    Raises:
        InputError: A column is missing, or `text_column` has no text.
        CorruptInputError: The file is truncated or damaged.
    """
    with open_file(file.uri, ahead=SMALL_READ_AHEAD) as source, _reading(file):
        parquet = pq.ParquetFile(source)
        require_fields(parquet.schema_arrow.names, file, config, what="column")
        kind = parquet.schema_arrow.field(config.text_column).type
        groups = [parquet.metadata.row_group(n) for n in range(parquet.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
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
    total = sum(rows for rows, _ in sizes)
    # A split starts with a document. A pattern could only be found by reading all rows.
    rows_per_document = config.rows_per_document or (max(1, total) if config.joins_rows else 1)
    start, size, row = 0, 0, 0
    for rows, group_size in sizes:
        size += group_size
        row += rows
        end = min(total, -(-row // rows_per_document) * rows_per_document)
        if size >= target_split_bytes and start < end < total:
            yield Split(config.name, file, start, end)
            start, size = end, 0
    yield Split(config.name, file, start, total)


def parquet_rows(split: Split, config: TextSource) -> Iterator[TextRow]:
    """Yield the rows of a split in order.

    Raises:
        CorruptInputError: The file is truncated or damaged.
    """
    wanted = (config.text_column, config.id_column, config.title_column)
    columns = list(dict.fromkeys(name for name in wanted if name is not None))
    with open_file(split.file.uri) as source, _reading(split.file):
        for first, where, batch in _batches(pq.ParquetFile(source), split, columns):
            values = [
                [None] * batch.num_rows if name is None else _values(batch.column(name))
                for name in wanted
            ]
            for number, (text, identifier, title) in enumerate(zip(*values, strict=True), first):
                position = f"row {number}"
                yield TextRow(text, identifier, title, number, *where, position, number=number)


def _batches(
    parquet: pq.ParquetFile, split: Split, columns: list[str]
) -> Iterator[tuple[int, tuple[int, int], pa.RecordBatch]]:
    """Yield the number of the first row, the bytes of the row group, and the rows of each batch."""
    number = 0
    for index in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(index)
        if number + group.num_rows <= split.start or number >= split.end:
            number += group.num_rows
            continue
        where = _group_bytes(group)
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[index], columns=columns):
            skipped = min(batch.num_rows, max(0, split.start - number))
            rows = batch.slice(skipped, max(0, split.end - number - skipped))
            if rows.num_rows:
                yield number + skipped, where, rows
            number += batch.num_rows


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
