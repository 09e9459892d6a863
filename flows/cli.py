"""The `bertloom` command.

Beam and Prefect are loaded by the commands that need them, so that the others answer at once.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from flows import task_commands
from flows.options import (
    ChangesOption,
    EngineOption,
    StoreOption,
    open_store,
    print_lines,
    print_plan,
    run_and_report,
)
from schemas.errors import BertloomError, ConfigError

if TYPE_CHECKING:
    from flows.head import Mark

app = typer.Typer(
    name="bertloom",
    help="BERT from raw dumps to the paper's tables, as a cached and reproducible workflow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_STYLES = {
    "special": "dim",
    "a": "cyan",
    "b": "yellow",
    "masked": "bold magenta",
    "dim": "dim",
}


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"bertloom {version('bertloom')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")] = False,
) -> None:
    del version
    _log_to_console(verbose=verbose)


# Said by Beam at each import, and of worker processes that it does not know we start ourselves.
_NOISE = ("apitools not found", "If direct_num_workers is not equal to 1")


# How Beam wraps what a worker process logs.
_FROM_WORKER = re.compile(r'^Worker: severity: .*? message: "((?:[^"\\]|\\.)*)"', re.DOTALL)


class _ForConsole(logging.Filter):
    """Leaves out what Prefect and Beam log by themselves; unwraps what workers warn of.

    What Beam logs as an error is raised as well, and said by the step that failed.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        message = record.getMessage()
        if library == "prefect" or message.startswith(_NOISE):
            return False
        wrapped = _FROM_WORKER.match(message) if library == "apache_beam" else None
        if wrapped:
            record.msg, record.args = wrapped[1], ()
            return "Traceback" not in message
        return library != "apache_beam" or record.levelno < logging.ERROR


def _log_to_console(*, verbose: bool) -> None:
    handler = logging.StreamHandler()
    if not verbose:
        handler.addFilter(_ForConsole())
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(message)s", handlers=[handler])
    for package in ("pipelines", "model"):  # a line on progress now and then
        logging.getLogger(package).setLevel(logging.INFO)
    if verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of a packaged one.")],
    changes: ChangesOption = None,
    store: StoreOption = None,
    runner: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Where Beam runs: local, threads, portable, dataflow, flink, spark."),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Worker processes on this machine."),
    ] = None,
    engine: EngineOption = "prefect",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    rebuild: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="STAGE", help="Build this stage even if it is there; or: all."),
    ] = None,
    until: Annotated[
        str, typer.Option(metavar="STAGE", help="Run this stage and what it needs, no more.")
    ] = "",
) -> None:
    """Run a recipe: build what is not in the store yet."""
    from flows.recipe_files import load_recipe

    loaded = load_recipe(recipe, changes=changes or (), store=store, runner=runner, workers=workers)
    if dry_run:
        print_plan(loaded, rebuild or (), until=until)
        return
    run_and_report(loaded, engine=engine, rebuild=rebuild or (), until=until)


@app.command()
def show(
    artifact: Annotated[
        str,
        typer.Argument(help="Id, cache key, ref (RECIPE/STAGE), stage (its newest), or path."),
    ],
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole manifest.")] = False,
    all_files: Annotated[bool, typer.Option("--all", help="List every file.")] = False,
) -> None:
    """Show an artifact: counts, files, inputs, configuration, environment."""
    from flows.resolution import artifact_of_path, resolve

    if (found := artifact_of_path(artifact)) is not None:
        manifest, root = found
    else:
        opened = open_store(store)
        manifest, root = resolve(artifact, store=opened), opened.root
    if as_json:
        typer.echo(json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    from flows.show import artifact_lines

    print_lines(artifact_lines(manifest, root=root, all_files=all_files))


@app.command()
def head(
    shard: Annotated[
        str, typer.Argument(help="A shard's path or URL, or ARTIFACT[:PART] of the store.")
    ],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows to print.")] = 3,
    start: Annotated[int, typer.Option(min=0, help="The first row to print.")] = 0,
    vocab: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="A vocab.txt, in place of the one the artifact was made with."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Print the first rows of a shard: instances decoded, with masks and segments visible."""
    from flows.head import find_shard
    from flows.head import head as lines_of

    found = find_shard(shard, open_store=lambda: open_store(store))
    for line in lines_of(found, rows=rows, start=start, vocab=vocab):
        _print_marks(line)


@app.command()
def verify(
    artifacts: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="As for show; without any, every artifact of the store."),
    ] = None,
    store: StoreOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare sizes only, and read no file.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Only report; damaged artifacts stay published.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check that artifacts are, to the byte, what their manifests say; exit with 1 if not."""
    from flows.artifacts import pointer_to
    from flows.resolution import resolve
    from flows.verification import verify as check

    opened = open_store(store)
    if artifacts:
        chosen = [pointer_to(resolve(name, store=opened)) for name in artifacts]
    else:
        chosen = sorted(opened.pointers(), key=lambda pointer: pointer.committed)
    verdicts = check(opened, chosen, deep=not quick)
    if as_json:
        typer.echo(json.dumps([verdict._asdict() for verdict in verdicts], indent=2))
    damaged = [verdict for verdict in verdicts if not verdict.is_sound]
    for verdict in verdicts if not as_json else ():
        state = "sound" if verdict.is_sound else "DAMAGED"
        typer.echo(f"{verdict.artifact_id}  {state:<7}  {verdict.stage}  {verdict.files:,} files")
        print_lines([f"  {problem}" for problem in verdict.problems])
    if damaged and not keep:
        opened.withdraw_artifacts(
            {verdict.artifact_id: "; ".join(verdict.problems) for verdict in damaged}
        )
        typer.echo("damaged artifacts were withdrawn; the next run builds them again", err=True)
    if damaged:
        raise typer.Exit(1)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("recipe.yaml"),
    sample: Annotated[
        bool, typer.Option("--sample", help="The recipe of the embedded sample corpus.")
    ] = False,
) -> None:
    """Write a commented recipe to edit."""
    from flows.recipe_files import packaged_text, template_text

    text = packaged_text("sample") if sample else template_text()
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} is there already: name another file") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error}") from error
    typer.echo(f"wrote {file}; edit it, then: bertloom run {file} --dry-run")


@app.command()
def sample(
    folder: Annotated[str, typer.Argument(help="Where to write it: a folder or an fsspec URL.")],
    articles: Annotated[int, typer.Option(min=1, help="Articles of the wiki.")] = 400,
    tales: Annotated[int, typer.Option(min=0, help="Books.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another world.")] = 0,
) -> None:
    """Write the embedded sample: a small wiki dump, books and labelled sets of a made-up world."""
    from flows.sample import write_sample

    try:
        files = write_sample(folder, articles=articles, tales=tales, seed=seed)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    typer.echo(f"{files.pages}\n{files.books}\n{files.tasks}")
    typer.echo(f"{files.page_count:,} pages, {files.xml_bytes / 1e6:.1f} MB of XML")


def _print_marks(marks: Sequence[Mark]) -> None:
    if not sys.stdout.isatty():
        typer.echo("".join(mark.text for mark in marks))
        return
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(*((mark.text, _STYLES.get(mark.style, "")) for mark in marks))
    Console(highlight=False).print(text)


for command in task_commands.COMMANDS:
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; exit with 1 for errors of bertloom, 2 for wrong usage.

    Args:
        arguments: in place of the process's own.
    """
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="bertloom")
    except BertloomError as error:
        typer.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            typer.echo(f"  {note}", err=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; steps that were finished are kept", err=True)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
