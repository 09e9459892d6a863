"""Classification, regression and choice: a label or a number for one text, a pair or continuations.

Paper 4.1 and 4.4. Long texts are truncated.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.task_types.features import Features
from model.task_types.metrics import METRICS, check_answered
from model.task_types.prediction_files import text_lines
from model.task_types.task_type import Encoding, Prediction, TaskType, check_outputs, no_answers
from model.tasks.task import Task
from pipelines.arrays import Float32s, Int64s, offsets_of, ranges
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError, TaskDataError


class _TextType(TaskType):
    """Base of the types whose units are sequences `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`."""

    is_pooled = True
    architecture = "BertForSequenceClassification"

    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """Return the sequences of all rows; each row is kept."""
        task = encoding.task
        first, second, has_second = self._texts(examples, encoding)
        known = _is_labeled(examples, self.answer_column, task=task, is_training=is_training)
        return _join_texts(
            first,
            second,
            has_second,
            encoding=encoding,
            per_unit=task.choices or 1,
            labels=self._labels(examples, encoding) if known else None,
        )

    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """Return the task's metrics (`model.task_types.metrics`). F1 is of the second label."""
        check_answered(examples, predictions, column=self.answer_column)
        gold = examples[self.answer_column].to_pylist()
        predicted = [prediction[self.answer_column] for prediction in predictions]
        for row, value in enumerate(predicted):
            if not self._is_valid(value, task):
                raise PredictionsError(
                    f"{task.name}: prediction {row} (id {predictions[row]['id']}) has the "
                    f"{self.answer_column} {value!r:.60}: expected {self._expected(task)}"
                )
        sides = self._numbers(gold, predicted, task)
        return {name: METRICS[name](*sides) for name in task.metrics}

    def read_official(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """Read GLUE's submission: a header, then index and prediction, in any order.

        The index is a row's id or its number from 0.
        """
        lines = text_lines(url)
        if not lines or lines[0] != "index\tprediction":
            found = repr(lines[0][:80]) if lines else "an empty file"
            expected = "index and prediction in the first line"
            raise PredictionsError(f"{url}: expected {expected}, got {found}")
        if len(lines) - 1 != len(examples):
            raise PredictionsError(
                f"{url}: {len(lines) - 1:,} predictions for {len(examples):,} examples: expected "
                "one for each"
            )
        labels = {submitted: label for label, submitted in task.submitted_labels.items()}
        found_answers: dict[str, Any] = {}
        for number, line in enumerate(lines[1:], start=2):
            index, tab, answer = line.partition("\t")
            where = f"{url}, line {number}"
            if not tab:
                raise PredictionsError(f"{where}: expected two columns, got {line!r:.80}")
            if index in found_answers:
                raise PredictionsError(f"{where}: the index {index!r:.80} is there a second time")
            value = self._parse(labels.get(answer, answer))
            if not self._is_valid(value, task):
                expected = self._expected(task)
                raise PredictionsError(f"{where}: expected {expected}, got {answer!r:.80}")
            found_answers[index] = value
        ids = examples.column("id").to_pylist()
        order = _order(list(found_answers), ids, url=url)
        return [
            {"id": name, self.answer_column: found_answers[index]}
            for index, name in zip(order, ids, strict=True)
        ]

    def _texts(
        self, examples: pa.Table, encoding: Encoding
    ) -> tuple[EncodedTexts, EncodedTexts, npt.NDArray[np.bool_]]:
        """Return texts A and B of each sequence, and whether it has a B."""
        second = examples["text_b"]
        return (
            encode_texts(examples["text_a"], encoding.tokenizer),
            encode_texts(pc.fill_null(second, ""), encoding.tokenizer),
            second.is_valid().to_numpy(),
        )

    @abstractmethod
    def _labels(self, examples: pa.Table, encoding: Encoding) -> Int64s | npt.NDArray[np.float64]:
        """Return the answers of the rows, as label numbers or values."""

    @abstractmethod
    def _is_valid(self, value: Any, task: Task) -> bool:
        """Return whether a value can be a prediction of the task."""

    @abstractmethod
    def _expected(self, task: Task) -> str:
        """Describe valid predictions, for messages."""

    def _parse(self, text: str) -> Any:
        """Return the prediction of a submission; None if it is not a number."""
        return text

    def _numbers(
        self, gold: list[Any], predicted: list[Any], task: Task
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return answers and predictions as numbers."""
        del task
        return np.array(gold), np.array(predicted)


class Classification(_TextType):
    """A label for a text or a pair of texts."""

    answer_column = "label"
    is_softmax = True
    problem = "single_label_classification"

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """Return the `label` of the largest output, the first of equal ones, and probabilities."""
        labels = encoding.labels
        check_outputs(outputs, (features.units, len(labels)), task=encoding.task)
        chosen = outputs.argmax(axis=1).tolist()
        rows = zip(examples["id"].to_pylist(), chosen, _softmax(outputs).tolist(), strict=True)
        return [
            {
                "id": name,
                "label": labels[best],
                "probabilities": dict(zip(labels, shares, strict=True)),
            }
            for name, best, shares in rows
        ]

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the most frequent label, and the shares of the training data as probabilities."""
        shares = _shares(examples, labels, task=task)
        return {"label": max(labels, key=lambda name: shares[name]), "probabilities": shares}

    def _labels(self, examples: pa.Table, encoding: Encoding) -> Int64s:
        labels = encoding.labels
        numbers = pc.index_in(examples["label"], value_set=pa.array(labels, pa.string()))
        is_unknown = numbers.is_null().to_numpy()
        expected = f"one of {', '.join(labels)}"
        _check_rows(examples, "label", is_unknown, expected=expected, task=encoding.task)
        known: Int64s = numbers.to_numpy().astype(np.int64)
        return known

    def _is_valid(self, value: Any, task: Task) -> bool:
        return isinstance(value, str) and (not task.labels or value in task.labels)

    def _expected(self, task: Task) -> str:
        return f"one of {', '.join(task.labels)}" if task.labels else "the name of a label"

    def _numbers(self, gold: list[str], predicted: list[str], task: Task) -> tuple[Int64s, Int64s]:
        labels = task.labels or sorted({*gold, *predicted})
        numbers = {name: number for number, name in enumerate(labels)}
        unknown = next((label for label in gold if label not in numbers), None)
        if unknown is not None:
            expected = self._expected(task)
            raise PredictionsError(f"{task.name}: the label {unknown!r}: expected {expected}")
        return np.array([numbers[label] for label in gold]), np.array(
            [numbers[label] for label in predicted]
        )


class Regression(_TextType):
    """A number for a text or a pair of texts."""

    answer_column = "score"
    outputs = 1
    problem = "regression"

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """Return the model's output as `score`, also beyond the scale of the labels."""
        check_outputs(outputs, (features.units,), task=encoding.task)
        pairs = zip(examples["id"].to_pylist(), outputs.astype(np.float64).tolist(), strict=True)
        return [{"id": name, "score": score} for name, score in pairs]

    def list_answers(self, row: Mapping[str, Any]) -> list[str]:
        """Return the score, rounded: scores of one constant model differ in the last digits."""
        return [f"{row['score']:.2f}"]

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the mean `score`."""
        del labels
        mean = pc.mean(examples["score"]).as_py()
        if mean is None:
            raise no_answers(task)
        return {"score": float(mean)}

    def _labels(self, examples: pa.Table, encoding: Encoding) -> npt.NDArray[np.float64]:
        scores: npt.NDArray[np.float64] = examples["score"].to_numpy()
        is_bad = ~np.isfinite(scores)
        _check_rows(examples, "score", is_bad, expected="a finite number", task=encoding.task)
        return scores

    def _is_valid(self, value: Any, task: Task) -> bool:
        del task
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) <= sys.float_info.max  # excludes NaN, too

    def _expected(self, task: Task) -> str:
        del task
        return "a finite number"

    def _parse(self, text: str) -> float | None:
        try:
            return float(text)
        except ValueError:
            return None


class MultipleChoice(_TextType):
    """The continuation that follows a context, of `Task.choices`; one sequence for each."""

    answer_column = "label"
    outputs = 1
    is_softmax = True
    architecture = "BertForMultipleChoice"

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """Return a number as `label`, and a list of probabilities."""
        check_outputs(outputs, (features.units, encoding.task.choices), task=encoding.task)
        chosen = outputs.argmax(axis=1).tolist()
        rows = zip(examples["id"].to_pylist(), chosen, _softmax(outputs).tolist(), strict=True)
        return [{"id": name, "label": best, "probabilities": shares} for name, best, shares in rows]

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the most frequent number, and the shares of the training data."""
        del labels
        shares = list(_shares(examples, range(task.choices), task=task).values())
        return {"label": shares.index(max(shares)), "probabilities": shares}

    def _texts(
        self, examples: pa.Table, encoding: Encoding
    ) -> tuple[EncodedTexts, EncodedTexts, npt.NDArray[np.bool_]]:
        task = encoding.task
        counts = pc.list_value_length(examples["continuations"]).to_numpy()
        expected = f"{task.choices} of them"
        is_other = counts != task.choices
        _check_rows(examples, "continuations", is_other, expected=expected, task=task)
        contexts = encode_texts(examples["context"], encoding.tokenizer)
        repeated = contexts._replace(
            starts=np.repeat(contexts.starts, task.choices),
            lengths=np.repeat(contexts.lengths, task.choices),
        )
        continuations = pc.list_flatten(examples["continuations"])
        second = encode_texts(continuations, encoding.tokenizer)
        return repeated, second, np.ones(len(second.lengths), np.bool_)

    def _labels(self, examples: pa.Table, encoding: Encoding) -> Int64s:
        labels: Int64s = examples["label"].to_numpy()
        is_outside = (labels < 0) | (labels >= encoding.task.choices)
        expected = self._expected(encoding.task)
        _check_rows(examples, "label", is_outside, expected=expected, task=encoding.task)
        return labels

    def _is_valid(self, value: Any, task: Task) -> bool:
        return type(value) is int and 0 <= value < task.choices

    def _expected(self, task: Task) -> str:
        return f"a number from 0 to {task.choices - 1}"

    def _parse(self, text: str) -> int | None:
        try:
            return int(text)
        except ValueError:
            return None


# Rows and their labels


def _check_rows(
    examples: pa.Table, column: str, is_bad: npt.NDArray[np.bool_], *, expected: str, task: Task
) -> None:
    """Raise an error for the first row with an invalid value."""
    if is_bad.any():
        row = int(is_bad.argmax())
        raise TaskDataError(
            f"{task.name}: row {row} (id {examples['id'][row]}) has the {column} "
            f"{examples[column][row].as_py()!r:.80}: expected {expected}. Correct the file"
        )


def _is_labeled(examples: pa.Table, column: str, *, task: Task, is_training: bool) -> bool:
    """Return whether rows have labels.

    Raises:
        TaskDataError: Some rows have no label, or none has one and they are to be trained on.
    """
    missing = examples[column].null_count
    if not missing:
        return True
    if missing == len(examples) and not is_training:
        return False
    row = pc.index(examples[column].is_null(), True).as_py()
    expected = "every row of the training data" if is_training else "every row of a split or none"
    raise TaskDataError(
        f"{task.name}: {missing} of {len(examples)} rows have no {column}, the first is row {row} "
        f"(id {examples['id'][row]}): expected a {column} in {expected}"
    )


def _shares(examples: pa.Table, labels: Sequence[Any], *, task: Task) -> dict[Any, float]:
    """Return the share of each label among labeled examples."""
    counts = Counter(name for name in examples["label"].to_pylist() if name is not None)
    if not counts:
        raise no_answers(task)
    return {label: counts[label] / counts.total() for label in labels}


def _softmax(outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the probabilities of each row, in float64, so that they add up to 1 in tables."""
    exact = outputs.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    np.exp(exact, out=exact)
    exact /= exact.sum(axis=1, keepdims=True)
    return exact


def _order(indexes: list[str], ids: list[str], *, url: str) -> list[str]:
    """Return the index of each example: its id, or its number from 0."""
    numbers = [str(number) for number in range(len(ids))]
    for names in (ids, numbers):
        if set(indexes) == set(names):
            return names
    known = set(ids)
    row = next(row for row, index in enumerate(indexes) if index not in known)
    raise PredictionsError(
        f"{url}, line {row + 2}: the index {indexes[row]!r:.80}: expected the ids of the examples, "
        f"or the numbers 0 to {len(ids) - 1}"
    )


# Sequences of one or two texts


class EncodedTexts(NamedTuple):
    """Token ids of texts; several texts can share their ids."""

    ids: npt.NDArray[Any]
    starts: Int64s
    """Index in `ids` at which each text begins, (N,)."""

    lengths: Int64s
    """(N,)."""


def encode_texts(texts: pa.Array | pa.ChunkedArray, tokenizer: WordPieceTokenizer) -> EncodedTexts:
    """Encode texts without nulls."""
    ids, counts = tokenizer.encode_sentences(texts)
    return EncodedTexts(ids, offsets_of(counts)[:-1], counts.astype(np.int64))


def _join_texts(
    first: EncodedTexts,
    second: EncodedTexts,
    has_second: npt.NDArray[np.bool_],
    *,
    encoding: Encoding,
    per_unit: int,
    labels: Int64s | npt.NDArray[np.float64] | None,
) -> Features:
    """Join texts A and B, truncated to `max_seq_length` tokens. B may be an empty text."""
    marks = np.where(has_second, 3, 2)  # [CLS] and one or two [SEP]
    room = encoding.config.max_seq_length - marks
    kept_a, kept_b = truncated_lengths(first.lengths, second.lengths, room=room)
    b_starts = kept_a + 2
    offsets = offsets_of(kept_a + kept_b + marks)
    begins = offsets[:-1]
    input_ids = np.full(offsets[-1], encoding.tokenizer.sep_id, dtype=np.int64)
    input_ids[begins] = encoding.tokenizer.cls_id
    for texts, starts, lengths in (
        (first, begins + 1, kept_a),
        (second, begins + b_starts, kept_b),
    ):
        input_ids[ranges(starts, lengths)] = texts.ids[ranges(texts.starts, lengths)]
    cut = first.lengths + second.lengths - kept_a - kept_b
    return Features(
        kind=encoding.task.type,
        offsets=offsets,
        input_ids=input_ids,
        b_starts=b_starts,
        rows=np.arange(len(begins) // per_unit, dtype=np.int64),
        per_unit=per_unit,
        labels=labels,
        counters={"texts-truncated": int((cut > 0).sum()), "tokens-cut": int(cut.sum())},
    )


def truncated_lengths(a: Int64s, b: Int64s, *, room: npt.ArrayLike) -> tuple[Int64s, Int64s]:
    """Return the lengths of A and B after truncation to a total number of tokens.

    The reference (run_classifier.py, lines 557-571) removes one token at a time from the end of the
    longer text, or of B if both are equal. So the shorter text loses nothing until both are equal,
    and then they alternate.
    """
    space = np.asarray(room, dtype=np.int64)
    half = space // 2
    kept_a: Int64s = np.minimum(a, np.maximum(space - b, space - half))
    kept_b: Int64s = np.minimum(b, np.maximum(space - a, half))
    return kept_a, kept_b
