"""Prediction files: one JSON object per line, see `model.tasks.task_types`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model.tasks.files import file_lines
from schemas.errors import MissingInputError, PredictionsError

if TYPE_CHECKING:
    import pyarrow as pa

Prediction = Mapping[str, Any]


def predictions_file(split: str) -> str:
    """Return the name of the file with the predictions of a split."""
    return f"predictions-{split}.jsonl"


def to_lines(predictions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a file's content: sorted keys, so that equal predictions are equal bytes."""
    lines = (json.dumps(item, sort_keys=True, ensure_ascii=False) for item in predictions)
    return "".join(f"{line}\n" for line in lines).encode()


def text_lines(url: str) -> Iterator[str]:
    """Yield the lines of a prediction file; its first bytes determine the compression.

    Lines end at LF or CRLF only, because a word may hold any of Unicode's other line ends.

    Raises:
        PredictionsError: The file does not exist, or a line is not UTF-8.
        InputError: The file is damaged, or UTF-16.
    """
    number = 0
    try:
        for number, line in enumerate(file_lines(url), start=1):  # noqa: B007  # for the message
            yield line.decode()
    except UnicodeDecodeError as error:
        raise PredictionsError(f"{url}, line {number}: not UTF-8: convert the file") from error
    except (MissingInputError, IsADirectoryError) as error:
        raise PredictionsError(
            f"{url}: no file there; expected predictions, one JSON object a line"
        ) from error


def is_ours(url: str) -> bool:
    """Return whether a file's first line is a prediction in bertloom's format."""
    try:
        first = json.loads(next(text_lines(url), ""))
    except (ValueError, RecursionError):
        return False
    # SQuAD's JSON may be a single line; no question has the id "id".
    return isinstance(first, dict) and "id" in first


def read_lines(url: str) -> list[dict[str, Any]]:
    """Return the predictions of a file, local or of any fsspec URL, compressed or not.

    Raises:
        PredictionsError: The file does not exist, or a line is no prediction.
    """
    predictions = []
    for number, line in enumerate(text_lines(url), start=1):
        item = None
        with contextlib.suppress(ValueError, RecursionError):
            item = json.loads(line)
        if not isinstance(item, dict) or "id" not in item:
            raise PredictionsError(
                f"{url}, line {number}: expected one prediction a line, a JSON object with an id, "
                f"got {line[:80]!r}. Pass the file that `bertloom predict` or evaluate wrote"
            )
        predictions.append(item)
    return predictions


def check_ids(predictions: Sequence[Mapping[str, Any]], examples: pa.Table, *, where: str) -> None:
    """Check that there is one prediction per example, in order.

    Raises:
        PredictionsError: They differ; names the first difference.
    """
    expected = examples.column("id").to_pylist()
    ids = [str(item.get("id")) for item in predictions]
    if ids == expected:
        return
    pairs = zip(ids, expected, strict=False)
    first = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
    if first is None:
        differs = f"{len(ids):,} predictions for {len(expected):,} examples"
    else:
        differs = f"prediction {first} has the id {ids[first]!r}, its example {expected[first]!r}"
    raise PredictionsError(
        f"{where}: {differs}: expected one prediction per example, in the same order. Score the "
        "examples that were predicted"
    )
