"""The command `trace`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.tables import print_result
from flows.lineage.resolve import open_store
from flows.lineage.row_trace import trace_row
from flows.lineage.shards import find_shard
from schemas.errors import UsageError


def trace(
    row: Annotated[
        str,
        typer.Argument(
            metavar="SHARD:ROW",
            help="Shard as for head (path, URL or ARTIFACT[:PART]), and row number from 0. Rows of "
            "an artifact are counted across its shards.",
        ),
    ],
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Also print the raw text."),
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Show the source of a row of a shard: document, sentences, file and bytes."""
    shard, _, number = row.rpartition(":")
    if not shard or not number.isdecimal():
        example = "sample/build-instances.length-128:17"
        raise UsageError(f"{row!r}: expected SHARD:ROW, such as {example}")
    location = find_shard(shard, open_store=lambda: open_store(store))
    result = trace_row(location, int(number), raw=raw)
    print_result(result.to_json(), *result.lines(), as_json=as_json)
