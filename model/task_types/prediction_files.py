"""Predictions on disk: one JSON object a line, as `model.task_types` describes them. No torch here.

Every score is computed from such a file read back, so that what is kept is what was scored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from model.task_types import TASK_TYPES
from model.tasks import Task
from model.tasks.files import file_lines
from schemas.errors import MissingInputError, PredictionsError
from schemas.task_configs import Kind

PREDICTIONS_FILE = "predictions-{split}.jsonl"

_GOLD = {
    "classification": "label",
    "regression": "score",
    "choice": "label",
    "span": "is_impossible",
    "tagging": "tags",
}
"""Column of the examples that is null where the answer is not known."""


class Scored(NamedTuple):
    """Predictions beside what is known."""

    metrics: dict[str, float]
    """By name; empty where the examples have no answers."""

    predictions: list[dict[str, Any]]


def predictions_file(split: str) -> str:
    """Name of the file with the predictions of a split."""
    return PREDICTIONS_FILE.format(split=split)


def to_lines(predictions: Iterable[Mapping[str, Any]]) -> bytes:
    """The file's content: sorted keys, so that equal predictions are equal bytes."""
    lines = (json.dumps(item, sort_keys=True, ensure_ascii=False) for item in predictions)
    return "".join(f"{line}\n" for line in lines).encode()


def raw_lines(url: str) -> Iterator[bytes]:
    """The lines of a file of predictions, ended by LF or CRLF; plain, .gz, .bz2 or .zst is told by
    its first bytes.

    Raises:
        PredictionsError: there is no such file.
        InputError: it is damaged, or UTF-16.
    """
    try:
        yield from (line.data for line in file_lines(url))
    except (MissingInputError, IsADirectoryError) as error:
        raise PredictionsError(
            f"{url}: no file there; expected predictions, one JSON object a line"
        ) from error


def read_lines(url: str) -> list[dict[str, Any]]:
    """The predictions of a file, local or of any fsspec URL, compressed or not.

    Raises:
        PredictionsError: there is no such file, or a line is no prediction.
    """
    found = []
    for number, line in enumerate(raw_lines(url), start=1):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PredictionsError(
                f"{url}, line {number}: no JSON ({error}); expected one prediction a line"
            ) from error
        if not isinstance(item, dict) or "id" not in item:
            raise PredictionsError(
                f"{url}, line {number}: expected an object with an id, found {line[:80]!s}"
            )
        found.append(item)
    return found


def is_answered(kind: Kind, examples: pa.Table) -> bool:
    """Whether the answers to all examples are known, so that predictions can be scored."""
    return bool(len(examples)) and examples.column(_GOLD[kind]).null_count == 0


def score_file(url: str, examples: pa.Table, *, task: Task) -> Scored:
    """Read predictions back and score them.

    Raises:
        PredictionsError: they are not of these examples: another number, or other ids.
    """
    predictions = read_lines(url)
    check_ids(predictions, examples, where=url)
    if not is_answered(task.kind, examples):
        return Scored({}, predictions)
    metrics = TASK_TYPES[task.kind].score(examples, predictions, task=task)
    return Scored({name: float(value) for name, value in metrics.items()}, predictions)


def check_ids(predictions: list[dict[str, Any]], examples: pa.Table, *, where: str) -> None:
    """See that predictions are those of the examples, one each, in order.

    Raises:
        PredictionsError: they are not; names the first that differs.
    """
    expected = examples.column("id").to_pylist()
    found = [str(item["id"]) for item in predictions]
    if found == expected:
        return
    pairs = zip(found, expected, strict=False)
    first = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
    if first is None:
        differs = f"{len(found):,} predictions for {len(expected):,} examples"
    else:
        differs = f"row {first} is of {found[first]!r}, that of the examples {expected[first]!r}"
    raise PredictionsError(
        f"{where}: {differs}: expected one prediction for each example, in their order. Score "
        "them against the file that they were made of"
    )
