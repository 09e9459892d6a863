"""Tagging: a tag for each word of a document (paper 5.3, CoNLL-2003 NER).

A word is tagged at its first word piece; its other pieces have no label. There is no CRF: each
word has the tag of its largest output. Words are given to the tokenizer one by one, so that its
pieces are those of the words of the file.

Paper 5.3 gives the model "the maximal document context provided by the data". A document that fits
into one sequence is one window. A longer one is read in windows that overlap by about half, and
each word is tagged once, in the window that shows most around it.

Letters for shapes: P word pieces of a document, W its words that have pieces, K windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.task_types.features import IGNORED, Features
from model.task_types.prediction_files import text_lines
from model.task_types.task_type import Encoding, Prediction, TaskType, most_frequent
from model.task_types.texts import check_outputs
from model.tasks.conll import split_line
from model.tasks.entities import OUTSIDE, EntityCounts, entities_of, iob2, is_tag
from model.tasks.task import Task
from pipelines.arrays import Float32s, Int64s, joined, offsets_of
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError
from schemas.finetune_configs import FeaturesConfig

_MARKS = 2  # [CLS] and [SEP]


class Tagging(TaskType):
    """A unit is a window in which at least one word is tagged."""

    answer_column = "tags"
    is_softmax = True
    architecture = "BertForTokenClassification"

    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """Windows `[CLS] pieces [SEP]` of documents, or of sentences without `document_context`.

        Each word that has pieces is in `positions` of exactly one window, that with most context.
        A word of a tag that is no label has none. Training sees the windows of prediction.

        `counters`: `documents`, `words`, `words-without-pieces` (never tagged, O in predictions),
        `words-cut` (of more pieces than a window holds), `words-unknown-tag`, `windows`, and
        `pieces` and `pieces-again` (shown in a second window).
        """
        del is_training
        counters: Counter[str] = Counter()
        tokenizer = encoding.tokenizer
        units = list(_units(examples, tokenizer, config=encoding.config, counters=counters))
        sequences = [_sequence(unit, tokenizer) for unit in units]
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        counts = np.array([len(unit.words) for unit in units], np.int64)
        return Features(
            kind="tagging",
            offsets=offsets_of(lengths),
            input_ids=joined(sequences),
            b_starts=lengths,
            rows=np.array([unit.row for unit in units], np.int64),
            labels=_labels(examples, units, labels=encoding.labels, counters=counters),
            position_offsets=offsets_of(counts),
            positions=joined([unit.positions for unit in units]),
            counters=dict(sorted(counters.items())),
        )

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """The tags of each document, one a word. Words without pieces are O."""
        labels = encoding.labels
        units = list(
            _units(examples, encoding.tokenizer, config=encoding.config, counters=Counter())
        )
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
        """Entity F1, precision and recall as conlleval counts them, sentence by sentence.

        Further keys: `word-accuracy`, and `entity-f1:TYPE` of each type. Documents without known
        tags are skipped; {} if no tags are known.
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
        """The most frequent `tag`, which stands for each word."""
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
        """CoNLL columns with the word first and the tag last."""
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
        """CoNLL columns."""
        del task, threshold
        return {f"tags-{split}.conll": _conll(examples, predictions)}


# Windows


class _Unit(NamedTuple):
    """A window in which at least one word is tagged.

    Attributes:
        row: of the examples' table.
        ids: int64: its pieces, without [CLS] and [SEP].
        words: int64: the document's words that are tagged in it, ascending.
        positions: int64: their positions in the sequence, [CLS] being place 0.
    """

    row: int
    ids: Int64s
    words: Int64s
    positions: Int64s


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
            continue  # only next to words of hundreds of pieces
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


UNBOUNDED = np.iinfo(np.int64).max
"""Context on a side where nothing of the document is cut off."""


class Windows(NamedTuple):
    """Return the words of each window, and those that are tagged in it.

    Attributes:
        first: int64 (K,): first word of each window, ascending.
        last: int64 (K,): one past its last word.
        home: int64 (W,): number of the window in which each word is tagged.
    """

    first: Int64s
    last: Int64s
    home: Int64s


def plan_windows(starts: Int64s, *, size: int) -> Windows:
    """Cut a document into windows of whole words.

    Windows start at most half a window apart, evenly spread; the last one reaches as far back as it
    can. So every word has a quarter of a window, or the document's end, on both sides, but for
    words near very long ones.

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
    """One past the last word that fits into a window that begins with this one."""
    return int(np.searchsorted(starts, starts[begin] + size, side="right")) - 1


def _homes(starts: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """The window of each word with most context; of several, the first.

    Context is the fewer of the pieces before and behind the word's first piece; on a side where
    the window reaches the document's end, nothing is lacking.
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


def _read_columns(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """CoNLL columns: the words have to be those of the examples, in their order.

    They may have `_` for the spaces inside them, as our own such files have.
    """
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
    """Tags of one scheme or another, sentence by sentence, as conlleval takes them."""
    converted: list[str] = []
    place = 0
    for length in lengths:
        converted += iob2(entities_of(tags[place : place + length]), words=length)
        place += length
    return converted


def _conll(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> bytes:
    """`word gold predicted`, as conlleval reads it; `word predicted` where no gold is known.

    Documents are marked where any has several sentences. A space inside a word is written `_`,
    since columns are cut at spaces.
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
