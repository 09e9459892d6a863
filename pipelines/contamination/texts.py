"""The texts of evaluation examples, each once, as numbers of the runs of words that they have.

A text that several examples of a split share (a passage with ten questions) is one text. This is
the small side of the join: it is held in memory, about 40 bytes a word of the texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrays import Int64s, UInt64s, flat_lists, joined, offsets_of
from pipelines.contamination.ngrams import Stream
from pipelines.documents.words import WHOLE, WordHasher, Words
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import EXAMPLES
from schemas.corpus_configs import ContaminationConfig
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.manifest import StageInput

LEARNT_FROM = ("train", "augmentation")
"""Splits that are looked for only where the configuration names them."""

FIELDS = {
    "classification": ("text_a", "text_b"),
    "regression": ("text_a", "text_b"),
    "choice": ("context", "continuations"),
    "span": ("context", "question"),
    "tagging": ("words",),
}
"""Columns of examples that hold text, by the type of the task."""

_BATCH_ROWS = 4096


class Place(NamedTuple):
    """Where texts are from."""

    task: str
    """Name of the input."""

    split: str
    field: str


class Texts(NamedTuple):
    """Distinct texts of a field, or of many one after the other."""

    places: list[Place]
    place: Int64s
    """Of each text, which of `places`."""

    row: Int64s
    """Of each text the first example that has it: its row in the split."""

    used: Int64s
    """How many examples have it."""

    words: Int64s
    """How many words it has."""

    ngrams: Int64s
    """Numbers of runs, text after text; of a text that is too short there are none."""

    bounds: Int64s
    """Text i has ngrams[bounds[i]] .. ngrams[bounds[i + 1] - 1], in order."""

    ends: Int64s
    """For each of `ngrams`, the word of its text behind it; those before begin one word later each,
    the first with the text."""

    examples: dict[tuple[str, str], int]
    """How many examples each split of a task has."""

    of_examples: dict[tuple[str, str], tuple[Int64s, Int64s]]
    """By split of a task: numbers of texts and the rows that have them, a pair each time."""


SplitFiles = dict[tuple[str, str], tuple[str, InputFile]]
"""By task and split the task's type and the file of the examples."""


def split_files(given: Mapping[str, StageInput], config: ContaminationConfig) -> SplitFiles:
    """The files of the splits that are looked for.

    Raises:
        ConfigError: a split is named that no task has.
        ArtifactCorruptError: an input is no artifact of build-examples.
    """
    found: SplitFiles = {}
    known: set[str] = set()
    for task, examples in given.items():
        kind = str(examples.statistics.get("kind", ""))
        if kind not in FIELDS:
            raise ArtifactCorruptError(
                f"{task} {examples.artifact_id}: expected examples of build-examples, whose "
                f"statistics say their kind, found {kind or 'none'}"
            )
        for entry in examples.files:
            split = entry.path.removesuffix(".arrow")
            known.add(split)
            wanted = split in config.splits if config.splits else split not in LEARNT_FROM
            if wanted:
                found[task, split] = (kind, InputFile.of(examples, entry))
    if unknown := [split for split in config.splits if split not in known]:
        raise ConfigError(
            f"splits: no task has a split {' or '.join(unknown)}. Expected some of "
            f"{', '.join(sorted(known))}"
        )
    return found


def read_texts(
    files: SplitFiles, config: ContaminationConfig
) -> tuple[Texts, list[tuple[int, UInt64s]]]:
    """All texts, and the runs that are looked for.

    Returns:
        texts: with the numbers of their runs.
        runs: by weight the hashes of that weight's runs, ascending; numbered in that order.
    """
    hasher = WordHasher()
    reading = _Reading(config)
    for (task, split), (kind, file) in files.items():
        for field in FIELDS[kind]:
            place = Place(task, split, field)
            for rows, texts in _columns(file, kind, field):
                reading.add(place, rows, texts, hasher)
        with open_shard(file, expected=EXAMPLES[kind]) as reader:
            reading.examples[task, split] = sum(
                reader.get_batch(n).num_rows for n in range(reader.num_record_batches)
            )
    return reading.numbered()


