"""`bertloom finetune`: a recipe for one task, made of the command's options, and its run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from flows.cli.console import echo_raw
from flows.cli.model_loading import checkpoint_folder
from flows.cli.options import (
    ChangesOption,
    ColumnsOption,
    DryRunOption,
    EngineOption,
    LabelsOption,
    StoreOption,
    TableOption,
    TaskArgument,
    parse_columns,
)
from flows.cli.plan import print_plan
from flows.cli.progress import StepPrinter
from flows.cli.run import print_results
from flows.recipes.errors import format_validation_error
from flows.recipes.loader import recipe_from
from flows.run.preflight import check_examples
from flows.running import run_recipe
from model.tasks import find_task
from schemas.errors import BertloomError, ConfigError, UsageError, raise_all
from schemas.finetune_configs import ExamplesConfig

_NOT_IN_NAMES = re.compile(r"[^a-z0-9_.-]+")


def finetune(
    task: TaskArgument,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder with the official files of the task.")
    ] = None,
    data_files: Annotated[
        list[str] | None,
        typer.Option(
            "--data-file", metavar="SPLIT=PATH", help="File of one split, e.g. train=a.tsv."
        ),
    ] = None,
    columns: ColumnsOption = None,
    table: TableOption = None,
    labels: LabelsOption = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="What to start from: a folder or URL in Hugging Face's layout, or an artifact of "
            "the store (RECIPE/pretrain.PHASE)."
        ),
    ] = None,
    batch_size: Annotated[str, typer.Option(help="Batch sizes to try, e.g. 16,32.")] = "32",
    learning_rate: Annotated[str, typer.Option(help="Learning rates to try.")] = "5e-5,3e-5,2e-5",
    num_epochs: Annotated[str, typer.Option(help="Numbers of epochs to try, e.g. 3,4.")] = "3",
    restarts: Annotated[int, typer.Option(min=1, help="Trainings of each of them.")] = 1,
    max_seq_length: Annotated[
        int | None,
        typer.Option(min=8, help="Tokens of the longest sequence; else what suits the task."),
    ] = None,
    name: Annotated[str, typer.Option(help="Names the run; else finetune-TASK.")] = "",
    changes: ChangesOption = None,
    store: StoreOption = None,
    engine: EngineOption = "prefect",
    dry_run: DryRunOption = False,
    show_recipe: Annotated[
        bool, typer.Option("--show-recipe", help="Print the recipe this stands for, and end.")
    ] = False,
) -> None:
    """Fine-tune a checkpoint on one task: a grid with restarts, the best on dev evaluated."""
    found = find_task(task)
    examples = {"task": found.name, "data_dir": data_dir, "data_files": _files(data_files or ())}
    examples = {field: value for field, value in examples.items() if value}
    examples |= parse_columns(columns, table, labels)
    grid = {
        "batch_size": _numbers(batch_size, of=int, option="batch-size"),
        "learning_rate": _numbers(learning_rate, of=float, option="learning-rate"),
        "num_epochs": _numbers(num_epochs, of=int, option="num-epochs"),
    }
    folder = _checked(examples, checkpoint, store=store)
    entry = {
        "examples": found.name,
        "init_checkpoint": folder,
        **grid,
        "restarts": restarts,
        "max_seq_length": max_seq_length or found.max_seq_length,
    }
    recipe = {
        "name": name or _NOT_IN_NAMES.sub("-", f"finetune-{found.name}"),
        "build_examples": {found.name: examples},
        "finetune": {found.name: entry},
    }
    if show_recipe:
        echo_raw(yaml.safe_dump(recipe, sort_keys=False), nl=False)
        return
    loaded = recipe_from(
        recipe, where="bertloom finetune", folder=Path.cwd(), overrides=changes or (), store=store
    )
    if dry_run:
        print_plan(loaded)
        return
    print_results(loaded, run_recipe(loaded, listeners=[StepPrinter()], engine=engine))


def _checked(examples: dict[str, Any], checkpoint: str | None, *, store: str | None) -> str:
    """The folder of the checkpoint; all that is wrong with it and the data is said together."""
    faults: list[BertloomError] = []
    folder = ""
    if not {"data_dir", "data_files"} & examples.keys():
        faults.append(
            ConfigError(
                "--data-dir is missing: expected the folder with the official files of the task. "
                "Pass it, or --data-file SPLIT=PATH for each split"
            )
        )
    else:
        try:
            fault = check_examples(ExamplesConfig.model_validate(examples))
        except ValidationError as error:
            fault = ConfigError(format_validation_error(error))
        faults += [fault] if fault is not None else []
    if checkpoint is None:
        faults.append(
            ConfigError(
                "--checkpoint is missing: expected a folder in Hugging Face's layout or an "
                "artifact such as sample/pretrain.phase-2. From scratch, and much more, goes with "
                "a recipe: `bertloom init`"
            )
        )
    else:
        try:
            folder = checkpoint_folder(checkpoint, store=store)
        except BertloomError as error:
            faults.append(error)
    raise_all(faults)
    return folder


def _files(given: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        split, equals, path = text.partition("=")
        if not equals or not split or not path:
            raise UsageError(f"--data-file {text}: expected SPLIT=PATH, such as train=train.tsv")
        found.setdefault(split, []).append(path)
    return found


def _numbers(text: str, *, of: type[int] | type[float], option: str) -> list[int] | list[float]:
    try:
        return [of(part) for part in text.split(",")]
    except ValueError as error:
        expected = "whole numbers" if of is int else "numbers"
        raise UsageError(f"--{option} {text}: expected {expected}, with commas between") from error
