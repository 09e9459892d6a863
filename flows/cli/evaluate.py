"""The command `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from flows.cli import options
from flows.cli.console import write_file
from flows.cli.tables import print_result, table
from flows.formatting import format_metric
from flows.model_loading import open_predictors
from model.task_types.by_name import TASK_TYPES
from model.task_types.prediction_files import check_ids, to_lines
from model.task_types.squad_metrics import (
    official_figures,
    read_no_answer_probabilities,
    texts_by_id,
)
from model.tasks import Task, find_task
from model.tasks.examples import examples_of_file
from model.tasks.reduced_data import cut_split, split_text
from schemas.errors import ConfigError, PredictionsError, UsageError


@options.use_option_names(options.TASK_FILE_OPTIONS)
def evaluate(
    task: options.TaskName,
    references: Annotated[str, typer.Argument(help="Path or URL of a file with answers.")],
    predictions: Annotated[
        str | None,
        typer.Option(
            help="Saved predictions to score: bertloom's JSON lines, SQuAD's JSON of answers, "
            "GLUE's index and prediction, CoNLL columns with the tag last."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Or a fine-tuned model: artifact of the store, folder or URL."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split whose layout the file has.")] = "dev",
    columns: options.Columns = None,
    table_format: options.FileFormat = None,
    labels: options.Labels = None,
    na_prob_file: Annotated[
        str | None,
        typer.Option(
            help="With --predictions of squad-2.0: official file of probabilities (or odds) of no "
            "answer. Prints the best thresholds too, as the official script does."
        ),
    ] = None,
    na_prob_thresh: Annotated[
        float, typer.Option(help="With --na-prob-file: above it, a question has no answer.")
    ] = 1.0,
    allow_task_mismatch: Annotated[
        bool,
        typer.Option(
            "--allow-task-mismatch", help="Score a --model that was fine-tuned for another task."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this file.")] = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Score predictions, or a fine-tuned model, on a file of a task."""
    if (predictions is None) == (model is None):
        raise UsageError("expected one of --predictions FILE and --model MODEL")
    if predictions is None and na_prob_file is not None:
        raise UsageError("--na-prob-file requires --predictions")
    if model is None and out is not None:
        raise UsageError("--out requires --model")
    chosen = options.task_with_columns(find_task(task), columns, table_format, labels)
    if na_prob_file is not None and not chosen.has_unanswerable:
        raise ConfigError(f"--na-prob-file: expected squad-2.0, got {chosen.name}")
    if model is not None:
        examples, counts, answers = answer_file(
            chosen, references, model=model, split=split, store=store,
            allow_task_mismatch=allow_task_mismatch,
        )  # fmt: skip
    else:
        examples, counts = examples_of_file(chosen, references, split=split)
        answers = TASK_TYPES[chosen.type].read_predictions(str(predictions), examples, task=chosen)
    if out is not None:
        write_file(out, to_lines(answers))
    metrics = _score(chosen, examples, answers, where=references)
    official: dict[str, float] = {}
    if na_prob_file is not None:
        official = official_figures(
            examples, texts_by_id(answers), read_no_answer_probabilities(na_prob_file),
            threshold=na_prob_thresh,
        )  # fmt: skip
    cut = _describe_cut(chosen, examples, split)
    scores = {"metrics": metrics, "counts": counts, "official": official or None}
    rows = [(name, format_metric(name, value)) for name, value in metrics.items()]
    rows += [(name, _format_official(name, value)) for name, value in official.items()]
    rows += [(name, f"{count:,}") for name, count in counts.items()]
    print_result(
        {"task": chosen.name, **scores, "cut": cut},
        table(("", ""), rows, right=(1,)),
        *([f"not the whole split: {cut}"] if cut else []),
        as_json=as_json,
    )


def answer_file(
    task: Task,
    file: str,
    *,
    model: str,
    split: str,
    store: str | None,
    allow_task_mismatch: bool = False,
) -> tuple[pa.Table, dict[str, int], list[dict[str, Any]]]:
    """Return the examples of a file, counts of its rows, and the answers of a model.

    Raises:
        ConfigError: The model was fine-tuned for another task, or its labels differ.
        TaskDataError: The file cannot be used.
    """
    predictors = open_predictors(model, store=store)
    labels = predictors[0].labels
    _check_task(task, predictors[0].task, labels, model, allow_task_mismatch=allow_task_mismatch)
    examples, counts = examples_of_file(task, file, split=split, labels=labels)
    unknown = counts.get("rows-dropped-label-not-of-the-model", 0)
    if unknown and not allow_task_mismatch:
        raise ConfigError(
            f"{file}: expected labels of {model} ({', '.join(labels)}), got others in "
            f"{unknown:,} of {counts['rows-in']:,} rows. Pass a file of its task, or "
            "--allow-task-mismatch to drop those rows"
        )
    from model.finetuning.prediction import answer  # loads torch

    return examples, counts, answer(predictors, examples, progress=f"{split} of {task.name}")


def _check_task(
    task: Task, own: Task, labels: Sequence[str], model: str, *, allow_task_mismatch: bool
) -> None:
    """Raise ConfigError if a model was not fine-tuned for a task.

    A task without training data, such as GLUE's diagnostic set, accepts models with its labels.
    """
    can_answer = (task.type, task.choices) == (own.type, own.choices)
    if task.type == "classification" and task.labels:
        can_answer = can_answer and set(task.labels) == set(labels)
    is_trained = task.name == own.name or "train" not in task.splits or allow_task_mismatch
    if not (can_answer and is_trained):
        expected = f"{task.name} ({', '.join((task.type, *task.labels))})"
        got = f"{own.name} ({', '.join((own.type, *labels))})"
        hint = ", or --allow-task-mismatch" if can_answer else ""
        raise ConfigError(
            f"{model}: expected a model of {expected}, got one that was fine-tuned for {got}. Pass "
            f"a model of that task{hint}"
        )


def _score(
    task: Task, examples: pa.Table, answers: list[dict[str, Any]], *, where: str
) -> dict[str, float]:
    """Return metrics from 0 to 1."""
    task_type = TASK_TYPES[task.type]
    if not task_type.is_answered(examples):
        raise PredictionsError(
            f"{where}: expected an answer in every example. Pass a file with answers, such as dev; "
            "`bertloom predict --file` predicts without"
        )
    if task.type != "span":  # the official script counts missing spans as 0
        check_ids(answers, examples, where="the predictions")
    metrics = task_type.score(examples, answers, task=task)
    return {name: float(value) for name, value in metrics.items()}


def _describe_cut(task: Task, examples: pa.Table, split: str) -> str:
    """Return how much of the official split the examples are; "" for all of it."""
    kept = sum(map(len, examples["sentence_lengths"])) if task.type == "tagging" else len(examples)
    cut = cut_split(kept, left_out=0, split=split, task=task, data="")
    return split_text(split, cut) if cut else ""


def _format_official(name: str, value: float) -> str:
    """Format a figure of SQuAD 2.0's script: a count, a threshold, or a percentage."""
    digits = 0 if name.endswith("total") else 6 if name.endswith("thresh") else 3
    return f"{value:,.{digits}f}"
