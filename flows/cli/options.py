"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from flows.cli.completion import (
    artifact_names,
    recipe_names,
    runner_names,
    stage_names,
    step_names,
    task_names,
)
from flows.recipes.errors import format_validation_error
from flows.recipes.loader import default_store
from flows.store.artifacts import ArtifactStore
from model.tasks import Task, task_of
from pipelines.runners.launch import RUNNERS
from schemas.errors import UsageError
from schemas.finetune_configs import ExamplesConfig

_ENGINES = ("prefect", "local")


def _check_engine(name: str) -> str:
    if name not in _ENGINES:
        raise UsageError(f"--engine: expected {' or '.join(_ENGINES)}, got {name!r:.80}")
    return name


def _known_runner(name: str | None) -> str | None:
    if name is not None and name not in RUNNERS:
        raise UsageError(f"--runner {name}: choose one of {', '.join(RUNNERS)}")
    return name


RecipeArgument = Annotated[
    str,
    typer.Argument(
        help="A recipe file, or the name of a packaged one.", autocompletion=recipe_names
    ),
]
ArtifactArgument = Annotated[
    str,
    typer.Argument(
        help="Id, cache key, ref (RECIPE/STAGE), step of the newest run (evaluate.cola), stage "
        "(its newest), or path.",
        autocompletion=artifact_names,
    ),
]
TaskArgument = Annotated[
    str,
    typer.Argument(help="A task, such as sst-2, squad-1.1, conll-2003.", autocompletion=task_names),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="WHAT=COLUMN",
        help="Where the task's files have what: a column's name, or its number from 0. Of texts: "
        "text (or text_a, text_b), label or score, id; of tagged words: words, tags.",
    ),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="KEY=VALUE",
        help="With --column, how lines are cut: delimiter=tab, comma, semicolon or spaces; "
        "header=false; quoted=false; comment_prefix=#.",
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Names of the labels or tags that the files hold as numbers, in the order of the "
        "numbers from 0, with commas between: O,B-PER,I-PER. Default: the names in the file.",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The artifact store: a folder or a memory://, s3:// or gs:// URL. Else what the "
        "recipe says, $BERTLOOM_STORE, or ./store.",
    ),
]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe."),
]
RebuildOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        help="Build this stage even if it is there; or: all.",
        autocompletion=stage_names,
    ),
]
UntilOption = Annotated[
    str,
    typer.Option(
        metavar="STAGE",
        help="Run this stage and what it needs, no more.",
        autocompletion=step_names,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        help="prefect, or local: in this process, without a server.",
        autocompletion=lambda incomplete: [e for e in _ENGINES if e.startswith(incomplete)],
        callback=_check_engine,
    ),
]
RunnerOption = Annotated[
    str | None,
    typer.Option(
        help="Where Beam runs: local, threads, portable, dataflow, flink, spark.",
        autocompletion=runner_names,
        callback=_known_runner,
    ),
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Worker processes on this machine.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllOption = Annotated[bool, typer.Option("--all", help="Leave nothing out.")]


def open_store(root: str | None) -> ArtifactStore:
    """The store that is named, or the default one; it has to be there."""
    return ArtifactStore(root or default_store(), create=False)


def parse_columns(
    columns: Sequence[str] | None, table: Sequence[str] | None, labels: str | None
) -> dict[str, Any]:
    """Return the values of `--column`, `--table` and `--labels` as fields of `ExamplesConfig`.

    Raises:
        UsageError: one is not of the form NAME=VALUE, or is given twice.
    """
    found: dict[str, dict[str, Any]] = {"columns": {}, "file_format": {}}
    for option, field, given in (("column", "columns", columns), ("table", "file_format", table)):
        for text in given or ():
            name, equals, value = text.partition("=")
            if not (name and equals and value):
                example = "text=review or words=1" if option == "column" else "header=false"
                raise UsageError(f"--{option} {text}: expected NAME=VALUE, such as {example}")
            if name in found[field]:
                raise UsageError(f"--{option} {text}: {name} is given twice")
            is_number = option == "column" and value.isascii() and value.isdigit()
            truths = {"true": True, "false": False} if option == "table" else {}
            found[field][name] = int(value) if is_number else truths.get(value, value)
    names = {"labels": [name.strip() for name in labels.split(",")]} if labels else {}
    return {field: values for field, values in found.items() if values} | names


def task_with_columns(
    task: Task, columns: Sequence[str] | None, table: Sequence[str] | None, labels: str | None
) -> Task:
    """Return the task with the columns and labels of `--column`, `--table` and `--labels`.

    Raises:
        ConfigError: The task has no such columns or labels.
        UsageError: A value cannot be used.
    """
    given = parse_columns(columns, table, labels)
    if not given:
        return task
    try:
        return task_of(ExamplesConfig.model_validate({"task": task.name, "data_dir": ".", **given}))
    except ValidationError as error:
        raise UsageError(
            f"--column, --table or --labels: {format_validation_error(error)}"
        ) from error
