"""What a fine-tuned model says of texts and files, and how right it is, for the command line."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from flows.ancestry.resolution import resolve
from flows.commands.options import open_store
from flows.commands.task_recipes import checkpoint_folder
from model.core_share import bound_spinning
from model.kinds import kind_module
from model.kinds.official_predictions import read_any
from model.kinds.prediction_files import check_ids, is_answered, to_lines
from model.tasks import Task, find_task
from model.tasks.file_examples import examples_of_file
from schemas.arrow import EXAMPLES
from schemas.errors import ArtifactNotFoundError, ConfigError, PredictionsError
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from model.tuning.predictor import Predictor

_WORD = re.compile(r"\w+(?:[-'\u2019.]\w+)*|[^\w\s]")
"""Words as newspapers' corpora split them: punctuation apart, hyphens and apostrophes inside."""


class Score(NamedTuple):
    """What came of it."""

    task: str
    metrics: dict[str, float]
    """Shares of 1 by name."""

    counts: dict[str, int]
    """Rows of the gold file: `rows-in`, `rows-kept`, `rows-dropped-REASON`."""


def score_predictions(task: str, gold: str, *, predictions: str, split: str) -> Score:
    """Score saved predictions against a file of a task.

    Raises:
        ExamplesError, PredictionsError: a file cannot be used, or they do not belong together.
    """
    found = find_task(task)
    examples, counts = examples_of_file(found, gold, split=split)
    read = read_any(predictions, examples, task=found)
    return _score(found, examples, read, counts, where=gold)


def score_model(
    task: str, gold: str, *, model: str, split: str, out: Path | None, store: str | None
) -> Score:
    """Ask a model about a file of a task, and score what it says."""
    predictors = open_predictors(model, store=store)
    from model.tuning.predictor import answer  # loads torch, for which that has seen to the threads

    found = find_task(task)
    own = predictors[0].task
    if found.kind != own.kind:
        raise ConfigError(
            f"{model} was fine-tuned for {own.name} ({own.kind}), {task} is {found.kind}: choose a "
            "model of that kind"
        )
    examples, counts = examples_of_file(found, gold, split=split, labels=predictors[0].labels)
    said = answer(predictors, examples, progress=f"{split} of {task}")
    if out is not None:
        out.write_bytes(to_lines(said))
    return _score(found, examples, said, counts, where=gold)


def _score(
    task: Task,
    examples: pa.Table,
    predictions: list[dict[str, Any]],
    counts: dict[str, int],
    *,
    where: str,
) -> Score:
    if not is_answered(task.kind, examples):
        raise PredictionsError(
            f"{where}: not every example has an answer to compare with: expected a file with them, "
            "such as dev; `bertloom predict --file` answers one without"
        )
    if task.kind != "span":  # whose official scorer goes by id, and counts what is missing as 0
        check_ids(predictions, examples, where="the predictions")
    metrics = kind_module(task.kind).score(examples, predictions, task=task)
    return Score(task.name, {name: float(value) for name, value in metrics.items()}, counts)


def open_predictors(model: str, *, store: str | None) -> list[Predictor]:
    """The model that a text names, or the models of an ensemble.

    Raises:
        ConfigError: there is none of that name.
        CheckpointError: it was not fine-tuned here.
    """
    bound_spinning()  # before the next line loads torch
    from model.tuning.predictor import Predictor

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


def file_as_examples(task: str, file: str, *, split: str, labels: Sequence[str]) -> pa.Table:
    """The examples of a file of a task."""
    return examples_of_file(find_task(task), file, split=split, labels=labels)[0]


def texts_as_examples(
    task: Task,
    texts: Sequence[str],
    *,
    pair: str | None = None,
    question: str | None = None,
    choices: Sequence[str] = (),
) -> pa.Table:
    """Texts from the command line as examples of a task.

    Raises:
        ConfigError: a part that the task needs is missing, or one that it has no use for is given.
    """
    parts: tuple[tuple[str, object, bool], ...] = (
        ("pair", pair, task.is_pair and task.kind != "choice"),
        ("question", question, task.kind == "span"),
        ("choice", choices or None, task.kind == "choice"),
    )
    for name, value, is_needed in parts:
        if value is not None and not is_needed:
            raise ConfigError(f"--{name}: {task.name} ({task.kind}) has no use for it")
        if value is None and is_needed and not (name == "pair" and _has_tabs(texts)):
            more = " (or a tab between the two texts)" if name == "pair" else ""
            raise ConfigError(f"--{name} is missing: {task.name} ({task.kind}) needs it{more}")
    rows = [
        _row(task, number, text, pair=pair, question=question, choices=choices)
        for number, text in enumerate(texts)
    ]
    schema = EXAMPLES[task.kind]
    full = [{field.name: row.get(field.name) for field in schema} for row in rows]
    return pa.Table.from_pylist(full, schema=schema)


def _has_tabs(texts: Sequence[str]) -> bool:
    return all(text.count("\t") == 1 for text in texts)


def _row(
    task: Task,
    number: int,
    text: str,
    *,
    pair: str | None,
    question: str | None,
    choices: Sequence[str],
) -> dict[str, Any]:
    row: dict[str, Any] = {"id": str(number)}
    if task.kind == "choice":
        if len(choices) != task.choices:
            raise ConfigError(
                f"--choice: expected {task.choices} of them for {task.name}, found {len(choices)}"
            )
        return {**row, "context": text, "continuations": list(choices)}
    if task.kind == "span":
        return {**row, "title": "", "question": question, "context": text,
                "answers": [], "answer_starts": []}  # fmt: skip
    if task.kind == "tagging":
        words = _WORD.findall(text)
        if not words:
            raise ConfigError(f"{text!r}: no words to tag")
        return {**row, "sentence_lengths": [len(words)], "words": words}
    if task.is_pair and pair is None:
        text, _, pair = text.partition("\t")
    return {**row, "text_a": text, "text_b": pair}


def ask(predictors: Sequence[Predictor], examples: pa.Table, *, as_json: bool) -> Iterator[str]:
    """A line for each example: the answer, and how sure the model is."""
    from model.tuning.predictor import answer

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
