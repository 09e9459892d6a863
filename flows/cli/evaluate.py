"""`bertloom evaluate`: how right saved predictions, or a fine-tuned model, are on a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import typer

from flows.cli.console import print_json, print_lines
from flows.cli.model_loading import answers, open_predictors
from flows.cli.options import (
    ColumnsOption,
    JsonOption,
    LabelsOption,
    StoreOption,
    TableOption,
    TaskArgument,
    task_with_columns,
)
from flows.formatting import format_metric
from model.task_types.by_name import TASK_TYPES
from model.task_types.prediction_files import check_ids, to_lines
from model.task_types.squad_metrics import (
    official_figures,
    read_no_answer_probabilities,
    texts_by_id,
)
from model.tasks import Task, find_task
from model.tasks.cut_data import cut_split, split_text
from model.tasks.examples import examples_of_file
from schemas.errors import ConfigError, PredictionsError, UsageError


class Score(NamedTuple):
    """The metrics of a file's examples, and how many there were."""

    task: str
    metrics: dict[str, float]
    """Shares of 1 by name."""

    counts: dict[str, int]
    """Rows of the references file: `rows-in`, `rows-kept`, `rows-dropped-REASON`."""

    official: dict[str, float] | None = None
    """What SQuAD 2.0's own script prints of probabilities of no answer, in percent."""

    cut: str = ""
    """`500 of 872 dev rows`, where the file is not the whole official split."""

    def lines(self) -> Iterator[str]:
        """Metrics in percent, and counts."""
        for metric, value in self.metrics.items():
            yield f"{metric:<24} {format_metric(metric, value):>8}"
        for figure, value in (self.official or {}).items():
            digits = 0 if figure.endswith("total") else 6 if figure.endswith("thresh") else 3
            yield f"{figure:<24} {value:8,.{digits}f}"
        for thing, count in self.counts.items():
            yield f"{thing:<24} {count:8,}"
        if self.cut:
            yield f"not the whole split: {self.cut}"


