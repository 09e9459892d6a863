"""The `bertloom` command.

Beam and Prefect are loaded by the commands that need them, so that the others answer at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from flows.cli import events, fetch, lineage, publish, report, store_care, tuning
from flows.cli.completion import artifact_names
from flows.cli.console import exit_code_of, log_to_console, print_json, say, say_text
from flows.cli.options import (
    ChangesOption,
    EngineOption,
    JsonOption,
    RebuildOption,
    RecipeArgument,
    StoreOption,
    UntilOption,
    check_runner,
    open_store,
    print_lines,
    print_plan,
    run_and_report,
)
from schemas.disclosure import visible
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.lineage.head import Mark

EXIT_CODES = (
    "Exit codes: 0 done; 1 an error that is said, or damage found; 2 wrong usage; 70 a fault of "
    "bertloom's own; 130 interrupted (Ctrl-C); 143 terminated (SIGTERM)."
)
app = typer.Typer(
    name="bertloom",
    help="BERT from raw dumps to the paper's tables, as a cached and reproducible workflow.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
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


_SHOWN = {"tracebacks": False}


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"bertloom {version('bertloom')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error is from.")] = False,
) -> None:
    del version
    _SHOWN["tracebacks"] = debug
    log_to_console(verbose=verbose)


@app.command()
def run(
    recipe: RecipeArgument,
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
    parallel: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Steps that may run at once, where none needs another."),
    ] = None,
    engine: EngineOption = "prefect",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    rebuild: RebuildOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run a recipe: build what is not in the store yet."""
    from flows.recipes.files import load_recipe

    if runner is not None:
        check_runner(runner)
    loaded = load_recipe(
        recipe,
        changes=changes or (),
        store=store,
        runner=runner,
        workers=workers,
        parallel=parallel,
    )
    if dry_run:
        print_plan(loaded, rebuild or (), until=until, as_json=as_json)
        return
    run_and_report(loaded, engine=engine, rebuild=rebuild or (), until=until, as_json=as_json)


@app.command()
def plan(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    rebuild: RebuildOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a run would do: each step, cached or to build, and why."""
    from flows.recipes.files import load_recipe

    loaded = load_recipe(recipe, changes=changes or (), store=store)
    print_plan(loaded, rebuild or (), until=until, as_json=as_json)


@app.command()
def show(
    artifact: Annotated[
        str,
        typer.Argument(
            help="Id, cache key, ref (RECIPE/STAGE), stage (its newest), or path.",
            autocompletion=artifact_names,
        ),
    ],
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole manifest.")] = False,
    all_files: Annotated[bool, typer.Option("--all", help="List every file.")] = False,
) -> None:
    """Show an artifact: counts, files, inputs, configuration, environment."""
    from flows.lineage.names import artifact_of_path, resolve

    if (found := artifact_of_path(artifact)) is not None:
        manifest, root = found
    else:
        opened = open_store(store)
        manifest, root = resolve(artifact, store=opened), opened.root
    if as_json:
        print_json(manifest.model_dump(mode="json"))
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
    from flows.lineage.head import head as lines_of
    from flows.lineage.rows import at_row, find_shard

    found, first = at_row(find_shard(shard, open_store=lambda: open_store(store)), start)
    for line in lines_of(found, rows=rows, start=first, vocab=vocab):
        _print_marks(line)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("recipe.yaml"),
    sample: Annotated[
        bool, typer.Option("--sample", help="The recipe of the embedded sample corpus.")
    ] = False,
) -> None:
    """Write a commented recipe to edit."""
    from flows.recipes.files import packaged_text, template_text

    text = packaged_text("sample") if sample else template_text()
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} is there already: name another file") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error}") from error
    say(f"wrote {file}; edit it, then: bertloom run {file} --dry-run")


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
    say(f"{files.pages}\n{files.books}\n{files.tasks}")
    say(f"{files.page_count:,} pages, {files.xml_bytes / 1e6:.1f} MB of XML")


def _print_marks(marks: Sequence[Mark]) -> None:
    if not sys.stdout.isatty():
        say_text("".join(mark.text for mark in marks))
        return
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(*((visible(mark.text), _STYLES.get(mark.style, "")) for mark in marks))
    Console(highlight=False).print(text)


for module in (tuning, store_care, lineage, publish, report, events):
    for command in module.COMMANDS:
        app.command()(command)
app.add_typer(fetch.fetch_app, name="fetch")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; see EXIT_CODES.

    Args:
        arguments: in place of the process's own.
    """
    given = list(arguments) if arguments is not None else None
    code = exit_code_of(
        lambda: app(args=given, prog_name="bertloom"), debug=lambda: _SHOWN["tracebacks"]
    )
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
