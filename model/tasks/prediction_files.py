"""Prediction files: one JSON object per line, see `model.tasks.task_types`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model.tasks.files import DataFile, open_data
from pipelines.io.stage_inputs import input_file
from schemas.errors import MissingInputError, PredictionsError
from schemas.manifest import StageInput

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


def stored_predictions(artifact: StageInput, split: str) -> list[dict[str, Any]]:
    """Return the predictions of a split in an artifact.

    Raises:
        ArtifactCorruptError: The file is missing or differs from the manifest.
    """
    file = input_file(artifact, predictions_file(split))
    return [json.loads(line) for line in file.read().splitlines()]


@contextlib.contextmanager
def _open_predictions(url: str) -> Iterator[DataFile]:
    """Open a file, local or of any fsspec URL, compressed or not.

    Raises:
        PredictionsError: The file does not exist, or is Parquet.
        InputError: The file is damaged, or UTF-16.
    """
    try:
        with open_data(url) as data:
            if data.format == "parquet":
                raise PredictionsError(f"{url}: expected JSON, got Parquet. Write it as JSON Lines")
            yield data
    except (MissingInputError, IsADirectoryError) as error:
        raise PredictionsError(
            f"{url}: no file there; expected predictions, one JSON object a line"
        ) from error


def read_lines(url: str) -> list[dict[str, Any]]:
    """Return the predictions of a file in bertloom's format.

    Raises:
        PredictionsError: The file does not exist, or a line is no prediction.
    """
    with _open_predictions(url) as data:
        return _parse_lines(data)


def read_answers(url: str) -> list[dict[str, Any]]:
    """Return the answers of a file in bertloom's format, or in SQuAD's: an object of id and text.

    Raises:
        PredictionsError: The file has neither format, or repeats an id.
        InputError: The file is damaged.
    """
    with _open_predictions(url) as data:
        # SQuAD's JSON may be a single line; no question has the id "id".
        if _parse_line(data.first_line) is not None:
            return _parse_lines(data)
        content = data.read_json(PredictionsError)
    if not isinstance(content, dict):
        detail = type(content).__name__
        raise PredictionsError(f"{url}: expected an object by question id, found a {detail}")
    for identity, value in content.items():
        if not isinstance(value, str):
            raise PredictionsError(
                f'{url}: question {identity}: expected text ("" for no answer), found '
                f"{value!r:.80}. Give a file with id and text, not one with n-best lists or odds"
            )
    return [{"id": identity, "text": text} for identity, text in content.items()]


def _parse_lines(data: DataFile) -> list[dict[str, Any]]:
    predictions = []
    for number, line in enumerate(data.lines(), start=1):
        if (item := _parse_line(line)) is None:
            start = line.decode(errors="replace")[:80]
            raise PredictionsError(
                f"{data.url}, line {number}: expected one prediction a line, a JSON object with an "
                f"id, in UTF-8, got {start!r}. Pass the file that `bertloom predict` or evaluate "
                "wrote"
            )
        predictions.append(item)
    return predictions


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the prediction in a line; None for anything else."""
    with contextlib.suppress(ValueError, RecursionError):
        item = json.loads(line.decode())
        if isinstance(item, dict) and "id" in item:
            return item
    return None


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
