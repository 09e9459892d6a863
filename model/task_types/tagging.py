"""Tagging: a tag for each word of a document (paper 5.3, CoNLL-2003 NER).

A word is tagged at its first word piece; its other pieces have no label. There is no CRF: each
word has the tag of its largest output. Words are given to the tokenizer one by one, so that its
pieces are those of the words of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.task_types.features import IGNORED, Features
from model.task_types.tag_windows import plan_windows
from model.task_types.text import check_outputs
from model.tasks.entities import OUTSIDE, EntityCounts, is_tag
from model.tasks.task import Task
from pipelines.arrays import Int64s, joined, offsets_of
from pipelines.wordpiece.ids import WordPieceTokenizer
from schemas.errors import PredictionsError
from schemas.task_configs import FeaturesConfig

_MARKS = 2  # [CLS] and [SEP]


class _Unit(NamedTuple):
    """A window in which at least one word is tagged.

    Attributes:
        row: of the examples' table.
        ids: int64: its pieces, without [CLS] and [SEP].
        words: int64: the document's words that are tagged in it, ascending.
        positions: int64: their places in the sequence, [CLS] being place 0.
    """

    row: int
    ids: Int64s
    words: Int64s
    positions: Int64s


def build_features(
    examples: pa.Table,
    tokenizer: WordPieceTokenizer,
    *,
    task: Task,
    labels: Sequence[str],
    config: FeaturesConfig,
    is_training: bool,
) -> Features:
    """Windows `[CLS] pieces [SEP]` of documents, or of sentences without `document_context`.

    Each word that has pieces is in `positions` of exactly one window, that with most context.

    Args:
        examples: a table of `schemas.arrow.TAG_EXAMPLES`.
        tokenizer: cased for NER, as in the paper.
        task: not used: what is done is the same for all tagging tasks.
        labels: the tags in the order of the outputs. A word of another tag has no label.
        config: `max_seq_length` and `document_context`.
        is_training: not used: training sees the same windows as prediction.

    Returns:
        Features whose unit is a window. `counters`: `documents`, `words`, `words-without-pieces`
        (never tagged, O in predictions), `words-cut` (of more pieces than a window holds),
        `words-unknown-tag`, `windows`, and `pieces` and `pieces-again` (shown in a second window).
    """
    del task, is_training
    counters: Counter[str] = Counter()
    units = list(_units(examples, tokenizer, config=config, counters=counters))
    sequences = [_sequence(unit, tokenizer) for unit in units]
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    counts = np.array([len(unit.words) for unit in units], np.int64)
    return Features(
        kind="tagging",
        offsets=offsets_of(lengths),
        input_ids=joined(sequences),
        b_starts=lengths,
        rows=np.array([unit.row for unit in units], np.int64),
        labels=_labels(examples, units, labels=labels, counters=counters),
        position_offsets=offsets_of(counts),
        positions=joined([unit.positions for unit in units]),
        counters=dict(sorted(counters.items())),
    )


def decode(
    examples: pa.Table,
    features: Features,
    outputs: npt.NDArray[np.float32],
    *,
    tokenizer: WordPieceTokenizer,
    task: Task,
    labels: Sequence[str],
    config: FeaturesConfig,
    threshold: float,
) -> list[dict[str, Any]]:
    """The tags of each document: `id` and `tags`, one a word. Words without pieces are O.

    Args:
        examples: those the features were made of.
        features: of `build_features`, with the same tokenizer and configuration.
        outputs: (positions, labels), in the order of the features.
        tokenizer: that of the features.
        task: named in errors.
        threshold: not used.
        labels: the tags in the order of the outputs.
        config: that of the features.

    Raises:
        PredictionsError: outputs, features and examples do not fit each other, or an output is not
            finite.
    """
    del threshold
    units = list(_units(examples, tokenizer, config=config, counters=Counter()))
    places = joined([unit.positions for unit in units])
    if features.positions is None or not np.array_equal(places, features.positions):
        raise PredictionsError(
            f"expected features with the {len(places):,} tagged words of these examples, found "
            "others: give decode the examples, tokenizer and configuration the features are from"
        )
    check_outputs(outputs, (len(places), len(labels)), task=task)
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
    examples: pa.Table, predictions: Sequence[Mapping[str, Any]], *, task: Task
) -> dict[str, float]:
    """Entity F1, precision and recall as conlleval counts them, sentence by sentence.

    Further keys: `word-accuracy`, and `entity-f1:TYPE` of each type. Documents whose tags are not
    known are left out; {} where none are known.

    Raises:
        PredictionsError: the predictions are not of these documents, or not one tag a word.
    """
    _check_rows(examples, predictions, task=task)
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
        bad = next((tag for tag in given if not (isinstance(tag, str) and is_tag(tag))), OUTSIDE)
        if bad != OUTSIDE:
            raise PredictionsError(
                f"{task.name}, {name}: expected O or a tag such as B-LOC, found {bad!r:.60}"
            )
        end = 0
        for length in lengths:
            start, end = end, end + length
            counts.add(gold[start:end], given[start:end])
    return counts.metrics() if counts.words else {}


def _check_rows(
    examples: pa.Table, predictions: Sequence[Mapping[str, Any]], *, task: Task
) -> None:
    names = examples["id"].to_pylist()
    given = [prediction["id"] for prediction in predictions]
    if names == given:
        return
    row = next(
        (at for at, (one, other) in enumerate(zip(names, given, strict=False)) if one != other),
        min(len(names), len(given)),
    )
    expected = repr(names[row]) if row < len(names) else "no more"
    found = repr(given[row]) if row < len(given) else "no more"
    raise PredictionsError(
        f"{task.name}: expected a prediction for each of {len(names):,} documents in order, found "
        f"{len(given):,}; number {row + 1} should be {expected} and is {found}"
    )


def _units(
    examples: pa.Table,
    tokenizer: WordPieceTokenizer,
    *,
    config: FeaturesConfig,
    counters: Counter[str],
) -> Iterator[_Unit]:
    """The windows of all documents, in order."""
    size = config.max_seq_length - _MARKS
    names = ("words", "sentence_lengths")
    words_of, lengths_of = (examples[name].combine_chunks() for name in names)
    ids, counts = tokenizer.encode_sentences(words_of.flatten())
    piece_starts = offsets_of(counts.astype(np.int64))
    word = 0
    for row, lengths in enumerate(lengths_of.to_pylist()):
        counters["documents"] += 1
        segments = [sum(lengths)] if config.document_context else lengths
        done = 0
        for length in segments:
            starts = piece_starts[word : word + length + 1]
            pieces = ids[starts[0] : starts[-1]].astype(np.int64)
            for unit in _segment_units(starts - starts[0], pieces, size=size, counters=counters):
                yield _Unit(row, unit.ids, unit.words + done, unit.positions)
            word += length
            done += length


def _segment_units(
    starts: Int64s, ids: Int64s, *, size: int, counters: Counter[str]
) -> Iterator[_Unit]:
    """The windows of words that are read together; row 0, words counted from the first of them."""
    counts = np.diff(starts)
    counters["words"] += len(counts)
    counters["words-without-pieces"] += int((counts == 0).sum())
    counters["words-cut"] += int((counts > size).sum())
    if (counts > size).any():
        places = np.arange(len(ids)) - np.repeat(starts[:-1], counts)  # in their word
        ids = ids[places < size]
        starts = offsets_of(np.minimum(counts, size))
    words = np.flatnonzero(counts)
    starts = np.append(starts[words], starts[-1])
    plan = plan_windows(starts, size=size)
    counters["pieces"] += len(ids)
    counters["pieces-again"] -= len(ids)
    for number, (first, last) in enumerate(zip(plan.first, plan.last, strict=True)):
        here = np.flatnonzero(plan.home == number)
        if not len(here):
            continue  # only beside words of hundreds of pieces
        counters["windows"] += 1
        counters["pieces-again"] += int(starts[last] - starts[first])
        positions = starts[here] - starts[first] + 1
        yield _Unit(0, ids[starts[first] : starts[last]], words[here], positions)


def _sequence(unit: _Unit, tokenizer: WordPieceTokenizer) -> Int64s:
    marks = [np.array([mark], np.int64) for mark in (tokenizer.cls_id, tokenizer.sep_id)]
    return np.concatenate([marks[0], unit.ids, marks[1]])


def _labels(
    examples: pa.Table, units: Sequence[_Unit], *, labels: Sequence[str], counters: Counter[str]
) -> Int64s | None:
    """The number of each tagged word's tag; None if no document has tags."""
    known = examples["tags"].to_pylist()
    if all(tags is None for tags in known):
        return None
    numbers = {tag: number for number, tag in enumerate(labels)}
    by_row = [
        None if tags is None else np.array([numbers.get(tag, IGNORED) for tag in tags], np.int64)
        for tags in known
    ]
    counters["words-unknown-tag"] += sum(
        int((row == IGNORED).sum()) for row in by_row if row is not None
    )
    found: list[Int64s] = []
    for unit in units:
        row = by_row[unit.row]
        found.append(np.full(len(unit.words), IGNORED) if row is None else row[unit.words])
    return joined(found)