def evaluate(
    task: TaskArgument,
    references: Annotated[
        str, typer.Argument(help="File of the task with the correct answers: path or URL.")
    ],
    predictions: Annotated[
        str | None,
        typer.Option(
            help="Saved predictions to score: ours (JSON lines), SQuAD's JSON of answers, GLUE's "
            "index and prediction, CoNLL columns with the tag last."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Or a fine-tuned model to ask: artifact of the store, folder or URL."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split's layout the file has.")] = "dev",
    columns: ColumnsOption = None,
    table: TableOption = None,
    labels: LabelsOption = None,
    na_prob_file: Annotated[
        str | None,
        typer.Option(
            help="With --predictions of squad-2.0: the official file of probabilities (or odds) of "
            "no answer. Prints the best thresholds too, as the official script does."
        ),
    ] = None,
    na_prob_thresh: Annotated[
        float, typer.Option(help="With --na-prob-file: above it a question counts as not answered.")
    ] = 1.0,
    allow_task_mismatch: Annotated[
        bool,
        typer.Option(
            "--allow-task-mismatch", help="Score a --model that was fine-tuned for another task."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the model's predictions here, one JSON object a line.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score predictions, or a fine-tuned model, on a file of a task."""
    if (predictions is None) == (model is None):
        raise UsageError(
            "expected one of --predictions (saved ones to score) and --model (to be asked)"
        )
    if na_prob_file is not None and predictions is None:
        raise UsageError("--na-prob-file goes with --predictions: expected both")
    asked = task_with_columns(find_task(task), columns, table, labels)
    if predictions is None:
        found = score_model(
            asked,
            references,
            model=str(model),
            split=split,
            out=out,
            store=store,
            allow_task_mismatch=allow_task_mismatch,
        )
    elif out is not None:
        raise UsageError("--out keeps what a --model says: leave it out with --predictions")
    else:
        no_answer = (na_prob_file, na_prob_thresh) if na_prob_file is not None else None
        found = _score_predictions(
            asked, references, predictions=predictions, split=split, no_answer=no_answer
        )
    if as_json:
        print_json(found._asdict(), sort_keys=True)
    else:
        print_lines(found.lines())


def _score_predictions(
    task: Task,
    references: str,
    *,
    predictions: str,
    split: str,
    no_answer: tuple[str, float] | None,
) -> Score:
    """Score saved predictions.

    `no_answer`: SQuAD 2.0's file of probabilities of no answer, and the one above which a question
    counts as answered with "".
    """
    if no_answer is not None and not task.has_unanswerable:
        raise ConfigError(
            f"--na-prob-file: every question of {task.name} has an answer; it is for squad-2.0"
        )
    examples, counts = examples_of_file(task, references, split=split)
    read = TASK_TYPES[task.type].read_predictions(predictions, examples, task=task)
    score = _score(task, examples, read, counts, split=split, where=references)
    if no_answer is None:
        return score
    file, threshold = no_answer
    sure = read_no_answer_probabilities(file)
    figures = official_figures(examples, texts_by_id(read), sure, threshold=threshold)
    return score._replace(official=figures)


def score_model(
    task: Task,
    references: str,
    *,
    model: str,
    split: str,
    out: Path | None,
    store: str | None,
    allow_task_mismatch: bool = False,
) -> Score:
    """Ask a model about a file of a task, and score what it says.

    Args:
        allow_task_mismatch: Accept a model of another task, and labels that it does not know.

    Raises:
        ConfigError: The model was fine-tuned for another task, or its labels differ.
        TaskDataError, PredictionsError: the file cannot be used, or has no answers.
    """
    predictors = open_predictors(model, store=store)
    own = predictors[0].task
    labels = predictors[0].labels
    _check_task(task, own, labels=labels, model=model, allow_task_mismatch=allow_task_mismatch)
    examples, counts = examples_of_file(task, references, split=split, labels=labels)
    if (
        strange := counts.get("rows-dropped-label-not-of-the-model", 0)
    ) and not allow_task_mismatch:
        raise ConfigError(
            f"{references}: expected labels of {model} ({', '.join(labels)}), got others in "
            f"{strange:,} of {counts['rows-in']:,} rows. Pass a file of its task, or "
            "--allow-task-mismatch to drop those rows"
        )
    said = answers(predictors, examples, progress=f"{split} of {task.name}")
    if out is not None:
        out.write_bytes(to_lines(said))
    return _score(task, examples, said, counts, split=split, where=references)


def _check_task(
    task: Task, own: Task, *, labels: Sequence[str], model: str, allow_task_mismatch: bool
) -> None:
    """See that a model's answers are those of a task.

    A task without training data of its own, such as GLUE's diagnostic set, is for the models of
    other tasks with its labels.
    """
    where = f"{model} was fine-tuned for {own.name} ({own.type})"
    alike = task.type == own.type and task.choices == own.choices
    if not alike or (
        task.labels and task.type == "classification" and set(task.labels) != set(labels)
    ):
        answers = f", its labels are {', '.join(labels)}" if labels else ""
        expected = f" with the labels {', '.join(task.labels)}" if task.labels else ""
        raise ConfigError(
            f"{where}{answers}; {task.name} is {task.type}{expected}: choose a model of that task"
        )
    if task.name != own.name and "train" in task.splits and not allow_task_mismatch:
        raise ConfigError(
            f"{where}, not for {task.name}, so that its score would say nothing of {task.name}: "
            "choose a model of that task, or pass --allow-task-mismatch"
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
    task_type = TASK_TYPES[task.type]
    if not task_type.is_answered(examples):
        raise PredictionsError(
            f"{where}: not every example has an answer to compare with: expected a file with them, "
            "such as dev; `bertloom predict --file` answers one without"
        )
    if task.type != "span":  # whose official scorer goes by id, and counts what is missing as 0
        check_ids(predictions, examples, where="the predictions")
    metrics = task_type.score(examples, predictions, task=task)
    kept = sum(map(len, examples["sentence_lengths"])) if task.type == "tagging" else len(examples)
    cut = cut_split(kept, left_out=0, split=split, task=task, data="")
    return Score(
        task.name,
        {name: float(value) for name, value in metrics.items()},
        counts,
        cut=split_text(split, cut) if cut else "",
    )
