"""Commands that fine-tune, score and use models."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer
import yaml
from pydantic import ValidationError

from flows.cli import options
from flows.cli.console import echo, echo_raw, write_file
from flows.cli.plan import print_plan
from flows.cli.progress import StepPrinter
from flows.cli.run import print_results
from flows.cli.tables import print_result, table
from flows.formatting import format_metric
from flows.model_loading import checkpoint_folder, open_filler, open_predictors
from flows.recipes.errors import format_validation_error
from flows.recipes.loader import recipe_from
from flows.running import run_recipe
from model.build_examples import check_files
from model.task_results import split_text
from model.tasks import Task, find_task
from model.tasks.examples import Questions, examples_of_file, make_questions
from model.tasks.prediction_files import check_ids, to_lines
from model.tasks.split_build import cut_split
from model.tasks.task_types import TASK_TYPES
from schemas.errors import BertloomError, ConfigError, PredictionsError, UsageError, raise_all
from schemas.finetune_configs import ExamplesConfig

if TYPE_CHECKING:
    from model.filling import FilledText
    from model.finetuning.prediction import Predictor


_NOT_IN_NAMES = re.compile(r"[^a-z0-9_.-]+")
"""Characters that names in recipes cannot have."""

FIELD_OPTIONS = {
    **options.TASK_FILE_OPTIONS,
    "data_dir": "--data-dir",
    "data_files": "--data-file",
    "dev_fraction": "--dev-fraction",
    "init_checkpoint": "--checkpoint",
    "batch_size": "--batch-size",
    "learning_rate": "--learning-rate",
    "num_epochs": "--num-epochs",
    "restarts": "--restarts",
    "max_seq_length": "--max-seq-length",
    "name": "--name",
}
"""Option by field of the recipe that the command makes."""


@options.use_option_names(FIELD_OPTIONS)
def finetune(
    task: options.TaskName,
    checkpoint: Annotated[
        str,
        typer.Option(
            help="Checkpoint to start from: folder or URL in Hugging Face's layout, or artifact "
            "(RECIPE/pretrain.PHASE)."
        ),
    ],
    data_dir: Annotated[str | None, typer.Option(help="Folder with the task's files.")] = None,
    data_files: Annotated[
        list[str] | None,
        typer.Option(
            "--data-file", metavar="SPLIT=PATH", help="File of one split, e.g. train=a.tsv."
        ),
    ] = None,
    dev_fraction: Annotated[
        float,
        typer.Option(
            min=0, help="Fraction of the training rows to use as dev, without a dev file."
        ),
    ] = 0.0,
    columns: options.Columns = None,
    table: options.FileFormat = None,
    labels: options.Labels = None,
    batch_size: Annotated[str, typer.Option(help="Batch sizes to try, e.g. 16,32.")] = "32",
    learning_rate: Annotated[str, typer.Option(help="Learning rates to try.")] = "5e-5,3e-5,2e-5",
    num_epochs: Annotated[str, typer.Option(help="Numbers of epochs to try, e.g. 3,4.")] = "3",
    restarts: Annotated[int, typer.Option(min=1, help="Restarts of each combination.")] = 1,
    max_seq_length: Annotated[
        int | None, typer.Option(min=8, help="Maximum sequence length. Default: the task's.")
    ] = None,
    name: Annotated[str, typer.Option(help="Recipe name. Default: finetune-TASK.")] = "",
    overrides: options.Overrides = None,
    store: options.Store = None,
    engine: options.Engine = "auto",
    dry_run: options.DryRun = False,
    show_recipe: Annotated[
        bool, typer.Option("--show-recipe", help="Print the recipe of these options, and exit.")
    ] = False,
) -> None:
    """Fine-tune a checkpoint on one task: a grid with restarts, the best on dev evaluated."""
    if not data_dir and not data_files:
        raise UsageError("expected --data-dir FOLDER, or --data-file SPLIT=PATH for each split")
    files: dict[str, list[str]] = defaultdict(list)
    for split, path in options.parse_pairs("data-file", data_files, example="train=train.tsv"):
        files[split].append(path)
    resolved = find_task(task)
    examples = {"task": resolved.name, **options.parse_columns(columns, table, labels)}
    examples |= {"data_dir": data_dir} if data_dir else {}
    examples |= {"data_files": dict(files)} if files else {}
    examples |= {"dev_fraction": dev_fraction} if dev_fraction else {}
    grid = {
        "batch_size": _parse_numbers("batch-size", batch_size, int),
        "learning_rate": _parse_numbers("learning-rate", learning_rate, float),
        "num_epochs": _parse_numbers("num-epochs", num_epochs, int),
    }
    entry = {
        "examples": resolved.name,
        "init_checkpoint": _check_inputs(examples, checkpoint, store=store),
        **grid,
        "restarts": restarts,
        "max_seq_length": max_seq_length or resolved.max_seq_length,
    }
    recipe: dict[str, Any] = {
        "name": name or _NOT_IN_NAMES.sub("-", f"finetune-{resolved.name}"),
        "build_examples": {resolved.name: examples},
        "finetune": {resolved.name: entry},
    }
    loaded = recipe_from(
        recipe, where="bertloom finetune", folder=Path.cwd(), overrides=overrides or (), store=store
    )
    if show_recipe:
        fields = loaded.unexpanded.model_dump(mode="json", exclude_unset=True)
        echo_raw(yaml.safe_dump(fields, sort_keys=False).rstrip())
    elif dry_run:
        print_plan(loaded)
    else:
        started = time.monotonic()
        printer = StepPrinter()
        with printer.replace_printed_error():
            run_recipe(loaded, listeners=[printer], engine=engine)
        if printer.run is not None:
            print_results(printer.run, seconds=time.monotonic() - started)


def _check_inputs(examples: dict[str, Any], checkpoint: str, *, store: str | None) -> str:
    """Return the folder of the checkpoint; report what is wrong with it and the data together."""
    errors: list[BertloomError] = []
    try:
        check_files(ExamplesConfig.model_validate(examples))
    except ValidationError as error:
        errors.append(ConfigError(format_validation_error(error, ExamplesConfig)))
    except BertloomError as error:
        errors.append(error)
    folder = ""
    try:
        folder = checkpoint_folder(checkpoint, store=store)
    except BertloomError as error:
        errors.append(error)
    raise_all(errors)
    return folder


def _parse_numbers(option: str, text: str, number: Callable[[str], float]) -> list[float]:
    try:
        return [number(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--{option}: expected numbers such as 3,4, got {text!r}") from None


@options.use_option_names(options.TASK_FILE_OPTIONS)
def evaluate(
    task: options.TaskName,
    references: Annotated[str, typer.Argument(help="Path or URL of a file with answers.")],
    predictions: Annotated[
        str | None,
        typer.Option(
            help="Saved predictions to score: bertloom's JSON lines, or SQuAD's JSON of answers."
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
    if model is None and out is not None:
        raise UsageError("--out requires --model")
    chosen = options.task_with_columns(find_task(task), columns, table_format, labels)
    if model is not None:
        examples, counts, answers = answer_file(
            chosen, references, model=model, split=split, store=store,
            allow_task_mismatch=allow_task_mismatch,
        )  # fmt: skip
    else:
        examples, counts = examples_of_file(chosen, references, split=split)
        answers = TASK_TYPES[chosen.type].read_predictions(str(predictions))
    if out is not None:
        write_file(out, to_lines(answers))
    metrics = _score(chosen, examples, answers, where=references)
    cut = _describe_cut(chosen, examples, split)
    rows = [(name, format_metric(name, value)) for name, value in metrics.items()]
    rows += [(name, f"{count:,}") for name, count in counts.items()]
    print_result(
        {"task": chosen.name, "metrics": metrics, "counts": counts, "cut": cut},
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


def fill(
    text: Annotated[
        str | None,
        typer.Argument(help="Text with at least one [MASK]. Default: lines of standard input."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Pretrained model: artifact (RECIPE/pretrain.PHASE), or folder or URL in Hugging "
            "Face's layout. Default: the phase of the last run with the lowest perplexity.",
        ),
    ] = "",
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Candidates per mask.")] = 5,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Predict the masked tokens of a text."""
    lines = [text] if text is not None else decode_lines(sys.stdin.buffer)
    if not any(line is None or line.strip() for line in lines):
        raise PredictionsError("expected a text with [MASK], or lines on standard input, got none")
    filler = open_filler(model, store=store)
    for number, line in enumerate(lines, start=1):
        if line is None:
            raise PredictionsError(f"line {number} of standard input: expected UTF-8")
        if not line.strip():
            continue
        [filled] = filler.fill([line], k=top_k)
        if as_json:
            echo_raw(json.dumps(filled.as_json(), ensure_ascii=False))
        else:
            for shown in (filled.filled, *mask_lines(filled)):
                echo_raw(shown)


def mask_lines(text: FilledText) -> Iterator[str]:
    """Yield the most probable tokens of each mask, with probabilities in percent."""
    for number, candidates in enumerate(text.masks, start=1):
        mask = f"[MASK] {number}" if len(text.masks) > 1 else "[MASK]"
        tokens = ", ".join(f"{item.token} {item.probability:.1%}" for item in candidates)
        yield f"  {mask}: {tokens}"
