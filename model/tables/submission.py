"""The zip file that GLUE's test server takes, made of test predictions (gluebenchmark.com)."""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.tables.evaluations import Evaluation
from model.task_types.prediction_files import predictions_file, read_lines
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
"""Every file that the server asks for, with its rows (those of GLUE's test sets)."""

WNLI_FILE = "WNLI.tsv"
_HEADER = "index\tprediction"
_SCORES = (0.0, 5.0)  # of STS-B
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest a zip file can say; always the same bytes
_SHOWN = 5


class _Candidate(NamedTuple):
    """Predictions of an entry that could be one of the server's files."""

    evaluation: Evaluation
    task: Task
    file: InputFile
    """The predictions, a file of its artifact."""

    path: str


class Submission(NamedTuple):
    """What to send to the server."""

    data: bytes
    """The zip file; b"" where no entry has predictions for it."""

    entries: dict[str, str]
    """Whose predictions each file holds, in the server's order."""

    missing: tuple[str, ...]
    """Files that the server asks for and that are not there."""

    notes: tuple[str, ...]


def build_submission(
    evaluations: Sequence[Evaluation],
    *,
    inputs: Mapping[str, StageInput],
    tasks: Mapping[str, Task],
) -> Submission:
    """GLUE's zip file of all entries' test predictions.

    Where several entries answer the same file, the best on dev is taken and a note names them. For
    WNLI an entry with method `majority` comes first, as the paper submits the majority class. A
    file whose ids are not 0 to n - 1 is left out with a note. Entries on other data than GLUE's
    own are passed over.

    Args:
        evaluations: of the entries, GLUE's or others.
        inputs: their artifacts, by entry.
        tasks: by name; their `submission` says which split makes which file.

    Raises:
        PredictionsError: a prediction has no label or score, or one that its task has not.
        ArtifactCorruptError: a file is not the one that its manifest lists.
    """
    found: dict[str, list[_Candidate]] = {}
    for name, candidate in _candidates(evaluations, inputs=inputs, tasks=tasks):
        found.setdefault(name, []).append(candidate)
    notes: list[str] = []
    texts: dict[str, str] = {}
    entries: dict[str, str] = {}
    for name in (name for name in SERVER_FILES if name in found):
        chosen = _choose(name, found[name], notes=notes)
        text = _file_text(name, chosen, notes=notes)
        if text is not None:
            texts[name] = text
            entries[name] = chosen.evaluation.entry
    missing = tuple(name for name in SERVER_FILES if name not in texts)
    if texts and missing:
        notes.append(f"the server takes all its files at once; missing: {', '.join(missing)}")
    return Submission(to_zip(texts) if texts else b"", entries, missing, tuple(notes))


def to_zip(texts: Mapping[str, str]) -> bytes:
    """A zip file of texts in their order: equal texts, equal bytes, on any machine.

    Nothing is compressed, since what a compressor writes differs from one version to the next.
    """
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, text in texts.items():
            about = zipfile.ZipInfo(name, date_time=_DATE)
            about.create_system = 3  # Unix, also where this runs on another system
            about.external_attr = 0o644 << 16
            archive.writestr(about, text.encode())
    return data.getvalue()


def _candidates(
    evaluations: Sequence[Evaluation],
    *,
    inputs: Mapping[str, StageInput],
    tasks: Mapping[str, Task],
) -> Iterator[tuple[str, _Candidate]]:
    for evaluation in (item for item in evaluations if not item.is_on_other_data):
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
    if cut := chosen.evaluation.cut_on(""):
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
    """The file's content, or None where its ids are not what the server numbers its rows by."""
    candidate.file.read()  # which compares it with the manifest
    predictions = read_lines(candidate.file.url)
    fault = _id_fault(predictions)
    if fault:
        notes.append(
            f"{name}: left out: {candidate.evaluation.entry} has {len(predictions):,} predictions, "
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
    """What is wrong with the ids, or "" where they are 0 to n - 1 in any order."""
    ids = [str(item["id"]) for item in predictions]
    known = set(ids)
    expected = {str(number) for number in range(len(ids))}
    if not ids:
        return "none"
    if known == expected:
        return ""
    if len(known) < len(ids):
        twice = [item for item, count in Counter(ids).items() if count > 1][:_SHOWN]
        return f"ids twice: {', '.join(twice)}"
    strange = [item for item in ids if item not in expected][:_SHOWN]
    lacking = [str(number) for number in range(len(ids)) if str(number) not in known][:_SHOWN]
    return f"with ids such as {', '.join(strange)} and without {', '.join(lacking)}"


def _answer(prediction: Mapping[str, Any], candidate: _Candidate) -> str:
    """As the server wants it: the label's name or number, or a number with three decimals."""
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
