"""Tagging: a tag for each word of a document (paper 5.3, CoNLL-2003 NER).

A word is tagged at its first word piece; its other pieces have no label. There is no CRF: each word
has the tag of its largest output. Each word is tokenized separately.

Paper 5.3 gives the model "the maximal document context provided by the data". A document that fits
into one sequence is one window. A longer one has windows that overlap by about half, and each word
is tagged once, in the window that has most context around it.

Letters for shapes: P word pieces of a document, W its words that have pieces, K windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.task_types.features import IGNORED, Features
from model.task_types.prediction_files import check_ids, text_lines
from model.task_types.task_type import (
    Encoding,
    Prediction,
    TaskType,
    check_outputs,
    most_frequent,
)
from model.tasks.column_files import split_line
from model.tasks.entities import OUTSIDE, EntityCounts, entities_of, iob2, is_tag
from model.tasks.task import Task
from pipelines.arrays import Float32s, Int64s, joined, offsets_of, ranges
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError
from schemas.finetune_configs import FeaturesConfig

_MARKS = 2  # [CLS] and [SEP]


class TokenClassification(TaskType):
    """A unit is a window in which at least one word is tagged."""

    answer_column = "tags"
    is_softmax = True
    architecture = "BertForTokenClassification"

    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """Return windows `[CLS] pieces [SEP]` of documents; sentences without `document_context`.

        Each word that has pieces is in `positions` of exactly one window, the one with most
        context. Training has the windows of prediction.

        `counters`: `documents`, `words`, `words-without-pieces` (O in predictions), `words-cut`
        (longer than a window), `words-unknown-tag` (no label), `windows`, `pieces` and
        `pieces-again` (in a second window).
        """
        del is_training
        tokenizer = encoding.tokenizer
        pieces = _encode_words(examples, tokenizer, config=encoding.config)
        units = list(_units(examples, pieces, config=encoding.config))
        marks = [np.array([mark], np.int64) for mark in (tokenizer.cls_id, tokenizer.sep_id)]
        sequences = [np.concatenate([marks[0], unit.ids, marks[1]]) for unit in units]
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        counters = {
            "documents": len(examples),
            "words": len(pieces.lengths),
            "words-without-pieces": int((pieces.lengths == 0).sum()),
            "words-cut": pieces.cut_words,
            "windows": len(units),
            "pieces": len(pieces.ids),
            "pieces-again": sum(len(unit.ids) for unit in units) - len(pieces.ids),
        }
        labels = _labels(examples, units, labels=encoding.labels, counters=counters)
        return Features(
            kind="tagging",
            offsets=offsets_of(lengths),
            input_ids=joined(sequences),
            b_starts=lengths,
            rows=np.array([unit.row for unit in units], np.int64),
            labels=labels,
            position_offsets=offsets_of([len(unit.words) for unit in units]),
            positions=joined([unit.positions for unit in units]),
            counters=dict(sorted(counters.items())),
        )

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """Return the tags of each document, one per word. Words without pieces are O."""
        labels = encoding.labels
        pieces = _encode_words(examples, encoding.tokenizer, config=encoding.config)
        units = list(_units(examples, pieces, config=encoding.config))
        places = joined([unit.positions for unit in units])
        if features.positions is None or not np.array_equal(places, features.positions):
            raise PredictionsError(
                f"expected features with the {len(places):,} tagged words of these examples, found "
                "others: give decode the examples, tokenizer and configuration the features are "
                "from"
            )
        check_outputs(outputs, (len(places), len(labels)), task=encoding.task)
        sizes = [len(words) for words in examples["words"].to_pylist()]
        starts = offsets_of(sizes)
        tags = np.full(int(starts[-1]), OUTSIDE, dtype=object)
        if units:
            where = np.concatenate([starts[unit.row] + unit.words for unit in units])
            tags[where] = np.array([*labels], dtype=object)[outputs.argmax(axis=1)]
        bounds = starts.tolist()
        return [
            {"id": name, "tags": tags[bounds[row] : bounds[row + 1]].tolist()}
            for row, name in enumerate(examples["id"].to_pylist())
        ]

    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """Return entity F1, precision and recall as conlleval counts them, sentence by sentence.

        Further keys: `word-accuracy`, and `entity-f1:TYPE` of each type. Documents without known
        tags are skipped; {} if no tags are known.
        """
        check_ids(predictions, examples, where=task.name)
        counts = EntityCounts()
        columns = (examples[name].to_pylist() for name in ("id", "sentence_lengths", "tags"))
        for (name, lengths, gold), prediction in zip(
            zip(*columns, strict=True), predictions, strict=True
        ):
            if gold is None:
                continue
            given = prediction.get("tags")
            if not isinstance(given, list) or len(given) != len(gold):
                found = len(given) if isinstance(given, list) else f"{given!r:.60}"
                raise PredictionsError(
                    f"{task.name}, {name}: expected {len(gold)} tags, one a word, found {found}"
                )
            bad = next(
                (tag for tag in given if not (isinstance(tag, str) and is_tag(tag))), OUTSIDE
            )
            if bad != OUTSIDE:
                raise PredictionsError(
                    f"{task.name}, {name}: expected O or a tag such as B-LOC, found {bad!r:.60}"
                )
            end = 0
            for length in lengths:
                start, end = end, end + length
                counts.add(gold[start:end], given[start:end])
        return counts.metrics() if counts.words else {}

    def list_answers(self, row: Mapping[str, Any]) -> list[str]:
        """Return the tags of all words."""
        return list(row["tags"])

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the most frequent `tag`, the prediction of each word."""
        del labels
        tags = examples["tags"].combine_chunks().flatten().to_pylist()
        return {"tag": most_frequent(tags, task=task)}

    def majority_predictions(
        self, examples: pa.Table, answer: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the majority's predictions, one per example, in order."""
        words = pc.list_value_length(examples["words"]).to_pylist()
        return [
            {"id": name, "tags": [answer["tag"]] * count}
            for name, count in zip(examples["id"].to_pylist(), words, strict=True)
        ]

    def read_official(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """Read CoNLL columns with the word first and the tag last."""
        return _read_columns(url, examples, task=task)

    def official_files(
        self,
        examples: pa.Table,
        predictions: Sequence[Prediction],
        *,
        task: Task,
        split: str,
        threshold: float,
    ) -> dict[str, bytes]:
        """Return CoNLL columns."""
        del task, threshold
        return {f"tags-{split}.conll": _conll(examples, predictions)}


# Windows


class _Unit(NamedTuple):
    """A window in which at least one word is tagged."""

    row: int
    """Row of the examples' table."""

    ids: Int64s
    """Pieces, without [CLS] and [SEP]."""

    words: Int64s
    """Words of the document that are tagged in it, ascending."""

    positions: Int64s
    """Their positions in the sequence; [CLS] has position 0."""


class _Pieces(NamedTuple):
    """Pieces of all words of all documents, end to end."""

    ids: Int64s
    lengths: Int64s
    """Number of pieces of each word, at most those of a window."""

    cut_words: int
    """Number of words that are longer than a window."""


def _encode_words(
    examples: pa.Table, tokenizer: WordPieceTokenizer, *, config: FeaturesConfig
) -> _Pieces:
    ids, counts = tokenizer.encode_sentences(examples["words"].combine_chunks().flatten())
    full = counts.astype(np.int64)
    lengths = np.minimum(full, config.max_seq_length - _MARKS)
    kept = ids[ranges(offsets_of(full)[:-1], lengths)].astype(np.int64)
    return _Pieces(kept, lengths, int((full > lengths).sum()))


def _units(examples: pa.Table, pieces: _Pieces, *, config: FeaturesConfig) -> Iterator[_Unit]:
    """Yield the windows of all documents, in order."""
    piece_starts = offsets_of(pieces.lengths)
    size = config.max_seq_length - _MARKS
    word = 0
    for row, lengths in enumerate(examples["sentence_lengths"].to_pylist()):
        first_word = word
        for length in [sum(lengths)] if config.document_context else lengths:
            starts = piece_starts[word : word + length + 1]
            words = np.flatnonzero(np.diff(starts))
            starts = np.append(starts[words], starts[-1])
            plan = plan_windows(starts - starts[0], size=size)
            for number, (first, last) in enumerate(zip(plan.first, plan.last, strict=True)):
                here = np.flatnonzero(plan.home == number)
                if len(here):  # not next to words of hundreds of pieces
                    ids = pieces.ids[starts[first] : starts[last]]
                    positions = starts[here] - starts[first] + 1
                    yield _Unit(row, ids, words[here] + word - first_word, positions)
            word += length


def _labels(
    examples: pa.Table, units: Sequence[_Unit], *, labels: Sequence[str], counters: dict[str, int]
) -> Int64s | None:
    """Return the number of each tagged word's tag; None if no document has tags."""
    known = examples["tags"].to_pylist()
    if all(tags is None for tags in known):
        return None
    numbers = {tag: number for number, tag in enumerate(labels)}
    by_row = [
        None if tags is None else np.array([numbers.get(tag, IGNORED) for tag in tags], np.int64)
        for tags in known
    ]
    counters["words-unknown-tag"] = sum(
        int((row == IGNORED).sum()) for row in by_row if row is not None
    )
    found: list[Int64s] = []
    for unit in units:
        row = by_row[unit.row]
        found.append(np.full(len(unit.words), IGNORED) if row is None else row[unit.words])
    return joined(found)


UNBOUNDED = np.iinfo(np.int64).max
"""Context on a side where the window reaches the end of the document."""


class Windows(NamedTuple):
    """Windows of a document."""

    first: Int64s
    """First word of each window, (K,), ascending."""

    last: Int64s
    """One past its last word, (K,)."""

    home: Int64s
    """Number of the window in which each word is tagged, (W,)."""


def plan_windows(starts: Int64s, *, size: int) -> Windows:
    """Split a document into windows of whole words.

    Windows start at most half a window apart, evenly spread; the last one starts as early as it
    can. So every word has a quarter of a window, or the document's end, on both sides, except next
    to very long words.

    Args:
        starts: int64 (W + 1,): word i has the pieces starts[i] .. starts[i + 1] - 1, at least one
            and at most `size`.
        size: pieces of a window.
    """
    words, pieces = len(starts) - 1, int(starts[-1])
    if pieces <= size:
        whole = np.zeros(min(words, 1), np.int64)
        return Windows(whole, whole + words, np.zeros(words, np.int64))
    rest = pieces - size
    step = -(-rest // -(-rest // max(1, size // 2)))  # as many windows as half steps, no wider
    first, last = [0], [_fitting(starts, 0, size=size)]
    while last[-1] < words:
        target = int(np.searchsorted(starts, starts[first[-1]] + step, side="right")) - 1
        begin = min(max(target, first[-1] + 1), last[-1])
        if pieces - starts[begin] <= size:
            begin = int(np.searchsorted(starts, pieces - size))
        first.append(begin)
        last.append(_fitting(starts, begin, size=size))
    begins, ends = np.array(first), np.array(last)
    return Windows(begins, ends, _homes(starts, begins, ends))


def _fitting(starts: Int64s, begin: int, *, size: int) -> int:
    """Return one past the last word of a window that begins with this word."""
    return int(np.searchsorted(starts, starts[begin] + size, side="right")) - 1


def _homes(starts: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Return the window in which each word has most context, the first of equal ones.

    The context is the smaller number of pieces before and after the word's first piece.
    """
    words = len(starts) - 1
    best = np.full(words, -1, np.int64)
    home = np.zeros(words, np.int64)
    for number, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        places = starts[begin:end]
        before = places - starts[begin] if begin else np.full(len(places), UNBOUNDED)
        behind = starts[end] - 1 - places if end < words else np.full(len(places), UNBOUNDED)
        context = np.minimum(before, behind)
        better = np.flatnonzero(context > best[begin:end]) + begin
        best[better] = context[better - begin]
        home[better] = number
    return home


# Files


def _read_columns(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """Read CoNLL columns with the words of the examples; `_` may replace spaces inside words."""
    lines = [
        (number, line, split_line(line))
        for number, line in enumerate(text_lines(url), start=1)
        if line.strip(" \t\r") and not line.startswith("-DOCSTART-")
    ]
    may_comment = task.layout.allows_comments
    tokens = [
        (number, fields)
        for number, line, fields in lines
        if not (may_comment and line.startswith("# ") and not is_tag(fields[-1]))
    ]
    words = sum(len(row) for row in examples.column("words").to_pylist())
    if len(tokens) != words:
        raise PredictionsError(
            f"{url}: {len(tokens):,} words with tags, the examples have {words:,}: expected the "
            "file that they were made of, tagged"
        )
    found, place = [], 0
    for document in examples.select(["id", "sentence_lengths", "words"]).to_pylist():
        tags: list[str] = []
        own = tokens[place : place + len(document["words"])]
        for (number, columns), word in zip(own, document["words"], strict=True):
            if len(columns) < 2 or columns[0] not in (word, "_".join(word.split())):
                raise PredictionsError(
                    f"{url}, line {number}: expected {word!r} and its tag, found "
                    f"{' '.join(columns)!r}"
                )
            if not is_tag(columns[-1]):
                raise PredictionsError(
                    f"{url}, line {number}: {columns[-1]!r:.60} is no tag: expected O or such as "
                    "B-LOC"
                )
            tags.append(columns[-1])
        found.append({"id": document["id"], "tags": _iob2(tags, document["sentence_lengths"])})
        place += len(own)
    return found


def _iob2(tags: list[str], lengths: list[int]) -> list[str]:
    """Return the IOB2 tags of a document with tags of any scheme."""
    converted: list[str] = []
    place = 0
    for length in lengths:
        converted += iob2(entities_of(tags[place : place + length]), words=length)
        place += length
    return converted


def _conll(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> bytes:
    """Return lines `word gold predicted` for conlleval, or `word predicted` without gold tags.

    Documents are marked if any has several sentences. `_` replaces spaces inside words.
    """
    lines = []
    rows = examples.to_pylist()
    has_documents = any(len(document["sentence_lengths"]) > 1 for document in rows)
    for document, said in zip(rows, predictions, strict=True):
        if has_documents:
            lines.append("-DOCSTART- O O\n" if document["tags"] is not None else "-DOCSTART- O\n")
        place = 0
        for length in document["sentence_lengths"]:
            for at in range(place, place + length):
                gold = [document["tags"][at]] if document["tags"] is not None else []
                word = "_".join(document["words"][at].split())
                lines.append(" ".join([word, *gold, said["tags"][at]]))
            lines.append("")
            place += length
    return "".join(f"{line}\n" for line in lines).encode()
