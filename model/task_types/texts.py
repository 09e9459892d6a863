"""Classification, regression and choice: labels of a text, a pair, or several continuations.

The label or number of a text or a pair of texts is asked for (paper 4.1), or which of several
continuations follows a context (paper 4.4). Too long texts are cut from their end.

Letters for shapes: N sequences, T token positions of all of them.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.task_types.features import Features
from model.task_types.metrics import METRICS, check_answered
from model.task_types.prediction_files import text_lines
from model.task_types.task_type import Encoding, Prediction, TaskType, no_answers
from model.tasks.task import Task
from pipelines.arrays import Float32s, Int64s, offsets_of, ranges
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError, TaskDataError

_MOST_SCORE = sys.float_info.max


class _Texts(TaskType):
    """Base of classification and regression."""

    is_pooled = True
    architecture = "BertForSequenceClassification"

    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """`[CLS] A [SEP]`, and `[CLS] A [SEP] B [SEP]` where a row has a text B. Keeps all rows."""
        task, tokenizer = encoding.task, encoding.tokenizer
        second = examples["text_b"]
        joined = join_texts(
            EncodedTexts.of(examples["text_a"], tokenizer),
            EncodedTexts.of(pc.fill_null(second, ""), tokenizer),
            has_second=second.is_valid().to_numpy(),
            max_seq_length=encoding.config.max_seq_length,
            tokenizer=tokenizer,
        )
        known = _is_labelled(examples, self.answer_column, task=task, is_training=is_training)
        return Features(
            kind=task.type,
            offsets=joined.offsets,
            input_ids=joined.input_ids,
            b_starts=joined.b_starts,
            rows=np.arange(len(examples), dtype=np.int64),
            labels=self._labels(examples, encoding) if known else None,
            counters=joined.counters,
        )

    @abstractmethod
    def _labels(self, examples: pa.Table, encoding: Encoding) -> Int64s | npt.NDArray[np.float64]:
        """Return the answers of the rows, as label numbers or values."""


class Classification(_Texts):
    """A label for a text or a pair of texts."""

    answer_column = "label"
    is_softmax = True
    problem = "single_label_classification"

    def _labels(self, examples: pa.Table, encoding: Encoding) -> Int64s:
        labels = encoding.labels
        numbers = pc.index_in(examples["label"], value_set=pa.array(labels, pa.string()))
        if numbers.null_count:
            row = pc.index(numbers.is_null(), True).as_py()
            raise TaskDataError(
                f"{encoding.task.name}: row {row} (id {examples['id'][row]}) has the label "
                f"{examples['label'][row].as_py()!r}: expected one of {', '.join(labels)}"
            )
        known: Int64s = numbers.to_numpy().astype(np.int64)
        return known

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """`label` is that of the largest output, the first of them if several."""
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

    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """The task's metrics (`model.task_types.metrics`). F1 is of the task's second label."""
        check_answered(examples, predictions, column="label")
        gold = examples["label"].to_pylist()
        said = [prediction["label"] for prediction in predictions]
        for row, value in enumerate(said):
            if not isinstance(value, str):
                raise _odd_prediction(row, value, wanted="the name of a label", task=task)
        # A task with labels from its data has no fixed labels to check.
        labels = task.labels or tuple(sorted({*gold, *said}))
        numbers = {name: number for number, name in enumerate(labels)}
        unknown = [label for label in (*gold, *said) if label not in numbers]
        if unknown:
            raise PredictionsError(
                f"{task.name}: the label {unknown[0]!r}: expected one of {', '.join(task.labels)}"
            )
        sides = [np.array([numbers[label] for label in side]) for side in (gold, said)]
        return {name: METRICS[name](*sides) for name in task.metrics}

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """`label`, and as `probabilities` the shares of the training data."""
        shares = _shares(examples, labels, task=task)
        return {"label": max(labels, key=lambda name: shares[name]), "probabilities": shares}

    def read_official(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """GLUE's submission."""

        def answer(label: str, where: str) -> dict[str, Any]:
            if task.labels and label not in task.labels:
                raise PredictionsError(
                    f"{where}: {label!r} is no label of {task.name}: expected one of "
                    f"{', '.join(task.labels)}"
                )
            return {"label": label}

        return _read_submission(url, examples, task=task, answer=answer)


