"""`bertloom head`: the first rows of a shard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.console import echo_raw
from flows.cli.options import StoreOption, open_store
from flows.lineage.preview import Mark
from flows.lineage.preview import head as head_lines
from flows.lineage.shards import find_shard
from schemas.redaction import escape_control_characters

_STYLES = {
    "special": "dim",
    "a": "cyan",
    "b": "yellow",
    "masked": "bold magenta",
    "dim": "dim",
}


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
    found = find_shard(shard, open_store=lambda: open_store(store))
    for marks in head_lines(found, rows=rows, start=start, vocab=vocab):
        if sys.stdout.isatty():
            _print_styled(marks)
        else:
            echo_raw("".join(mark.text for mark in marks))


def _print_styled(marks: Sequence[Mark]) -> None:
    parts = ((escape_control_characters(mark.text), _STYLES.get(mark.style, "")) for mark in marks)
    Console(highlight=False).print(Text.assemble(*parts))
