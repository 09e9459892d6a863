"""Tagging: a tag for each word of a document (paper 5.3, CoNLL-2003 NER).

A word is tagged at its first word piece; its other pieces have no label. There is no CRF: each word
has the tag of its largest output. Each word is tokenized separately.

Paper 5.3 gives the model "the maximal document context provided by the data". A document that fits
into one sequence is one window. A longer one has windows that overlap by about half, and each word
is tagged once, in the window that has most context around it.

Letters for shapes: P word pieces of a document, W its words that have pieces, K windows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.tasks.features import IGNORED, Encoding, Features, check_outputs
from model.tasks.ner import OUTSIDE, entities_of, is_tag
from model.tasks.prediction_files import Prediction
from model.tasks.row_terms import RowTerms, f1_terms
from model.tasks.task import Task
from pipelines.arrays import Float32s, Int64s, joined, offsets_of, ranges
from schemas.errors import PredictionsError

_MARKS = 2  # [CLS] and [SEP]


def build_features(examples: pa.Table, encoding: Encoding, *, is_training: bool) -> Features:
    """Return windows `[CLS] pieces [SEP]` of documents; sentences without `document_context`.

    Each word that has pieces is in `positions` of exactly one window, the one with most
    context. Training has the windows of prediction.

    `counters`: `documents`, `words`, `words-without-pieces` (O in predictions), `words-cut`
    (longer than a window), `words-unknown-tag` (no label), `windows`, `pieces` and
    `pieces-again` (in a second window).
    """
    del is_training
    windows, counters = _find_windows(examples, encoding)
    lengths = np.array([len(window.ids) for window in windows], np.int64)
    words = joined([window.words for window in windows])
    labels = _labels(examples, encoding.labels, counters)
    return Features(
        kind="tagging",
        offsets=offsets_of(lengths),
        input_ids=joined([window.ids for window in windows]),
        b_starts=lengths,
        rows=np.array([window.row for window in windows], np.int64),
        labels=None if labels is None else labels[words],
        position_offsets=offsets_of([len(window.words) for window in windows]),
        positions=joined([window.positions for window in windows]),
        words=words,
        counters=dict(sorted(counters.items())),
    )


def decode(
    examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
) -> list[dict[str, Any]]:
    """Return the tags of each document, one per word. Words without pieces are O."""
    labels = np.array([*encoding.labels], dtype=object)
    check_outputs(outputs, task=encoding.task)
    starts = offsets_of(pc.list_value_length(examples["words"]).to_numpy())
    tags = np.full(starts[-1], OUTSIDE, dtype=object)
    if len(outputs):
        tags[features.words] = labels[outputs.argmax(axis=1)]
    bounds = itertools.pairwise(starts.tolist())
    return [
        {"id": name, "tags": tags[start:end].tolist()}
        for name, (start, end) in zip(examples["id"].to_pylist(), bounds, strict=True)
    ]


# Scores


@dataclass
class EntityCounts:
    """Counts of conlleval, accumulated by sentence."""

    gold: Counter[str] = field(default_factory=Counter)
    """True entities by type."""

    predicted: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)
    """Predicted entities with the first word, last word and type of a true one."""

    words: int = 0
    equal_words: int = 0
    """Words with exactly the true tag."""

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """Count one sentence.

        Raises:
            ValueError: The numbers of words differ, or a text is not a tag.
        """
        self.words += len(gold)
        self.equal_words += sum(one == other for one, other in zip(gold, predicted, strict=True))
        golds, predictions = set(entities_of(gold)), set(entities_of(predicted))
        self.gold.update(entity.type for entity in golds)
        self.predicted.update(entity.type for entity in predictions)
        self.correct.update(entity.type for entity in golds & predictions)

    def metrics(self) -> dict[str, float]:
        """Return scores from 0 to 1, 0 if undefined: micro-averaged `entity-f1`, `-precision` and
        `-recall`, `word-accuracy`, and the sorted `entity-f1:TYPE` of each type."""
        gold, predicted = self.gold.total(), self.predicted.total()
        correct = self.correct.total()
        scores = {
            "entity-f1": _share(2 * correct, gold + predicted),
            "entity-precision": _share(correct, predicted),
            "entity-recall": _share(correct, gold),
            "word-accuracy": _share(self.equal_words, self.words),
        }
        return scores | {
            f"entity-f1:{name}": _share(
                2 * self.correct[name], self.gold[name] + self.predicted[name]
            )
            for name in sorted({*self.gold, *self.predicted})
        }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def score(examples: pa.Table, predictions: Sequence[Prediction], *, task: Task) -> dict[str, float]:
    """Return entity F1, precision and recall as conlleval counts them, sentence by sentence.

    Further keys: `word-accuracy`, and `entity-f1:TYPE` of each type. Documents without known
    tags are skipped; {} if no tags are known.
    """
    counts = EntityCounts()
    for document in _tagged_sentences(examples, predictions, task=task):
        for sentence in document:
            counts.add(*sentence)
    return counts.metrics() if counts.words else {}


def row_terms(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
) -> dict[str, RowTerms]:
    """Return the entities of each document: right, predicted and true ones."""
    totals = []
    for document in _tagged_sentences(examples, predictions, task=task):
        counts = EntityCounts()
        for sentence in document:
            counts.add(*sentence)
        totals.append([c.total() for c in (counts.correct, counts.predicted, counts.gold)])
    return {"entity-f1": f1_terms(*zip(*totals, strict=True))}


def find_majority_tag(examples: pa.Table, *, task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """Return the most frequent `tag`, the prediction of each word."""
    del task, labels
    counts = Counter(examples["tags"].combine_chunks().flatten().to_pylist())
    return {"tag": min(counts, key=lambda tag: (-counts[tag], tag))}


def repeat_tag(examples: pa.Table, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one tag as the prediction of each word."""
    words = pc.list_value_length(examples["words"]).to_pylist()
    return [
        {"id": name, "tags": [answer["tag"]] * count}
        for name, count in zip(examples["id"].to_pylist(), words, strict=True)
    ]