class Regression(_Texts):
    """A number for a text or a pair of texts."""

    answer_column = "score"
    outputs = 1
    problem = "regression"

    def _labels(self, examples: pa.Table, encoding: Encoding) -> npt.NDArray[np.float64]:
        scores: npt.NDArray[np.float64] = examples["score"].to_numpy()
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            raise TaskDataError(
                f"{encoding.task.name}: row {bad[0]} (id {examples['id'][int(bad[0])]}) has the "
                f"score {scores[bad[0]]}: expected a finite number; correct the file"
            )
        return scores

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """`score` is what the model says, also beyond the scale of the labels."""
        check_outputs(outputs, (features.units,), task=encoding.task)
        pairs = zip(examples["id"].to_pylist(), outputs.astype(np.float64).tolist(), strict=True)
        return [{"id": name, "score": score} for name, score in pairs]

    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """The task's metrics (`model.task_types.metrics`)."""
        check_answered(examples, predictions, column="score")
        said = [prediction["score"] for prediction in predictions]
        for row, value in enumerate(said):
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (is_number and abs(value) <= _MOST_SCORE):  # so is NaN refused
                raise _odd_prediction(row, value, wanted="a finite number", task=task)
        sides = np.array(examples["score"].to_pylist()), np.array(said)
        return {name: METRICS[name](*sides) for name in task.metrics}

    def list_answers(self, row: Mapping[str, Any]) -> list[str]:
        """Return the score, rounded: scores of one constant model differ in the last digits."""
        return [f"{row['score']:.2f}"]

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """The mean `score`."""
        del labels
        mean = pc.mean(examples["score"]).as_py()
        if mean is None:
            raise no_answers(task)
        return {"score": float(mean)}

    def read_official(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """GLUE's submission."""

        def answer(said: str, where: str) -> dict[str, Any]:
            return {"score": _number(said, float, where=where)}

        return _read_submission(url, examples, task=task, answer=answer)


class Choice(TaskType):
    """Choice of the continuation that follows a context."""

    answer_column = "label"
    outputs = 1
    is_pooled = True
    is_softmax = True
    architecture = "BertForMultipleChoice"

    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """A unit a row: `[CLS] context [SEP] continuation [SEP]` for each of its continuations."""
        task, tokenizer = encoding.task, encoding.tokenizer
        _check_choices(examples, task=task)
        known = _is_labelled(examples, "label", task=task, is_training=is_training)
        contexts = EncodedTexts.of(examples["context"], tokenizer).repeat(task.choices)
        continuations = EncodedTexts.of(pc.list_flatten(examples["continuations"]), tokenizer)
        joined = join_texts(
            contexts,
            continuations,
            has_second=np.ones(len(contexts.lengths), dtype=np.bool_),
            max_seq_length=encoding.config.max_seq_length,
            tokenizer=tokenizer,
        )
        return Features(
            kind=task.type,
            offsets=joined.offsets,
            input_ids=joined.input_ids,
            b_starts=joined.b_starts,
            rows=np.arange(len(examples), dtype=np.int64),
            per_unit=task.choices,
            labels=_choice_labels(examples, task=task) if known else None,
            counters=joined.counters,
        )

    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """`label` is a number, and `probabilities` a list."""
        check_outputs(outputs, (features.units, encoding.task.choices), task=encoding.task)
        chosen = outputs.argmax(axis=1).tolist()
        rows = zip(examples["id"].to_pylist(), chosen, _softmax(outputs).tolist(), strict=True)
        return [{"id": name, "label": best, "probabilities": shares} for name, best, shares in rows]

    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """The task's metrics (`model.task_types.metrics`)."""
        check_answered(examples, predictions, column="label")
        gold = examples["label"].to_numpy()
        labels = [prediction["label"] for prediction in predictions]
        for name, label in zip(examples["id"].to_pylist(), labels, strict=True):
            if type(label) is not int or not 0 <= label < task.choices:
                raise PredictionsError(
                    f"{task.name}: the prediction of id {name} has the label {label!r:.60}: "
                    f"expected a number from 0 to {task.choices - 1}"
                )
        said = np.array(labels, dtype=np.int64)
        return {name: METRICS[name](gold, said) for name in task.metrics}

    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return predictions like those of classification, by number."""
        del labels
        found = _shares(examples, range(task.choices), task=task)
        shares = [found[number] for number in range(task.choices)]
        return {"label": shares.index(max(shares)), "probabilities": shares}

    def read_official(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """Columns as of GLUE's submission."""

        def answer(said: str, where: str) -> dict[str, Any]:
            return {"label": _number(said, int, where=where)}

        return _read_submission(url, examples, task=task, answer=answer)


# Rows and their labels


def _is_labelled(examples: pa.Table, column: str, *, task: Task, is_training: bool) -> bool:
    """Return whether rows have labels: all or none must have.

    Raises:
        TaskDataError: some have none, or none has one and they are to be trained on.
    """
    missing = examples[column].null_count
    if not missing:
        return True
    row = pc.index(examples[column].is_null(), True).as_py()
    name = examples["id"][row].as_py()
    if is_training:
        raise TaskDataError(
            f"{task.name}: {missing} of {len(examples)} rows have no {column}, the first is row "
            f"{row} (id {name}): expected one in every row of the training data; take another split"
        )
    if missing < len(examples):
        raise TaskDataError(
            f"{task.name}: {missing} of {len(examples)} rows have no {column}, the first is row "
            f"{row} (id {name}): expected one in every row of a split or in none; drop rows "
            "without one, or put them into a separate split"
        )
    return False


def _check_choices(examples: pa.Table, *, task: Task) -> None:
    counts = pc.list_value_length(examples["continuations"]).to_numpy()
    other = np.flatnonzero(counts != task.choices)
    if len(other):
        row = int(other[0])
        raise TaskDataError(
            f"{task.name}: row {row} (id {examples['id'][row]}) has {counts[row]} continuations: "
            f"expected {task.choices} in every row"
        )


def _choice_labels(examples: pa.Table, *, task: Task) -> Int64s:
    labels: Int64s = examples["label"].to_numpy()
    outside = np.flatnonzero((labels < 0) | (labels >= task.choices))
    if len(outside):
        row = int(outside[0])
        raise TaskDataError(
            f"{task.name}: row {row} (id {examples['id'][row]}) has the label {labels[row]}: "
            f"expected 0 to {task.choices - 1}"
        )
    return labels


def _shares(examples: pa.Table, labels: Sequence[Any], *, task: Task) -> dict[Any, float]:
    """Return the share of each label among labeled examples."""
    counts = Counter(name for name in examples["label"].to_pylist() if name is not None)
    if not counts:
        raise no_answers(task)
    return {label: counts[label] / counts.total() for label in labels}


# Outputs and predictions


def check_outputs(
    outputs: npt.NDArray[np.float32], expected: tuple[int, ...], *, task: Task
) -> None:
    """Refuse a model's outputs that are not what the features ask for.

    Raises:
        PredictionsError: another shape, or a number that is not finite.
    """
    if outputs.shape != expected:
        raise PredictionsError(
            f"{task.name}: outputs of shape {outputs.shape}, expected {expected}: they are not of "
            "these features, or the model has other labels"
        )
    finite = np.isfinite(outputs).all(axis=tuple(range(1, outputs.ndim)))
    if not finite.all():
        raise PredictionsError(
            f"{task.name}: {int((~finite).sum())} of {len(outputs)} outputs are not finite, the "
            f"first is {int(np.flatnonzero(~finite)[0])}: the model has diverged; train it with a "
            "smaller learning rate"
        )


def _softmax(outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probabilities of each row, in float64, so that they add up to 1 in tables."""
    exact = outputs.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    np.exp(exact, out=exact)
    exact /= exact.sum(axis=1, keepdims=True)
    return exact


def _odd_prediction(row: int, value: object, *, wanted: str, task: Task) -> PredictionsError:
    return PredictionsError(f"{task.name}: prediction {row} is {value!r:.60}: expected {wanted}")


def _read_submission(
    url: str, examples: pa.Table, *, task: Task, answer: Callable[[str, str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Read a GLUE submission: a header, then index and prediction, in any order.

    The index is a row's id or its number from 0. `answer` parses a prediction, given its position.
    """
    lines = text_lines(url)
    header = lines[0].split("\t") if lines else []
    if header != ["index", "prediction"]:
        raise PredictionsError(
            f"{url}: expected a first line with the columns index and prediction, found "
            f"{lines[0][:80]!r}"
            if lines
            else f"{url}: the file is empty"
        )
    if len(lines) - 1 != len(examples):
        raise PredictionsError(
            f"{url}: {len(lines) - 1:,} predictions for {len(examples):,} examples: expected one "
            "for each, in their order"
        )
    names = {said: label for label, said in task.submitted_labels.items()}
    ids = examples.column("id").to_pylist()
    found = {}
    for number, line in enumerate(lines[1:], start=2):
        index, tab, said = line.partition("\t")
        where = f"{url}, line {number}"
        if not tab:
            raise PredictionsError(f"{where}: expected two columns, found {line!r:.80}")
        if index in found:
            raise PredictionsError(f"{where}: the index {index!r:.80} is there a second time")
        found[index] = answer(names.get(said, said), where)
    order = _order(list(found), ids, url=url)
    return [{"id": name, **found[index]} for index, name in zip(order, ids, strict=True)]


def _order(indexes: list[str], ids: list[str], *, url: str) -> list[str]:
    """The index of each example: its id, or its number from 0."""
    if set(indexes) == set(ids):
        return ids
    numbers = [str(number) for number in range(len(ids))]
    if set(indexes) == set(numbers):
        return numbers
    known = set(ids)
    row = next(row for row, index in enumerate(indexes) if index not in known)
    raise PredictionsError(
        f"{url}, line {row + 2}: the index {indexes[row]!r:.80}: expected the ids of the examples, "
        f"or the numbers 0 to {len(ids) - 1}"
    )


def _number(said: str, read: Callable[[str], float], *, where: str) -> float:
    try:
        return read(said)
    except ValueError as error:
        raise PredictionsError(f"{where}: expected a number, found {said!r}") from error


# Sequences of one text or two


class EncodedTexts(NamedTuple):
    """Ids of texts, of which several may be the same ones.

    Attributes:
        ids: ids that the texts are runs of.
        starts: int64 (N,): where in `ids` each begins.
        lengths: int64 (N,).
    """

    ids: npt.NDArray[Any]
    starts: Int64s
    lengths: Int64s

    @classmethod
    def of(cls, texts: pa.Array | pa.ChunkedArray, tokenizer: WordPieceTokenizer) -> Self:
        """Encode texts, none of which is null."""
        ids, counts = tokenizer.encode_sentences(texts)
        return cls(ids, offsets_of(counts)[:-1], counts.astype(np.int64))

    def repeat(self, times: int) -> EncodedTexts:
        """Repeat each text consecutively."""
        return self._replace(
            starts=np.repeat(self.starts, times), lengths=np.repeat(self.lengths, times)
        )


class JoinedTexts(NamedTuple):
    """Sequences end to end.

    Attributes:
        offsets: int64 (N + 1,), b_starts: int64 (N,), input_ids: int64 (T,): see `Features`.
        counters: `texts-truncated`, sequences that had to lose tokens, and `tokens-cut`, how many.
    """

    offsets: Int64s
    b_starts: Int64s
    input_ids: Int64s
    counters: dict[str, int]


def join_texts(
    first: EncodedTexts,
    second: EncodedTexts,
    *,
    has_second: npt.NDArray[np.bool_],
    max_seq_length: int,
    tokenizer: WordPieceTokenizer,
) -> JoinedTexts:
    """Put texts A and B together, cut from the end where they are too long for a sequence.

    Args:
        first: A of each sequence.
        second: B of each sequence; empty without B.
        has_second: bool (N,): whether there is a B, which may be an empty text.
        max_seq_length: most tokens of a sequence, [CLS] and [SEP] included; at least 3.
        tokenizer: whose ids they are.
    """
    marks = np.where(has_second, 3, 2)  # [CLS] and one or two [SEP]
    kept_a, kept_b = truncated_lengths(first.lengths, second.lengths, room=max_seq_length - marks)
    b_starts = kept_a + 2
    offsets = offsets_of(kept_a + kept_b + marks)
    begins = offsets[:-1]
    input_ids = np.full(offsets[-1], tokenizer.sep_id, dtype=np.int64)
    input_ids[begins] = tokenizer.cls_id
    _copy_runs(first, input_ids, starts=begins + 1, lengths=kept_a)
    _copy_runs(second, input_ids, starts=begins + b_starts, lengths=kept_b)
    cut = first.lengths + second.lengths - kept_a - kept_b
    counters = {"texts-truncated": int((cut > 0).sum()), "tokens-cut": int(cut.sum())}
    return JoinedTexts(offsets, b_starts, input_ids, counters)


def truncated_lengths(a: Int64s, b: Int64s, *, room: npt.ArrayLike) -> tuple[Int64s, Int64s]:
    """Return the lengths of A and B after truncation to `room` tokens in total.

    The reference (run_classifier.py, lines 557-571) removes one token at a time from the end of the
    longer text, or of B if both are equal. So the shorter text loses nothing until both are equal,
    and then they alternate.
    """
    space = np.asarray(room, dtype=np.int64)
    half = space // 2
    kept_a: Int64s = np.minimum(a, np.maximum(space - b, space - half))
    kept_b: Int64s = np.minimum(b, np.maximum(space - a, half))
    return kept_a, kept_b


def _copy_runs(texts: EncodedTexts, target: Int64s, *, starts: Int64s, lengths: Int64s) -> None:
    """Copy the first `lengths` ids of each text to where in `target` it `starts`."""
    target[ranges(starts, lengths)] = texts.ids[ranges(texts.starts, lengths)]
