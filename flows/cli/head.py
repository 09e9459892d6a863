"""`bertloom head`: the first rows of a shard."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.console import echo_raw
from flows.cli.options import StoreOption, open_store
from flows.lineage import preview
from flows.lineage.shards import find_shard


def head(
    shard: Annotated[
        str, typer.Argument(help="A shard's path or URL, or ARTIFACT[:PART] of the store.")
    ],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows to print.")] = 3,
    start: Annotated[int, typer.Option(min=0, help="The first row to print.")] = 0,
    vocab: Annotated[
        str | None,
        typer.Option(help="A vocab.txt, in place of the one the artifact was made with."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Print the first rows of a shard: instances decoded, with masks and segments visible."""
    source = find_shard(shard, open_store=lambda: open_store(store))
    console = Console(highlight=False)
    for line in preview.head(source, rows=rows, start=start, vocab=vocab):
        if sys.stdout.isatty():
            console.print(line)
        else:
            echo_raw(line.plain)
