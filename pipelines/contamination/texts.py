"""Evaluation texts to search for, and their n-grams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrays import Int64s, UInt64s, flat_lists
from pipelines.contamination import NGRAMS_FILE
from pipelines.contamination.ngrams import WordStream
from pipelines.documents.duplicates import group_starts
from pipelines.documents.word_hashes import WHOLE, WordHasher
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import CONTAMINATION, CONTAMINATION_NGRAMS, EXAMPLES
from schemas.corpus_configs import ContaminationConfig
from schemas.errors import ConfigError
from schemas.field_names import field_name
from schemas.manifest import FileEntry, StageInput

TRAINING_SPLITS = ("train", "augmentation")
"""Splits that are searched for only if the configuration names them."""

FIELDS = {
    "classification": ("text_a", "text_b"),
    "regression": ("text_a", "text_b"),
    "choice": ("context", "continuations"),
    "span": ("context", "question"),
    "tagging": ("words",),
}
"""Text columns of examples by type of the task."""

TEXT_COLUMNS = ("task", "split", "field", "example_id", "examples", "ngrams")
"""Columns of `CONTAMINATION` that describe a text."""

_TEXTS = pa.schema([*map(CONTAMINATION.field, TEXT_COLUMNS[:-1]), pa.field("text", pa.string())])
_USES = pa.schema({"text": pa.int64(), "example": pa.int64()})
_BATCH_ROWS = 1 << 12
_NO_NGRAM = 1 << 40  # weight that no text has


class Split(NamedTuple):
    """Examples of one split of a task."""

    task: str
    name: str
    kind: str
    """Type of the task, a key of `FIELDS`."""

    examples: int
    file: InputFile


class TextNgrams(NamedTuple):
    """N-grams of all texts, sorted by weight, hash, text and word.

    The number of an n-gram is the first row that has it.
    """

    weights: Int64s
    hashes: UInt64s
    texts: Int64s
    """Number of the text."""

    words: Int64s
    """Index of the first word in the text; the n-grams of a text begin at words 0, 1, 2, ..."""

    ends: Int64s
    """Index after the last word."""

    repeats: Int64s
    """Number of rows with equal n-grams, in the first of them; 0 in the others."""

    def write(self, *, output: str) -> FileEntry:
        """Write the table `CONTAMINATION_NGRAMS`."""
        columns = [pa.array(self.weights, pa.uint8()), pa.array(self.hashes, pa.uint64())]
        with ShardWriter(NGRAMS_FILE, schema=CONTAMINATION_NGRAMS, output=output) as shard:
            shard.write(pa.record_batch(columns, schema=CONTAMINATION_NGRAMS))
        return shard.entry()


class EvalTexts(NamedTuple):
    """Distinct texts of each field. The number of a text is its row."""

    table: pa.Table
    """`TEXT_COLUMNS` and `text`."""

    uses: pa.Table
    """Distinct pairs of a `text` and the row of an `example` with it in its split."""

    ngrams: TextNgrams


def select_splits(tasks: Mapping[str, StageInput], config: ContaminationConfig) -> list[Split]:
    """Return the splits to search for.

    Raises:
        ConfigError: No task has a split of the configuration.
    """
    splits = list(_read_splits(tasks))
    names = {split.name for split in splits}
    if unknown := [name for name in config.splits if name not in names]:
        raise ConfigError(
            f"{field_name('splits')}: expected some of {', '.join(sorted(names))}, "
            f"got {', '.join(unknown)}"
        )
    selected = config.splits or names.difference(TRAINING_SPLITS)
    return [split for split in splits if split.name in selected]


def _read_splits(tasks: Mapping[str, StageInput]) -> Iterator[Split]:
    for task, examples in tasks.items():
        kind = str(examples.statistics["kind"])
        for entry in examples.files:
            name = entry.path.removesuffix(".arrow")
            yield Split(task, name, kind, entry.rows or 0, InputFile.of(examples, entry))


def read_texts(splits: Sequence[Split], config: ContaminationConfig) -> EvalTexts:
    """Return the texts of all fields, one field after the other."""
    tables, uses = [_TEXTS.empty_table()], [_USES.empty_table()]
    for split in splits:
        with open_shard(split.file, expected=EXAMPLES[split.kind]) as reader:
            examples = reader.read_all()
        for field in FIELDS[split.kind]:
            table, numbers, rows = _read_field(split, field, examples)
            numbers += sum(map(len, tables))
            tables.append(table)
            uses.append(pa.table([numbers, rows], schema=_USES))
    table = pa.concat_tables(tables).combine_chunks()
    ngrams = _find_ngrams(table.column("text"), config)
    counts = pa.array(np.bincount(ngrams.texts, minlength=len(table)), pa.uint32())
    return EvalTexts(table.append_column("ngrams", counts), pa.concat_tables(uses), ngrams)


def _read_field(split: Split, field: str, examples: pa.Table) -> tuple[pa.Table, Int64s, Int64s]:
    """Return the distinct texts of a column, and the pairs of a text and the row of an example."""
    values, rows = _column_texts(examples.column(field).combine_chunks(), field)
    encoded = values.dictionary_encode()  # in the order of first occurrence
    pairs = np.unique(encoded.indices.to_numpy().astype(np.int64) * len(examples) + rows)
    numbers, rows = np.divmod(pairs, max(len(examples), 1))
    texts = len(encoded.dictionary)
    columns = [
        *(pa.repeat(value, texts) for value in (split.task, split.name, field)),
        examples.column("id").take(pa.array(rows[group_starts(numbers)])),
        pa.array(np.bincount(numbers, minlength=texts), pa.uint32()),
        encoded.dictionary,
    ]
    return pa.table(columns, schema=_TEXTS), numbers, rows


def _column_texts(column: pa.Array, field: str) -> tuple[pa.Array, Int64s]:
    """Return the texts of a column without nulls, and the row of each."""
    rows = np.arange(len(column))
    if field == "continuations":
        column, bounds = flat_lists(column)
        rows = np.repeat(rows, np.diff(bounds))
    elif field == "words":
        column = pa.array([" ".join(words) for words in column.to_pylist()], pa.string())
    return column.drop_null(), rows[column.is_valid().to_numpy(zero_copy_only=False)]


def _find_ngrams(texts: pa.ChunkedArray, config: ContaminationConfig) -> TextNgrams:
    """Return the n-grams of all texts."""
    hasher = WordHasher()
    batches = [
        _batch_ngrams(texts.slice(first, _BATCH_ROWS).combine_chunks(), first, config, hasher)
        for first in range(0, max(len(texts), 1), _BATCH_ROWS)
    ]
    weights, hashes, numbers, words, ends = map(np.concatenate, zip(*batches, strict=True))
    order = np.lexsort((hashes, weights))
    weights, hashes = weights[order], hashes[order]
    firsts = np.flatnonzero(group_starts(weights, hashes))
    repeats = np.zeros(len(order), np.int64)
    repeats[firsts] = np.diff(np.append(firsts, len(order)))
    return TextNgrams(weights, hashes, numbers[order], words[order], ends[order], repeats)


def _batch_ngrams(
    texts: pa.Array, first: int, config: ContaminationConfig, hasher: WordHasher
) -> tuple[Int64s, UInt64s, Int64s, Int64s, Int64s]:
    """Return weight, hash, text, first word and end of the n-grams of texts, numbered from `first`.

    A text with fewer words than an n-gram has one n-gram of all its words.
    """
    words = hasher.words(texts)
    stream = WordStream(words)
    weights = np.minimum(stream.sizes, config.ngram_size * WHOLE)
    weights[stream.sizes < config.min_text_words * WHOLE] = _NO_NGRAM
    starts, ends, hashes = stream.ngrams(weights[stream.texts])
    rows = stream.texts[starts]
    offsets = words.offsets[rows]
    return weights[rows], hashes, rows + first, starts - offsets, ends - offsets
