"""What a fine-tuned model says of texts and files, and how right it is, for the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from flows.cli.asked_texts import AskedTexts
from flows.cli.options import open_store
from flows.cli.task_recipes import checkpoint_folder
from flows.lineage.names import resolve
from model.processes.core_share import bound_spinning
from model.task_types import TASK_TYPES
from model.task_types.official_predictions import read_any
from model.task_types.prediction_files import check_ids, is_answered, to_lines
from model.task_types.squad_metrics import texts_by_id
from model.task_types.squad_no_answer import official_figures, read_no_answer_probabilities
from model.tasks import Task, find_task
from model.tasks.cut_data import cut_split, split_text
from model.tasks.file_examples import examples_of_file
from schemas.errors import ArtifactNotFoundError, ConfigError, PredictionsError
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from model.finetuning.prediction import Predictor

_SHOWN = 5


class Score(NamedTuple):
    """What came of it."""

    task: str
    metrics: dict[str, float]
    """Shares of 1 by name."""

    counts: dict[str, int]
    """Rows of the gold file: `rows-in`, `rows-kept`, `rows-dropped-REASON`."""

    official: dict[str, float] | None = None
    """What SQuAD 2.0's own script prints of probabilities of no answer, in percent."""

    cut: str = ""
    """`500 of 872 dev rows`, where the file is not the whole official split."""


class NoAnswer(NamedTuple):
    """How sure saved predictions of SQuAD 2.0 are that a question has no answer."""

    file: str
    threshold: float
    """Above it a question counts as answered with ""."""


def score_predictions(
    task: str, gold: str, *, predictions: str, split: str, no_answer: NoAnswer | None = None
) -> Score:
    """Score saved predictions against a file of a task.

    Raises:
        ConfigError: probabilities of no answer for a task that always has one.
        ExamplesError, PredictionsError: a file cannot be used, or they do not belong together.
    """
    found = find_task(task)
    if no_answer is not None and not found.has_unanswerable:
        raise ConfigError(
            f"--na-prob-file: every question of {found.name} has an answer; it is for squad-2.0"
        )
    examples, counts = examples_of_file(found, gold, split=split)
    read = read_any(predictions, examples, task=found)
    score = _score(found, examples, read, counts, split=split, where=gold)
    if no_answer is None:
        return score
    figures = official_figures(
        examples,
        texts_by_id(read),
        read_no_answer_probabilities(no_answer.file),
        threshold=no_answer.threshold,
    )
    return score._replace(official=figures)


def score_model(
    task: str,
    gold: str,
    *,
    model: str,
    split: str,
    out: Path | None,
    store: str | None,
    force: bool = False,
) -> Score:
    """Ask a model about a file of a task, and score what it says.

    Args:
        force: ask it though it was tuned on another task, or does not know every label of the file.

    Raises:
        ConfigError: it was tuned on another task; with `force`, it gives answers that the task has
            not.
        ExamplesError, PredictionsError: the file cannot be used, or has no answers.
    """
    predictors = open_predictors(model, store=store)
    from model.finetuning.prediction import (
        answer,  # loads torch, for which that has seen to the threads
    )

    found = find_task(task)
    own = predictors[0].task
    labels = predictors[0].labels
    _check_task(found, own, labels=labels, model=model, force=force)
    examples, counts = examples_of_file(found, gold, split=split, labels=labels)
    if (strange := counts.get("rows-dropped-label-not-of-the-model", 0)) and not force:
        raise ConfigError(
            f"{gold}: {strange:,} of {counts['rows-in']:,} rows have a label that {model} does not "
            f"know (it knows {', '.join(labels)}), and would count nothing: give a file of its own "
            "task, or leave those rows out with --force"
        )
    said = answer(predictors, examples, progress=f"{split} of {task}")
    if out is not None:
        out.write_bytes(to_lines(said))
    return _score(found, examples, said, counts, split=split, where=gold)


def _check_task(task: Task, own: Task, *, labels: Sequence[str], model: str, force: bool) -> None:
    """See that a model's answers are those of a task.

    A task without training data of its own, such as GLUE's diagnostic set, is for the models of
    other tasks with its labels.
    """
    where = f"{model} was fine-tuned for {own.name} ({own.kind})"
    alike = task.kind == own.kind and task.choices == own.choices
    if not alike or (
        task.labels and task.kind == "classification" and set(task.labels) != set(labels)
    ):
        answers = f", its labels are {', '.join(labels)}" if labels else ""
        expected = f" with the labels {', '.join(task.labels)}" if task.labels else ""
        raise ConfigError(
            f"{where}{answers}; {task.name} is {task.kind}{expected}: choose a model of that task"
        )
    if task.name != own.name and "train" in task.splits and not force:
        raise ConfigError(
            f"{where}, not for {task.name}, so that its score would say nothing of {task.name}: "
            "choose a model of that task, or give --force to score it all the same"
        )


