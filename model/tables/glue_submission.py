"""Zip file with test predictions for GLUE's test server (gluebenchmark.com)."""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.tables.results import Evaluation
from model.task_types.prediction_files import predictions_file, read_lines
from model.tasks.cut_data import cut_on
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

WNLI_FILE = "WNLI.tsv"
_HEADER = "index\tprediction"
_SCORES = (0.0, 5.0)  # range of STS-B
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal files give equal bytes
_MAX_SHOWN = 5


class _Candidate(NamedTuple):
    """Predictions of an entry for one of the server's files."""

    evaluation: Evaluation
    task: Task
    file: InputFile

    path: str


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

    Of several entries for a file the best on dev is used. For WNLI, an entry with method `majority`
    has priority, as the paper submits the majority class. A file whose ids are not 0 to n - 1 is
    skipped. Each of these adds a note. Entries on other data than GLUE's are ignored.

    Args:
        evaluations: Evaluations of entries.
        inputs: Artifact of each entry.
        tasks: Tasks by name; `submission` maps a split to a file.

    Raises:
        PredictionsError: A prediction has no label or score, or one that the task does not have.
        ArtifactCorruptError: A file does not match its manifest.
    """
    candidates: dict[str, list[_Candidate]] = {}
    for name, candidate in _candidates(evaluations, inputs=inputs, tasks=tasks):
        candidates.setdefault(name, []).append(candidate)
    notes: list[str] = []
    texts: dict[str, str] = {}
    entries: dict[str, str] = {}
    for name in (name for name in SERVER_FILES if name in candidates):
        chosen = _choose(name, candidates[name], notes=notes)
        text = _file_text(name, chosen, notes=notes)
        if text is not None:
            texts[name] = text
            entries[name] = chosen.evaluation.entry
    missing = tuple(name for name in SERVER_FILES if name not in texts)
    if texts and missing:
        notes.append(f"the server takes all its files at once; missing: {', '.join(missing)}")
    return Submission(to_zip(texts) if texts else b"", entries, missing, tuple(notes))


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


def _candidates(
    evaluations: Sequence[Evaluation],
    *,
    inputs: Mapping[str, StageInput],
    tasks: Mapping[str, Task],
) -> Iterator[tuple[str, _Candidate]]:
    for evaluation in (item for item in evaluations if not item.data):
        task, given = tasks.get(evaluation.task), inputs[evaluation.entry]
        for split, name in task.submission.items() if task else ():
            path = predictions_file(split)
            file = next((entry for entry in given.files if entry.path == path), None)
            if task and file is not None and name in SERVER_FILES:
                yield name, _Candidate(evaluation, task, InputFile.of(given, file), path)


def _choose(name: str, candidates: Sequence[_Candidate], *, notes: list[str]) -> _Candidate:
    def rank(candidate: _Candidate) -> tuple[bool, float, str]:
        evaluation = candidate.evaluation
        is_rule = name == WNLI_FILE and evaluation.is_majority
        score = -math.inf if evaluation.dev_score is None else evaluation.dev_score
        return not is_rule, -score, evaluation.entry

    chosen, *others = sorted(candidates, key=rank)
    is_majority = chosen.evaluation.is_majority
    if cut := cut_on("", chosen.evaluation.cut):
        notes.append(f"{name}: {chosen.evaluation.entry} was tuned on less: {'; '.join(cut)}")
    if others:
        why = "the best on dev"
        if name == WNLI_FILE and is_majority:
            why = "the majority class, which the paper submits"
        names = ", ".join(_scored(candidate) for candidate in (chosen, *others))
        notes.append(f"{name}: {names} answer it; taken: {chosen.evaluation.entry}, {why}")
    if name == WNLI_FILE and not is_majority:
        notes.append(
            f"{name}: is of {chosen.evaluation.entry}; the paper submits the majority class, for "
            "which an entry of wnli with method majority is needed"
        )
    return chosen


def _scored(candidate: _Candidate) -> str:
    evaluation = candidate.evaluation
    if evaluation.dev_score is None:
        return f"{evaluation.entry} (no dev score)"
    return f"{evaluation.entry} ({evaluation.metric} {100 * evaluation.dev_score:.1f} on dev)"


def _file_text(name: str, candidate: _Candidate, *, notes: list[str]) -> str | None:
    """Return the content of a file, or None if its ids are not those of the server."""
    candidate.file.read()  # checks the digest
    predictions = read_lines(candidate.file.url)
    fault = _id_fault(predictions)
    if fault:
        notes.append(
            f"{name}: skipped: {candidate.evaluation.entry} has {len(predictions):,} predictions, "
            f"{fault}; the server expects one for each row of the test file, index 0 to n - 1"
        )
        return None
    if len(predictions) != SERVER_FILES[name]:
        notes.append(
            f"{name}: {len(predictions):,} rows of {candidate.evaluation.entry}; the server "
            f"expects {SERVER_FILES[name]:,}, those of GLUE's own test file"
        )
    ordered = sorted(predictions, key=lambda item: int(item["id"]))
    rows = (f"{item['id']}\t{_answer(item, candidate)}" for item in ordered)
    return "".join(f"{row}\n" for row in (_HEADER, *rows))


def _id_fault(predictions: Sequence[Mapping[str, Any]]) -> str:
    """Return the problem of ids that are not a permutation of 0 to n - 1, or ""."""
    ids = [str(item["id"]) for item in predictions]
    known = set(ids)
    expected = {str(number) for number in range(len(ids))}
    if not ids:
        return "none"
    if known == expected:
        return ""
    if len(known) < len(ids):
        duplicates = [item for item, count in Counter(ids).items() if count > 1][:_MAX_SHOWN]
        return f"ids twice: {', '.join(duplicates)}"
    unexpected = [item for item in ids if item not in expected][:_MAX_SHOWN]
    missing = [str(number) for number in range(len(ids)) if str(number) not in known][:_MAX_SHOWN]
    return f"with ids such as {', '.join(unexpected)} and without {', '.join(missing)}"


def _answer(prediction: Mapping[str, Any], candidate: _Candidate) -> str:
    """Return the name or number of a label, or a score with three decimals."""
    task = candidate.task
    where = f"{candidate.path} of {candidate.evaluation.entry}, id {prediction['id']}"
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
    return task.submitted_labels.get(label, label)
