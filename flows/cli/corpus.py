"""Commands that fetch raw data and publish corpora."""

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
from flows.lineage.resolve import open_store
from flows.publish.monthly_rebuild import RebuildRequest, execute_rebuild, plan_rebuild
from flows.publish.publish import CorpusChangeLimitError, built_corpus, roll_back
from flows.publish.publish import publish as publish_corpus
from flows.recipes.loader import load_recipe
from flows.sample import write_sample
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


def sample(
    folder: Annotated[str, typer.Argument(help="Folder to write to: a path or an fsspec URL.")],
    articles: Annotated[int, typer.Option(min=1, help="Number of wiki articles.")] = 4400,
    books: Annotated[int, typer.Option(min=0, help="Number of books.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed: another seed writes other texts.")] = 0,
) -> None:
    """Write the embedded sample: a small wiki dump, books, texts and labeled datasets."""
    files = write_sample(folder, articles=articles, tales=books, seed=seed)
    echo(f"{files.pages}\n{files.books}\n{files.texts}\n{files.tasks}")
    echo(f"{files.page_count:,} pages, {files.xml_bytes / 1e6:.1f} MB of XML")


def rebuild(
    recipe: options.Recipe,
    wiki: options.Wiki,
    date: options.DumpDate = "latest",
    download_dir: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for dumps, which go to WIKI/DATE in it.")
    ] = "dumps",
    keep_downloads: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of dumps to keep. Older ones that this command downloaded are deleted "
            "after a publication.",
        ),
    ] = 2,
    mirror: options.Mirror = None,
    overrides: options.Overrides = None,
    store: options.Store = None,
    workers: options.Workers = None,
    engine: options.Engine = "auto",
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Update a published corpus to the newest dump: fetch, build, compare, publish or refuse.

    A source of the recipe has the name of the wiki.
    """
    request = RebuildRequest(
        recipe=recipe, wiki=wiki, date=date, downloads=download_dir, keep_downloads=keep_downloads,
        overrides=overrides or (), store=store, mirror=mirror, force=force, workers=workers,
    )  # fmt: skip
    plan = plan_rebuild(request, log=echo)
    if dry_run and not plan.skip_reason:
        echo(f"would fetch {wiki} {plan.date} to {plan.folder}, build, and publish")
    elif not plan.skip_reason:
        execute_rebuild(request, plan, engine=engine, log=echo)


def publish(
    recipe: Annotated[str, typer.Argument(help="Recipe file or packaged recipe.")] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="REF",
            help="Go back to an earlier publication, such as corpus/simplewiki/20261001. Limits "
            "are not checked.",
        ),
    ] = "",
    force: options.Force = False,
    overrides: options.Overrides = None,
    store: options.Store = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Publish the corpus that a recipe last built: move NAME/latest to it.

    Exits with 1 if the corpus changed beyond the recipe's limits.
    """
    if bool(recipe) == bool(to):
        raise UsageError("expected either RECIPE to publish its corpus, or --to REF to go back")
    try:
        if to:
            result = roll_back(open_store(store), to, dry_run=dry_run)
        else:
            loaded = load_recipe(recipe, overrides=overrides or (), store=store)
            opened = open_store(loaded.store)
            corpus = built_corpus(loaded, store=opened)
            result = publish_corpus(loaded, corpus, store=opened, force=force, dry_run=dry_run)
    except CorpusChangeLimitError as error:
        data = {"outcome": "refused", "comparison": error.comparison.to_json()}
        print_result(data, *error.comparison.lines(), "", as_json=as_json)
        raise
    print_result(result.to_json(), *result.lines(), as_json=as_json)
