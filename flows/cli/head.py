"""The command `head`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo_raw
from flows.cli.tables import console_for
from flows.lineage import preview
from flows.lineage.resolve import open_store
from flows.lineage.shards import find_shard


def head(
    shard: Annotated[str, typer.Argument(help="Path or URL of a shard, or ARTIFACT[:PART].")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 3,
    start: Annotated[int, typer.Option(min=0, help="Number of the first row.")] = 0,
    vocab: Annotated[str | None, typer.Option(help="vocab.txt. Default: the artifact's.")] = None,
    store: options.Store = None,
) -> None:
    """Print the first rows of a shard: instances decoded, with masks and segments visible."""
    location = find_shard(shard, open_store=lambda: open_store(store))
    console = console_for(sys.stdout)
    for line in preview.head(location, rows=rows, start=start, vocab=vocab):
        if console.is_terminal:
            console.print(line, soft_wrap=True)
        else:
            echo_raw(line.plain)
