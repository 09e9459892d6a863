"""Zip file with test predictions for GLUE's test server (gluebenchmark.com)."""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.tables.results import Evaluation
from model.tasks.prediction_files import predictions_file, read_lines
from model.tasks.task import Task
from pipelines.io.stage_inputs import InputFile
from schemas.errors import PredictionsError
from schemas.manifest import StageInput

SERVER_FILES = {
    "CoLA.tsv": 1_063,
    "SST-2.tsv": 1_821,
    "MRPC.tsv": 1_725,
    "STS-B.tsv": 1_379,
    "QQP.tsv": 390_965,
    "MNLI-m.tsv": 9_796,
    "MNLI-mm.tsv": 9_847,
    "QNLI.tsv": 5_463,
    "RTE.tsv": 3_000,
    "WNLI.tsv": 146,
    "AX.tsv": 1_104,
}
"""Number of rows of each file that the server requires."""

_MAJORITY_FILE = "WNLI.tsv"
_HEADER = "index\tprediction\n"
_SCORES = (0.0, 5.0)  # range of STS-B
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal files give equal bytes
_MAX_SHOWN = 5


class _Candidate(NamedTuple):
    """Predictions of an entry for one of the server's files."""

    name: str
    evaluation: Evaluation
    task: Task
    file: InputFile

    @property
    def entry(self) -> str:
        """Name of the entry."""
        return self.evaluation.entry

    @property
    def rank(self) -> tuple[float, str]:
        """Sort key: the best on dev first."""
        score = self.evaluation.result.dev_score
        return math.inf if score is None else -score, self.entry

    def __str__(self) -> str:
        score = self.evaluation.result.dev_score
        if score is None:
            return f"{self.entry} (no dev score)"
        return f"{self.entry} ({self.evaluation.result.metric} {100 * score:.1f} on dev)"


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
    evaluations: Sequence[Evaluation],
    *,
    inputs: Mapping[str, StageInput],
    tasks: Mapping[str, Task],
) -> Submission:
    """Return the zip file with the test predictions of all entries.

    Of several entries for a file the best on dev is used. WNLI's file has the majority class of its
    training data in each row, as the paper submits it. A file whose ids are not 0 to n - 1 is
    skipped. Each of these adds a note. Entries on other data than GLUE's are ignored.

    Args:
        evaluations: Evaluations of entries.
        inputs: Artifact of each entry.
        tasks: Tasks by name; `submission` maps a split to a file.

    Raises:
        PredictionsError: A prediction has no label or score, or one that the task does not have.
        ArtifactCorruptError: A file does not match its manifest.
    """
    candidates = _find_candidates(evaluations, inputs=inputs, tasks=tasks)
    notes: list[str] = []
    texts: dict[str, str] = {}
    entries: dict[str, str] = {}
    for name in (name for name in SERVER_FILES if name in candidates):
        chosen, *others = sorted(candidates[name], key=lambda candidate: candidate.rank)
        chosen.file.read()  # checks the digest
        predictions = read_lines(chosen.file.url)
        ids = [str(item["id"]) for item in predictions]
        notes += [*_choice_notes(chosen, others), *_count_notes(chosen, ids)]
        if not _id_fault(ids):
            if name == _MAJORITY_FILE:
                label = chosen.evaluation.result.majority_label
                predictions = [{"id": item, "label": label} for item in ids]
            ordered = sorted(predictions, key=lambda item: int(item["id"]))
            rows = (f"{item['id']}\t{_answer(item, chosen)}\n" for item in ordered)
            texts[name], entries[name] = "".join([_HEADER, *rows]), chosen.entry
    missing = tuple(name for name in SERVER_FILES if name not in texts)
    if texts and missing:
        notes.append(f"the server takes all its files at once; missing: {', '.join(missing)}")
    return Submission(to_zip(texts) if texts else b"", entries, missing, tuple(notes))


def _find_candidates(
    evaluations: Sequence[Evaluation],
    *,
    inputs: Mapping[str, StageInput],
    tasks: Mapping[str, Task],
) -> dict[str, list[_Candidate]]:
    """Return the entries with predictions for each file of the server."""
    candidates: dict[str, list[_Candidate]] = {}
    for evaluation in evaluations:
        task, artifact = tasks.get(evaluation.result.task), inputs[evaluation.entry]
        if task is None or evaluation.result.model.data:
            continue
        files = {entry.path: entry for entry in artifact.files}
        for split, name in task.submission.items():
            entry = files.get(predictions_file(split))
            if entry and name in SERVER_FILES:
                candidate = _Candidate(name, evaluation, task, InputFile.of(artifact, entry))
                candidates.setdefault(name, []).append(candidate)
    return candidates


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


def _choice_notes(chosen: _Candidate, others: Sequence[_Candidate]) -> Iterator[str]:
    """Yield notes on the choice of an entry."""
    name, entry = chosen.name, chosen.entry
    if cut := chosen.evaluation.result.cut.on(""):
        yield f"{name}: {entry} was tuned on less: {'; '.join(cut)}"
    if name == _MAJORITY_FILE:
        yield f"{name}: the majority class in each row, as in the paper, not the model of {entry}"
    elif others:
        names = ", ".join(map(str, (chosen, *others)))
        yield f"{name}: {names} answer it; taken: {entry}, the best on dev"


def _count_notes(chosen: _Candidate, ids: Sequence[str]) -> Iterator[str]:
    """Yield a note on predictions that are not those of the server's rows."""
    name, entry, count = chosen.name, chosen.entry, SERVER_FILES[chosen.name]
    if fault := _id_fault(ids):
        yield (
            f"{name}: skipped: {entry} has {len(ids):,} predictions, {fault}; the server expects "
            "one for each row of the test file, index 0 to n - 1"
        )
    elif len(ids) != count:
        yield (
            f"{name}: {len(ids):,} rows of {entry}; the server expects {count:,}, those of GLUE's "
            "own test file"
        )


def _id_fault(ids: Sequence[str]) -> str:
    """Return what is wrong with ids that are not 0 to n - 1 in any order, or ""."""
    if not ids:
        return "none"
    expected = {str(number) for number in range(len(ids))}
    wrong = [item for item, count in Counter(ids).items() if count > 1 or item not in expected]
    return f"with ids such as {', '.join(wrong[:_MAX_SHOWN])}" if wrong else ""


def _answer(prediction: Mapping[str, Any], candidate: _Candidate) -> str:
    """Return the name or number of a label, or a score with three decimals."""
    task = candidate.task
    where = f"{candidate.file.path} of {candidate.entry}, id {prediction['id']}"
    if task.type == "regression":
        score = prediction.get("score")
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            raise PredictionsError(f"{where}: expected a number as score, found {score!r}")
        if not math.isfinite(score):
            raise PredictionsError(f"{where}: expected a finite score, found {score}")
        low, high = _SCORES
        return f"{min(high, max(low, score)):.3f}"
    label = prediction.get("label")
    if not isinstance(label, str) or label not in task.labels:
        raise PredictionsError(
            f"{where}: expected one of the labels {', '.join(task.labels)}, found {label!r}"
        )
    return label
