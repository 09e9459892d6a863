"""The commands `bertloom fetch ...`: Wikipedia's dumps and the labelled sets, verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import typer

from flows.cli.console import print_found, say
from flows.fetch.labelled_sets import FetchedSet, fetch_sets, load_sources
from flows.fetch.wikipedia import fetch_wikipedia, plan_wikipedia
from flows.formatting import align_columns, format_bytes
from schemas.errors import UsageError

fetch = typer.Typer(
    add_completion=False,
    help="Download raw data: Wikipedia's dumps, GLUE, SQuAD, SWAG. What was cut off is resumed, "
    "what is there and right is kept.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON; what is said on the way goes to stderr.")
]
ConnectionsOption = Annotated[
    int,
    typer.Option(min=1, max=8, help="Downloads at once; the official sites want two at most."),
]
SetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SET]...", help="Such as cola, squad-2.0 (`fetch list` has all); else all of it."
    ),
]
SetsFolderOption = Annotated[
    str, typer.Option(help="Sets come below it, as FOLDER/glue/CoLA, FOLDER/squad, FOLDER/swag.")
]
SourcesOption = Annotated[
    str | None,
    typer.Option(
        "--sources", metavar="FILE", help="A YAML file of your own with addresses and checksums."
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-first",
        help="Take files that have no pinned checksum, and print what to pin.",
    ),
]


@fetch.command()
def wikipedia(
    wiki: Annotated[str, typer.Option(help="Which wiki: simplewiki, enwiki, itwiki, ...")],
    date: Annotated[
        str, typer.Option(help="YYYYMMDD, or latest: the newest dump whose articles are done.")
    ] = "latest",
    folder: Annotated[str, typer.Option(help="The dump comes to FOLDER/WIKI/DATE.")] = "downloads",
    mirror: Annotated[
        str | None,
        typer.Option(help="A mirror of the dumps; else $BERTLOOM_MIRROR, or the official site."),
    ] = None,
    connections: ConnectionsOption = 2,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be fetched, and fetch nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch the articles of a wiki: the multistream parts of its dump and their indexes."""
    note = partial(say, err=as_json)
    if dry_run:
        planned = plan_wikipedia(wiki, date=date, folder=folder, mirror=mirror, say=note)
        rows = [
            (file.name, format_bytes(file.size), format_bytes(file.bytes_there))
            for file in planned.files
        ]
        lines = [
            *align_columns([("file", "size", "there"), *rows], right=(1, 2)),
            f"\nfrom {planned.mirror}, to {planned.folder}",
        ]
        as_data = planned._asdict() | {"files": [file._asdict() for file in planned.files]}
        print_found(as_data, lines, as_json=as_json)
        return
    fetched = fetch_wikipedia(
        wiki, date=date, folder=folder, mirror=mirror, connections=connections, say=note
    )
    line = (
        f"{fetched.wiki} {fetched.date}: {format_bytes(fetched.bytes_downloaded)} downloaded, "
        f"files that were there: {fetched.files_reused}; all verified by sha1"
    )
    print_found(fetched._asdict(), [line, *fetched.files], as_json=as_json)


def _add_benchmark(benchmark: str, *, help: str) -> None:
    """Add the command that fetches the sets of a benchmark."""

    @fetch.command(benchmark, help=help)
    def fetch_benchmark(
        sets: SetsArgument = None,
        folder: SetsFolderOption = "data",
        sources: SourcesOption = None,
        trust_first: TrustOption = False,
        connections: ConnectionsOption = 2,
        as_json: JsonOption = False,
    ) -> None:
        known = load_sources(sources)
        mine = known.of(benchmark)
        chosen = [name.lower() for name in sets or ()] or mine
        if unknown := [name for name in chosen if name not in mine]:
            raise UsageError(
                f"fetch {benchmark}: expected {', '.join(mine)}, found {', '.join(unknown)}. "
                "`bertloom fetch list` tells what there is"
            )
        fetched = fetch_sets(
            chosen,
            sources=known,
            folder=folder,
            trust_first=trust_first,
            connections=connections,
            say=partial(say, err=as_json),
        )
        as_data = [found._asdict() for found in fetched]
        print_found(as_data, _set_lines(fetched), as_json=as_json)


_add_benchmark("glue", help="Fetch GLUE's tasks and its diagnostic set, in the official layout.")
_add_benchmark("squad", help="Fetch SQuAD 1.1 and 2.0.")
_add_benchmark("swag", help="Fetch SWAG.")


def _set_lines(fetched: Sequence[FetchedSet]) -> Iterator[str]:
    rows = [
        (
            found.name,
            f"{format_bytes(found.bytes_downloaded)} downloaded",
            f"there already: {found.files_reused} of {len(found.files)} files",
            found.folder,
        )
        for found in fetched
    ]
    yield from align_columns(rows)
    for found in fetched:
        for url, sha256, size in found.unpinned:
            yield f"taken on trust, {found.name}; to pin it:"
            yield from (f"  - url: {url}", f"    size: {size}", f"    sha256: {sha256}")


@fetch.command("list")
def list_sources(sources: SourcesOption = None, as_json: JsonOption = False) -> None:
    """List what can be fetched, under which licence, and where to get what cannot."""
    known = load_sources(sources)
    rows = [
        (
            name,
            f"fetch {found.benchmark}",
            "?" if found.size is None else format_bytes(found.size),
            "pinned" if found.is_pinned else "not pinned",
            found.licence,
        )
        for name, found in known.sets.items()
    ]
    lines = [
        *align_columns([("set", "command", "size", "checksums", "licence"), *rows], right=(2,)),
        "\nany wiki: fetch wikipedia --wiki simplewiki",
        *(
            f"not fetched: {name} ({other.licence}); {other.how}"
            for name, other in known.elsewhere.items()
        ),
    ]
    print_found(known.model_dump(mode="json"), lines, as_json=as_json)