def _score(
    task: Task,
    examples: pa.Table,
    predictions: list[dict[str, Any]],
    counts: dict[str, int],
    *,
    split: str,
    where: str,
) -> Score:
    if not is_answered(task.kind, examples):
        raise PredictionsError(
            f"{where}: not every example has an answer to compare with: expected a file with them, "
            "such as dev; `bertloom predict --file` answers one without"
        )
    if task.kind != "span":  # whose official scorer goes by id, and counts what is missing as 0
        check_ids(predictions, examples, where="the predictions")
    metrics = TASK_TYPES[task.kind].score(examples, predictions, task=task)
    kept = sum(map(len, examples["sentence_lengths"])) if task.kind == "tagging" else len(examples)
    cut = cut_split(kept, left_out=0, split=split, task=task, data="")
    return Score(
        task.name,
        {name: float(value) for name, value in metrics.items()},
        counts,
        cut=split_text(split, cut) if cut else "",
    )


def open_predictors(model: str, *, store: str | None) -> list[Predictor]:
    """The model that a text names, or the models of an ensemble.

    Raises:
        ConfigError: there is none of that name.
        CheckpointError: it was not fine-tuned here.
    """
    bound_spinning()  # before the next line loads torch
    from model.finetuning.prediction import Predictor

    folders, threshold = _models(model, store=store)
    predictors = [Predictor.open(folder) for folder in folders]
    if threshold is None:
        return predictors
    return [dataclasses.replace(predictor, threshold=threshold) for predictor in predictors]


def _models(model: str, *, store: str | None) -> tuple[list[str], float | None]:
    """Folders of the models, and the threshold that an evaluation tuned for them together."""
    if (Path(model) / "config.json").is_file() or "://" in model:
        return [model], None
    try:
        opened = open_store(store)
        manifest = resolve(model, store=opened)
    except ArtifactNotFoundError as error:
        raise ConfigError(
            f"{model}: no folder with a config.json, and no artifact: {error}"
        ) from error
    if manifest.stage != "evaluate":
        return [checkpoint_folder(model, store=store)], None
    made_of = {ref.name: ref.manifest for ref in manifest.inputs}
    members = [opened.read_manifest(made_of[name]) for name in manifest.statistics["members"]]
    folders = [_folder_of(member, root=opened.url(member.data)) for member in members]
    return folders, float(manifest.statistics["threshold"])


def _folder_of(manifest: Manifest, *, root: str) -> str:
    if manifest.statistics.get("method") == "majority":
        raise ConfigError(
            f"{manifest.artifact_id} is a majority, which is no model: it always answers "
            f"{manifest.statistics.get('majority')}"
        )
    return root


def file_as_examples(
    task: str, file: str, *, split: str, labels: Sequence[str]
) -> tuple[pa.Table, str]:
    """The examples of a file of a task, and which rows of it are none ("" where all are)."""
    examples, counts = examples_of_file(find_task(task), file, split=split, labels=labels)
    lost = [
        f"{name.removeprefix('rows-dropped-')} {count:,}"
        for name, count in sorted(counts.items())
        if name.startswith("rows-dropped-")
    ]
    if not lost:
        return examples, ""
    without = counts["rows-in"] - counts["rows-kept"]
    told = f"{without:,} of {counts['rows-in']:,} rows get no answer: {', '.join(lost)}"
    return examples, f"{file}: {told}"


def ask(predictors: Sequence[Predictor], asked: AskedTexts, *, as_json: bool) -> Iterator[str]:
    """A line for each text, in order: the answer and how sure the model is, or why there is none.

    Raises:
        PredictionsError: after the last line, if some text could not be asked about; says which.
    """
    answers = iter(_answers(predictors, asked.examples, as_json=as_json))
    for number in range(asked.size):
        fault = asked.faults.get(number)
        if fault is None:
            yield next(answers)
        elif as_json:
            yield json.dumps({"id": str(number), "error": f"line {number + 1}: {fault}"})
        else:
            yield f"(not answered: {fault})"
    if asked.faults:
        told = [f"line {number + 1}: {fault}" for number, fault in asked.faults.items()]
        more = f"; and {len(told) - _SHOWN:,} more" if len(told) > _SHOWN else ""
        raise PredictionsError(
            f"{len(told):,} of {asked.size:,} lines were not answered: "
            f"{'; '.join(told[:_SHOWN])}{more}"
        )


def _answers(
    predictors: Sequence[Predictor], examples: pa.Table, *, as_json: bool
) -> Iterator[str]:
    from model.finetuning.prediction import answer

    if not len(examples):
        return
    kind = predictors[0].task.kind
    for row, said in zip(examples.to_pylist(), answer(predictors, examples), strict=True):
        if as_json:
            yield json.dumps(said, sort_keys=True, ensure_ascii=False)
        elif kind == "regression":
            yield f"{said['score']:.3f}"
        elif kind == "span":
            # Where the threshold decides, it need not be the first of them.
            shares = (
                best["probability"] for best in said["n_best"] if best["text"] == said["text"]
            )
            yield f"{said['text'] or '(no answer)'}\t{next(shares, 0.0):.3f}"
        elif kind == "tagging":
            pairs = zip(row["words"], said["tags"], strict=True)
            yield " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)
        else:
            label = said["label"]
            chosen = label if isinstance(label, str) else row["continuations"][label]
            shares = said["probabilities"]
            sure = shares[label]
            yield f"{chosen}\t{sure:.3f}"
