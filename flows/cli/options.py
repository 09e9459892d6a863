"""Arguments and options that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from flows.recipes.errors import format_validation_error
from flows.store.default_store import default_store
from model.tasks import TASKS, Task, task_of
from schemas.errors import UsageError
from schemas.field_names import use_field_names
from schemas.finetune_configs import ExamplesConfig

Recipe = Annotated[
    str,
    typer.Argument(help="Recipe file, or name of a packaged recipe."),
]
Artifact = Annotated[
    str,
    typer.Argument(
        help="Id, cache key, ref (RECIPE/STAGE), step of the newest run (evaluate.cola), stage "
        "for its newest artifact, or path.",
    ),
]
TaskName = Annotated[
    str,
    typer.Argument(help="Task, e.g. sst-2, squad-1.1, conll-2003."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="FIELD=COLUMN",
        help="Name of a column in the files, or its number from 0 in files without a header: "
        "sentence=review, label=3, words=1.",
    ),
]
FileFormat = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="KEY=VALUE",
        help="Format of text tables: delimiter=tab, comma or semicolon; header=false; "
        "quoted=false.",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Names of the labels or tags that the files store as numbers, in order from 0: "
        "O,B-PER,I-PER. Default: the names in the file.",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Artifact store: a folder or a memory://, s3:// or gs:// URL. Default: the recipe's "
        "store, $BERTLOOM_STORE or ./store.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe (repeatable)."),
]
Rebuild = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        help="Build this stage even if it is cached, or `all` (repeatable).",
    ),
]
Until = Annotated[
    str,
    typer.Option(
        metavar="STAGE",
        help="Run only this stage and everything upstream of it.",
    ),
]
Wiki = Annotated[str, typer.Option(help="Name of the wiki, e.g. simplewiki or enwiki.")]
DumpDate = Annotated[str, typer.Option(help="YYYYMMDD, or latest for the newest complete dump.")]
Mirror = Annotated[
    str | None,
    typer.Option(help="URL of a mirror. Default: $BERTLOOM_MIRROR or the official site."),
]
Engine = Annotated[
    Literal["auto", "prefect", "local"],
    typer.Option(
        help="prefect for a flow run, on the configured server or a temporary one; local for this "
        "process; auto for prefect where PREFECT_API_URL or the active profile names a server."
    ),
]
Runner = Annotated[
    Literal["local", "portable", "dataflow", "flink", "spark"] | None,
    typer.Option(help="Beam runner. Default: the recipe's."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes on this machine. Default: the recipe's.")
]
Nnodes = Annotated[
    int | None,
    typer.Option(
        "--nnodes",
        min=1,
        help="Number of machines that train. Start the same command on each, with a store folder "
        "that they share. Default: 1.",
    ),
]
NodeRank = Annotated[
    int | None,
    typer.Option(
        "--node-rank",
        min=0,
        help="Rank of this machine, from 0. Rank 0 runs the recipe. Default: $SLURM_NODEID or "
        "$GROUP_RANK.",
    ),
]
RdzvEndpoint = Annotated[
    str | None,
    typer.Option(
        "--rdzv-endpoint",
        metavar="HOST:PORT",
        help="Name of the machine with rank 0, and a free port of it.",
    ),
]
JoinTimeout = Annotated[
    float,
    typer.Option("--join-timeout", min=0.0, help="Seconds to wait for a machine that is missing."),
]
CardsRecipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Recipe whose `cards` section states licenses and attribution. Default: the recipe "
        "that built the artifact.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Publish even if the corpus changed beyond the recipe's limits."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
All = Annotated[bool, typer.Option("--all", help="Show all entries.")]


def store_option(root: str) -> str:
    """Return ` --store ROOT` for a command that is printed; "" for the default store."""
    return "" if root == default_store() else f" --store {shlex.quote(relative(root))}"


def relative(url: str) -> str:
    """Return a path relative to the working directory if it is below it."""
    return url.removeprefix(f"{Path.cwd()}/")


TASK_FILE_OPTIONS = {"columns": "--column", "file_format": "--table", "labels": "--labels"}
"""Options that describe the files of a task, by field of `ExamplesConfig`."""

_PAIR_FIELDS = ("columns", "data_files", "file_format")
"""Fields whose options have the form KEY=VALUE."""


@contextmanager
def use_option_names(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors name fields by the options of a command; a decorator of the command.

    Args:
        options: Option or argument by field, where `SPLIT` stands for the name of a split. Other
            fields keep their names.
    """

    def format_field(field: str) -> str:
        name, _, below = _strip_entry(field).partition(".")
        option = options.get(name)
        if option is None or not below:
            return option or field
        if "SPLIT" in option:
            return option.replace("SPLIT", below)
        return f"{option} {below}=" if name in _PAIR_FIELDS else option

    with use_field_names(format_field):
        yield


def _strip_entry(field: str) -> str:
    """Return the field of an entry named after a task or of decontaminate, or the field itself."""
    section, _, rest = field.partition(".")
    if section == "decontaminate":
        return rest
    if section not in ("build_examples", "finetune"):
        return field
    prefixes = (f"{name}." for name in TASKS)
    return next((rest.removeprefix(start) for start in prefixes if rest.startswith(start)), field)


def parse_pairs(
    option: str, values: Sequence[str] | None, *, example: str
) -> list[tuple[str, str]]:
    """Split the `NAME=VALUE` texts of a repeatable option.

    Raises:
        UsageError: A text has another form.
    """
    pairs = [text.partition("=") for text in values or ()]
    if wrong := next((pair for pair in pairs if not all(pair)), None):
        raise UsageError(f"--{option}: expected NAME=VALUE such as {example}, got {''.join(wrong)}")
    return [(name, value) for name, _, value in pairs]


def parse_columns(
    columns: Sequence[str] | None, table: Sequence[str] | None, labels: str | None
) -> dict[str, Any]:
    """Return `--column`, `--table` and `--labels` as fields of `ExamplesConfig`.

    Raises:
        UsageError: A text has not the form NAME=VALUE.
    """
    fields: dict[str, Any] = {}
    if columns:
        pairs = parse_pairs("column", columns, example="text=review or words=1")
        fields["columns"] = {name: int(v) if v.isdecimal() else v for name, v in pairs}
    if table:
        pairs = parse_pairs("table", table, example="header=false")
        fields["file_format"] = {n: {"true": True, "false": False}.get(v, v) for n, v in pairs}
    if labels:
        fields["labels"] = [name.strip() for name in labels.split(",")]
    return fields


def task_with_columns(
    task: Task, columns: Sequence[str] | None, table: Sequence[str] | None, labels: str | None
) -> Task:
    """Return the task with the columns and labels of `--column`, `--table` and `--labels`.

    Raises:
        ConfigError: The task has no such columns or labels.
        UsageError: A value cannot be used.
    """
    fields = parse_columns(columns, table, labels)
    if not fields:
        return task
    try:
        return task_of(ExamplesConfig(task=task.name, data_dir=".", **fields))
    except ValidationError as error:
        raise UsageError(format_validation_error(error, ExamplesConfig)) from error