def _columns(file: InputFile, kind: str, field: str) -> Iterator[tuple[Int64s, pa.Array]]:
    """The texts of a column, and the row of each; a null is no text."""
    first = 0
    with open_shard(file, expected=EXAMPLES[kind], columns=(field,)) as reader:
        for number in range(reader.num_record_batches):
            for batch in pa.Table.from_batches([reader.get_batch(number)]).to_batches(_BATCH_ROWS):
                column = batch.column(field)
                rows = np.arange(first, first + len(column))
                first += len(column)
                if field == "continuations":
                    column, bounds = flat_lists(column)
                    rows = np.repeat(rows, np.diff(bounds))
                elif field == "words":
                    column = pa.array([" ".join(words) for words in column.to_pylist()])
                there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
                yield rows[there], column.take(pa.array(there))


class _Reading:
    """Texts as they are read, each distinct one of a field once."""

    def __init__(self, config: ContaminationConfig) -> None:
        self._config = config
        self._full = config.ngram_size * WHOLE
        self._number_of: dict[bytes, int] = {}
        self._places: list[Place] = []
        self._place: list[int] = []
        self._row: list[int] = []
        self._used: list[int] = []
        self._words, self._counts, self._ends = list[Int64s](), list[Int64s](), list[Int64s]()
        self._keys: list[UInt64s] = []  # hashes
        self._weights: list[Int64s] = []  # of the runs
        self._pairs: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.examples: dict[tuple[str, str], int] = {}

    def add(self, place: Place, rows: Int64s, texts: pa.Array, hasher: WordHasher) -> None:
        if not self._places or self._places[-1] != place:
            self._places.append(place)
            self._number_of.clear()
        pairs = self._pairs.setdefault((place.task, place.split), [])
        new: list[int] = []
        for at, (row, text) in enumerate(zip(rows.tolist(), texts.to_pylist(), strict=True)):
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            number = self._number_of.setdefault(digest, len(self._row))
            if number == len(self._row):
                new.append(at)
                self._place.append(len(self._places) - 1)
                self._row.append(row)
                self._used.append(0)
            if not pairs or pairs[-1] != (number, row):
                self._used[number] += 1
            pairs.append((number, row))
        self._add_runs(hasher.words(texts.take(pa.array(new, pa.int64()))))

    def _add_runs(self, words: Words) -> None:
        """The runs of new texts: those of full weight, or the one of a whole short text."""
        stream = Stream(words)
        weights = np.diff(offsets_of(words.weights)[words.offsets])
        short = (weights < self._full) & (weights >= self._config.min_text_words * WHOLE)
        full, whole = stream.all(self._full), stream.whole(np.flatnonzero(short))
        starts = np.r_[full.starts, whole.starts]
        order = np.argsort(starts, kind="stable")
        starts = starts[order]
        text = np.searchsorted(words.offsets, starts, side="right") - 1
        self._counts.append(np.bincount(text, minlength=len(weights)))
        self._keys.append(np.r_[full.values, whole.values][order])
        self._weights.append(np.where(short[text], weights[text], self._full))
        self._ends.append(np.r_[full.ends, whole.ends][order] - words.offsets[text])
        self._words.append(np.diff(words.offsets))

    def numbered(self) -> tuple[Texts, list[tuple[int, UInt64s]]]:
        keys = np.concatenate([np.empty(0, np.uint64), *self._keys])
        weights = joined(self._weights)
        numbers, first = np.empty(len(keys), np.int64), 0
        runs: list[tuple[int, UInt64s]] = []
        for weight in np.unique(weights).tolist():
            at = np.flatnonzero(weights == weight)
            distinct, numbers_of = np.unique(keys[at], return_inverse=True)
            numbers[at] = numbers_of + first
            first += len(distinct)
            runs.append((weight, distinct))
        pairs = {
            split: tuple(np.array(found, np.int64).reshape(-1, 2).T)
            for split, found in self._pairs.items()
        }
        texts = Texts(
            places=self._places,
            place=np.array(self._place, np.int64),
            row=np.array(self._row, np.int64),
            used=np.array(self._used, np.int64),
            words=joined(self._words),
            ngrams=numbers,
            bounds=offsets_of(joined(self._counts)),
            ends=joined(self._ends),
            examples=self.examples,
            of_examples=pairs,  # type: ignore[arg-type]
        )
        return texts, runs
