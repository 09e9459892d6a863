"""Zip file with test predictions for GLUE's test server (gluebenchmark.com)."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.formatting import format_percent
from model.tables.results import Evaluation
from model.tasks import TASKS
from model.tasks.prediction_files import predictions_file, stored_predictions
from schemas.manifest import StageInput

_FILES = [
    (name, task.sizes[split]) for task in TASKS.values() for split, name in task.submission.items()
]
SERVER_FILES = dict(sorted(_FILES, key=lambda file: file[0] == "AX.tsv"))
"""Number of rows of each file that the server requires, the diagnostic set last."""

_MAJORITY_FILE = "WNLI.tsv"
_HEADER = "index\tprediction\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal files give equal bytes


class Submission(NamedTuple):
    """Files for the server."""

    data: bytes
    """Zip file, or b"" if no entry has predictions for the server."""

    entries: dict[str, str]
    """Entry of each file, in the order of the server."""

    missing: tuple[str, ...]
    """Files that the server requires and no entry has."""

    notes: tuple[str, ...]


def build_submission(
    evaluations: Sequence[Evaluation], *, inputs: Mapping[str, StageInput]
) -> Submission:
    """Return the zip file with the test predictions of all entries.

    Of several entries for a file the best on dev is used. WNLI's file has the majority class of its
    training data in each row, as the paper submits it. A file whose ids are not 0 to n - 1 is
    skipped. Each of these adds a note. Entries on other data than GLUE's are ignored.

    Args:
        evaluations: Evaluations of entries.
        inputs: Artifact of each entry.

    Raises:
        ArtifactCorruptError: A file does not match its manifest.
    """
    notes: list[str] = []
    texts: dict[str, str] = {}
    entries: dict[str, str] = {}
    candidates = _find_candidates(evaluations, inputs=inputs)
    for name in (name for name in SERVER_FILES if name in candidates):
        (chosen, split), *others = candidates[name]
        notes += _choice_notes(name, chosen, [evaluation for evaluation, _ in others])
        predictions = stored_predictions(inputs[chosen.entry], split)
        predictions.sort(key=lambda item: (len(item["id"]), item["id"]))
        count, expected = len(predictions), SERVER_FILES[name]
        if [item["id"] for item in predictions] != [str(number) for number in range(count)]:
            notes.append(
                f"{name}: skipped: the server expects ids from 0 to n - 1, those of the "
                f"{count:,} predictions of {chosen.entry} are others"
            )
            continue
        if count != expected:
            notes.append(
                f"{name}: {count:,} rows of {chosen.entry}; the server expects {expected:,}, those "
                "of GLUE's own test file"
            )
        majority = chosen.result.majority_label if name == _MAJORITY_FILE else None
        answers = [_answer(item) if majority is None else majority for item in predictions]
        rows = (f"{number}\t{answer}\n" for number, answer in enumerate(answers))
        texts[name], entries[name] = "".join([_HEADER, *rows]), chosen.entry
    missing = tuple(name for name in SERVER_FILES if name not in texts)
    if texts and missing:
        notes.append(f"the server takes all its files at once; missing: {', '.join(missing)}")
    return Submission(to_zip(texts) if texts else b"", entries, missing, tuple(notes))


def _find_candidates(
    evaluations: Sequence[Evaluation], *, inputs: Mapping[str, StageInput]
) -> dict[str, list[tuple[Evaluation, str]]]:
    """Return the entries with predictions for each file of the server, best on dev first, and the
    split of the predictions."""
    ranked = sorted(evaluations, key=lambda item: (-_dev_score(item), item.entry))
    candidates: dict[str, list[tuple[Evaluation, str]]] = {}
    for evaluation in (item for item in ranked if not item.result.model.data):
        files = {entry.path for entry in inputs[evaluation.entry].files}
        for split, name in TASKS[evaluation.result.task].submission.items():
            if predictions_file(split) in files:
                candidates.setdefault(name, []).append((evaluation, split))
    return candidates


def _dev_score(evaluation: Evaluation) -> float:
    score = evaluation.result.dev_score
    return -math.inf if score is None else score


def to_zip(texts: Mapping[str, str]) -> bytes:
    """Return a zip file of texts in their order; equal texts give equal bytes on any machine.

    Files are stored uncompressed, because the output of compressors depends on their version.
    """
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, text in texts.items():
            info = zipfile.ZipInfo(name, date_time=_DATE)
            info.create_system = 3  # Unix, on any system
            info.external_attr = 0o644 << 16
            archive.writestr(info, text.encode())
    return data.getvalue()


def _choice_notes(name: str, chosen: Evaluation, others: Sequence[Evaluation]) -> Iterator[str]:
    """Yield notes on the choice of an entry."""
    if cut := chosen.result.cut.on(""):
        yield f"{name}: {chosen.entry} was tuned on less: {'; '.join(cut)}"
    if name == _MAJORITY_FILE:
        yield (
            f"{name}: the majority class in each row, as in the paper, not the model of "
            f"{chosen.entry}"
        )
    elif others:
        names = ", ".join(
            f"{one.entry} ({one.result.metric} {format_percent(one.result.dev_score)} on dev)"
            for one in (chosen, *others)
        )
        yield f"{name}: {names} answer it; taken: {chosen.entry}, the best on dev"


def _answer(prediction: Mapping[str, Any]) -> str:
    """Return the name or number of a label, or a score of STS-B from 0 to 5 with three decimals."""
    if "label" in prediction:
        return str(prediction["label"])
    return f"{min(5.0, max(0.0, prediction['score'])):.3f}"
