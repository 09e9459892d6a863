"""The command `finetune`."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from flows.cli import options
from flows.cli.console import echo_raw
from flows.cli.plan import print_plan
from flows.cli.progress import StepPrinter
from flows.cli.run import print_results
from flows.model_loading import checkpoint_folder
from flows.recipes.errors import format_validation_error
from flows.recipes.loader import recipe_from
from flows.running import run_recipe
from model.build_examples import check_files
from model.tasks import find_task
from schemas.errors import BertloomError, ConfigError, UsageError, raise_all
from schemas.finetune_configs import ExamplesConfig

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
