"""The command `predict`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import options
from flows.cli.console import echo, echo_raw
from flows.model_loading import open_predictors
from model.tasks import Task
from model.tasks.examples import Questions, examples_of_file, make_questions
from schemas.errors import PredictionsError, UsageError

if TYPE_CHECKING:
    from model.finetuning.prediction import Predictor

_MAX_ERRORS = 5
_DROPPED = "rows-dropped-"


@options.use_option_names(options.TASK_FILE_OPTIONS)
def predict(
    model: Annotated[
        str,
        typer.Argument(
            help="Fine-tuned model: artifact (RECIPE/evaluate.ENTRY for its best model, or "
            "RECIPE/finetune.ENTRY.TRIAL), folder or URL."
        ),
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts. Default: lines of standard input.")
    ] = None,
    text_pair: Annotated[str | None, typer.Option(help="Second text of a pair.")] = None,
    question: Annotated[str | None, typer.Option(help="Question about the text.")] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option("--choice", help="Candidate continuation of the text (repeatable)."),
    ] = None,
    file: Annotated[str | None, typer.Option(help="Path or URL of a file of the task.")] = None,
    split: Annotated[str, typer.Option(help="Split whose layout the --file has.")] = "test",
    columns: options.Columns = None,
    table: options.FileFormat = None,
    labels: options.Labels = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Predict with a fine-tuned model: one answer per text."""
    predictors = open_predictors(model, store=store)
    task = predictors[0].task
    if file is not None:
        if texts or text_pair or question or choices:
            raise UsageError("--file: expected no texts, --text-pair, --question or --choice")
        task = options.task_with_columns(task, columns, table, labels)
        questions = read_questions(task, file, split=split, labels=predictors[0].labels)
    elif columns or table or labels:
        raise UsageError("--column, --table and --labels require --file")
    else:
        parts = {"text-pair": text_pair, "question": question, "choice": choices}
        questions = make_questions(task, texts or decode_lines(sys.stdin.buffer), parts)
    for line in answer_lines(predictors, questions, as_json=as_json):
        echo_raw(line)


def decode_lines(source: Iterable[bytes]) -> list[str | None]:
    """Return lines without their ends; None for a line that is not UTF-8."""
    lines: list[str | None] = []
    for line in source:
        try:
            lines.append(line.removesuffix(b"\n").removesuffix(b"\r").decode())
        except UnicodeDecodeError:
            lines.append(None)
    return lines


def read_questions(task: Task, file: str, *, split: str, labels: Sequence[str]) -> Questions:
    """Return the examples of a file of a task; print how many rows cannot be used."""
    examples, counts = examples_of_file(task, file, split=split, labels=labels)
    reasons = [
        f"{name.removeprefix(_DROPPED)} {count:,}"
        for name, count in sorted(counts.items())
        if name.startswith(_DROPPED)
    ]
    if reasons:
        total, dropped = counts["rows-in"], counts["rows-in"] - counts["rows-kept"]
        text = f"{dropped:,} of {total:,} rows get no answer: {', '.join(reasons)}"
        echo(f"{file}: {text}", err=True)
    return Questions(examples, {})


def answer_lines(
    predictors: Sequence[Predictor], questions: Questions, *, as_json: bool
) -> Iterator[str]:
    """Yield a line for each text, in order: the answer with its probability, or an error.

    Raises:
        PredictionsError: A text could not be used; raised after the last line.
    """
    from model.finetuning.prediction import answer  # loads torch

    examples, errors = questions
    predictions = answer(predictors, examples) if len(examples) else []
    task = predictors[0].task
    answered = zip(examples.to_pylist(), map(task.in_words, predictions), strict=True)
    for number in range(len(examples) + len(errors)):
        if number not in errors:
            row, prediction = next(answered)
            in_json = as_json and json.dumps(prediction, sort_keys=True, ensure_ascii=False)
            yield in_json or _answer_text(task, row, prediction)
        elif as_json:
            yield json.dumps({"id": str(number), "error": f"line {number + 1}: {errors[number]}"})
        else:
            yield f"(not answered: {errors[number]})"
    if errors:
        shown = [f"line {number + 1}: {text}" for number, text in errors.items()][:_MAX_ERRORS]
        more = f"; and {len(errors) - len(shown):,} more" if len(errors) > len(shown) else ""
        total = len(examples) + len(errors)
        raise PredictionsError(
            f"{len(errors):,} of {total:,} lines were not answered: {'; '.join(shown)}{more}"
        )


def _answer_text(task: Task, row: Mapping[str, Any], prediction: Mapping[str, Any]) -> str:
    """Return an answer, and after a tab its probability in percent."""
    if task.type == "regression":
        return f"{prediction['score']:.3f}"
    if task.type == "tagging":
        pairs = zip(row["words"], prediction["tags"], strict=True)
        return " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)
    if task.type == "span":
        text, candidates = prediction["text"], prediction["n_best"]
        probability = next((c["probability"] for c in candidates if c["text"] == text), 0.0)
        return f"{text or '(no answer)'}\t{probability:.1%}"
    label = prediction["label"]
    text = label if isinstance(label, str) else row["continuations"][label]
    return f"{text}\t{prediction['probabilities'][label]:.1%}"
