"""`bertloom fetch`: download Wikipedia dumps and labeled datasets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.fetch.downloads import bytes_present
from flows.fetch.http_client import HttpClient
from flows.fetch.task_datasets import TaskDataset, fetch_dataset, load_sources
from flows.fetch.wikipedia import fetch_wikipedia, find_dump
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
ConnectionsOption = Annotated[
    int, typer.Option(min=1, max=8, help="Concurrent downloads; the official sites allow two.")
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
    connections: ConnectionsOption = 2,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Download the articles of a wiki and their indexes."""
    log = partial(echo, err=as_json)
    if not dry_run:
        fetched = fetch_wikipedia(
            wiki, date=date, output_dir=output_dir, mirror=mirror, log=log, connections=connections
        )
        size = format_bytes(fetched.bytes_downloaded)
        line = f"{wiki} {fetched.date}: {size} downloaded, all files verified by sha1"
        print_result(fetched._asdict(), line, *fetched.files, as_json=as_json)
        return
    with HttpClient(log=log) as client:
        dump = find_dump(wiki, date=date, mirror=mirror, client=client)
    folder = output_dir / wiki / dump.date
    dump_files = [*dump.indexes, *dump.articles]
    sizes = {f.name: (f.size or 0, bytes_present(f, folder)) for f in dump_files}
    files = [{"name": name, "size": n, "bytes_present": m} for name, (n, m) in sizes.items()]
    data = {"wiki": wiki, "date": dump.date, "mirror": dump.mirror, "folder": str(folder)}
    rows = [(name, *map(format_bytes, pair)) for name, pair in sizes.items()]
    shown = table(("file", "size", "present"), rows, right=(1, 2))
    source = f"\nfrom {dump.mirror} to {folder}"
    print_result({**data, "files": files}, shown, source, as_json=as_json)


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
        trust_on_first_use: Annotated[
            bool,
            typer.Option(
                "--trust-on-first-use",
                help="Accept files without a pinned sha256, and print the sha256 to pin.",
            ),
        ] = False,
        connections: ConnectionsOption = 2,
        as_json: options.Json = False,
    ) -> None:
        catalog = load_sources(sources).datasets
        names = [name for name, dataset in catalog.items() if dataset.benchmark == benchmark]
        requested = [name.lower() for name in datasets or names]
        if unknown := set(requested) - set(names):
            message = f"expected {', '.join(names)}, got {', '.join(sorted(unknown))}"
            raise UsageError(f"fetch {benchmark}: {message}. See `bertloom fetch list`")
        with HttpClient(log=partial(echo, err=as_json)) as client:
            fetch_one = partial(
                fetch_dataset,
                client=client, trust_on_first_use=trust_on_first_use, connections=connections,
            )  # fmt: skip
            fetched = [fetch_one(name, catalog[name], output_dir) for name in requested]
        rows = [
            (item.name, format_bytes(item.bytes_downloaded), str(len(item.files)), folder)
            for item in fetched
            for folder in [str(output_dir / catalog[item.name].folder)]
        ]
        files = table(("dataset", "downloaded", "verified files", "folder"), rows, right=(1, 2))
        print_result([item._asdict() for item in fetched], files, as_json=as_json)


_add_benchmark("glue", help="Download the GLUE tasks and the diagnostic set.")
_add_benchmark("squad", help="Download SQuAD 1.1 and 2.0.")
_add_benchmark("swag", help="Download SWAG.")


@fetch.command("list")
def list_sources(sources: SourcesOption = None, as_json: options.Json = False) -> None:
    """List the datasets, their licenses, and those that have to be ordered."""
    catalog = load_sources(sources)
    rows = [
        (name, f"fetch {dataset.benchmark}", *_size_and_checksums(dataset), dataset.license)
        for name, dataset in catalog.datasets.items()
    ]
    manual = [
        f"not available for download: {name} ({dataset.license}); {dataset.instructions}"
        for name, dataset in catalog.manual.items()
    ]
    print_result(
        catalog.model_dump(mode="json"),
        table(("dataset", "command", "size", "checksums", "license"), rows, right=(2,)),
        "\nany wiki: fetch wikipedia --wiki simplewiki",
        *manual,
        as_json=as_json,
    )


def _size_and_checksums(dataset: TaskDataset) -> tuple[str, str]:
    sizes = [file.size for file in dataset.files if file.size is not None]
    is_pinned = all(file.sha256 for file in dataset.files)
    size = format_bytes(sum(sizes)) if len(sizes) == len(dataset.files) else "unknown"
    return size, "pinned" if is_pinned else "not pinned"
