"""`bertloom fetch`: download Wikipedia dumps and labeled datasets."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.fetch.http_client import HttpClient
from flows.fetch.task_datasets import fetch_dataset, load_sources
from flows.fetch.wikipedia import fetch_dump, find_dump
from flows.formatting import format_bytes
from schemas.errors import UsageError

fetch = typer.Typer(
    add_completion=False,
    help="Download and verify raw data: Wikipedia dumps, GLUE, SQuAD, SWAG. Run a command again to "
    "resume it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _local_folder(value: str | Path) -> Path:
    if "://" in str(value):
        raise typer.BadParameter(f"expected a local folder, got {value!r}")
    return Path(value).absolute()


OutputOption = Annotated[
    Path,
    typer.Option(
        parser=_local_folder, help="Folder to write to: DIR/WIKI/DATE, DIR/glue/CoLA, DIR/squad."
    ),
]
SourcesOption = Annotated[
    str | None,
    typer.Option("--sources", metavar="FILE", help="YAML file with more datasets."),
]


@fetch.command()
def wikipedia(
    wiki: options.Wiki,
    date: options.DumpDate = "latest",
    output_dir: OutputOption = Path("downloads"),
    mirror: options.Mirror = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Download the articles of a wiki and their indexes."""
    with HttpClient(log=partial(echo, err=as_json)) as client:
        dump = find_dump(wiki, date=date, mirror=mirror, client=client)
        folder = output_dir / wiki / dump.date
        if not dry_run:
            fetch_dump(dump, folder, client=client)
    data = {"wiki": wiki, "date": dump.date, "files": dump.list_articles(folder)}
    size = format_bytes(sum(file.size for file in dump.files))
    line = f"would fetch {wiki} {dump.date}, {size}, from {dump.url} to:"
    if not dry_run:
        line = f"{wiki} {dump.date}: all files verified by sha1"
    print_result(data, line, *dump.list_articles(folder), as_json=as_json)


def _add_benchmark(benchmark: str, *, help: str) -> None:
    """Add the command that downloads the datasets of a benchmark."""

    @fetch.command(benchmark, help=help)
    def fetch_benchmark(
        datasets: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[DATASET]...",
                help="Datasets, e.g. cola or squad-2.0 (see `fetch list`). Default: all.",
            ),
        ] = None,
        output_dir: OutputOption = Path("data"),
        sources: SourcesOption = None,
        as_json: options.Json = False,
    ) -> None:
        catalog = load_sources(sources)
        names = [name for name, dataset in catalog.items() if dataset.benchmark == benchmark]
        requested = [name.lower() for name in datasets or names]
        if unknown := set(requested) - set(names):
            message = f"expected {', '.join(names)}, got {', '.join(sorted(unknown))}"
            raise UsageError(f"fetch {benchmark}: {message}. See `bertloom fetch list`")
        with HttpClient(log=partial(echo, err=as_json)) as client:
            fetched = {
                name: fetch_dataset(name, catalog[name], output_dir, client=client)
                for name in requested
            }
        data = [{"name": name, "files": files} for name, files in fetched.items()]
        line = f"{', '.join(fetched)}: all files verified by sha256"
        print_result(data, line, *chain(*fetched.values()), as_json=as_json)


_add_benchmark("glue", help="Download the GLUE tasks and the diagnostic set.")
_add_benchmark("squad", help="Download SQuAD 1.1 and 2.0.")
_add_benchmark("swag", help="Download SWAG.")


@fetch.command("list")
def list_sources(sources: SourcesOption = None, as_json: options.Json = False) -> None:
    """List the datasets, their sizes and licenses."""
    datasets = load_sources(sources)
    rows = [
        (name, f"fetch {dataset.benchmark}", format_bytes(size), dataset.license)
        for name, dataset in datasets.items()
        for size in [sum(file.size for file in dataset.files)]
    ]
    print_result(
        {name: dataset.model_dump(mode="json") for name, dataset in datasets.items()},
        table(("dataset", "command", "size", "license"), rows, right=(2,)),
        "\nany wiki: fetch wikipedia --wiki simplewiki",
        as_json=as_json,
    )