def official_files(
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


def _tagged_sentences(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
) -> Iterator[list[tuple[list[str], list[str]]]]:
    """Yield the true and the predicted tags of each sentence of each document.

    Documents without known tags have no sentences.

    Raises:
        PredictionsError: A prediction is invalid.
    """
    columns = (examples[name].to_pylist() for name in ("id", "sentence_lengths", "tags"))
    rows = zip(*columns, strict=True)
    for (name, lengths, gold), prediction in zip(rows, predictions, strict=True):
        if gold is None:
            yield []
            continue
        tags = prediction.get("tags")
        if not isinstance(tags, list) or len(tags) != len(gold):
            shown = len(tags) if isinstance(tags, list) else f"{tags!r:.60}"
            raise PredictionsError(
                f"{task.name}, {name}: expected {len(gold)} tags, one a word, found {shown}"
            )
        for tag in tags:
            if not (isinstance(tag, str) and is_tag(tag)):
                raise PredictionsError(
                    f"{task.name}, {name}: expected O or a tag such as B-LOC, found {tag!r:.60}"
                )
        ends = offsets_of(lengths).tolist()
        yield [(gold[start:end], tags[start:end]) for start, end in itertools.pairwise(ends)]


# Windows


class _Window(NamedTuple):
    """A window in which at least one word is tagged."""

    row: int
    """Row of the examples' table."""

    ids: Int64s
    """Token ids with [CLS] and [SEP]."""

    words: Int64s
    """Words that are tagged in it, ascending, counted in the whole table."""

    positions: Int64s
    """Their positions in the sequence; [CLS] has position 0."""


def _find_windows(examples: pa.Table, encoding: Encoding) -> tuple[list[_Window], dict[str, int]]:
    """Return the windows of all documents, in order, and their counters."""
    tokenizer, config = encoding.tokenizer, encoding.config
    size = config.max_seq_length - _MARKS
    flat, counts = tokenizer.encode_sentences(examples["words"].combine_chunks().flatten())
    full = counts.astype(np.int64)
    lengths = np.minimum(full, size)
    pieces = flat[ranges(offsets_of(full)[:-1], lengths)].astype(np.int64)
    piece_starts = offsets_of(lengths)
    windows: list[_Window] = []
    word = 0
    for row, sentences in enumerate(examples["sentence_lengths"].to_pylist()):
        for length in [sum(sentences)] if config.document_context else sentences:
            starts = piece_starts[word : word + length + 1]
            words = np.flatnonzero(np.diff(starts))
            starts = np.append(starts[words], starts[-1])
            plan = plan_windows(starts - starts[0], size=size)
            for number, (first, last) in enumerate(zip(plan.first, plan.last, strict=True)):
                tagged = np.flatnonzero(plan.home == number)
                if len(tagged):  # not next to words of hundreds of pieces
                    own = pieces[starts[first] : starts[last]]
                    ids = np.concatenate([[tokenizer.cls_id], own, [tokenizer.sep_id]])
                    positions = starts[tagged] - starts[first] + 1
                    windows.append(_Window(row, ids, words[tagged] + word, positions))
            word += length
    return windows, {
        "documents": len(examples),
        "words": len(lengths),
        "words-without-pieces": int((lengths == 0).sum()),
        "words-cut": int((full > lengths).sum()),
        "windows": len(windows),
        "pieces": len(pieces),
        "pieces-again": sum(len(window.ids) - _MARKS for window in windows) - len(pieces),
    }


def _labels(examples: pa.Table, labels: Sequence[str], counters: dict[str, int]) -> Int64s | None:
    """Return the number of each word's tag; None if no document has tags."""
    tags = examples["tags"].combine_chunks()
    if tags.null_count == len(tags):
        return None
    lengths = pc.list_value_length(examples["words"]).to_numpy()
    is_known = np.repeat(tags.is_valid().to_numpy(zero_copy_only=False), lengths)
    values = tags.flatten()
    own = pc.fill_null(pc.index_in(values, pa.array(labels, values.type)), IGNORED)
    numbers = np.full(len(is_known), IGNORED, np.int64)
    numbers[is_known] = own.to_numpy()
    counters["words-unknown-tag"] = pc.equal(own, IGNORED).sum().as_py() or 0
    return numbers


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
    best, home = np.full(words, -1, np.int64), np.zeros(words, np.int64)
    for number, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        places = starts[begin:end]
        before = places - starts[begin] if begin else UNBOUNDED
        behind = starts[end] - 1 - places if end < words else UNBOUNDED
        context = np.broadcast_to(np.minimum(before, behind), places.shape)
        better = context > best[begin:end]
        best[begin:end][better] = context[better]
        home[begin:end][better] = number
    return home


# Files


def _conll(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> bytes:
    """Return lines `word gold predicted` for conlleval, or `word predicted` without gold tags.

    Documents are marked if any has several sentences. `_` replaces spaces inside words.
    """
    lines = []
    rows = examples.to_pylist()
    has_documents = any(len(document["sentence_lengths"]) > 1 for document in rows)
    for document, prediction in zip(rows, predictions, strict=True):
        columns = [["_".join(word.split()) for word in document["words"]], prediction["tags"]]
        if document["tags"] is not None:
            columns.insert(1, document["tags"])
        if has_documents:
            lines.append(" ".join(["-DOCSTART-", *"O" * (len(columns) - 1)]) + "\n")
        tokens = map(" ".join, zip(*columns, strict=True))
        for length in document["sentence_lengths"]:
            lines += [*itertools.islice(tokens, length), ""]
    return "".join(f"{line}\n" for line in lines).encode()
