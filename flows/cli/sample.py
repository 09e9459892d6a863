"""`bertloom sample`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.console import echo
from flows.sample import write_sample
from schemas.errors import ConfigError


def sample(
    folder: Annotated[str, typer.Argument(help="Where to write it: a folder or an fsspec URL.")],
    articles: Annotated[int, typer.Option(min=1, help="Articles of the wiki.")] = 4400,
    books: Annotated[int, typer.Option(min=0, help="Number of books.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another world.")] = 0,
    date: Annotated[str, typer.Option(help="Eight digits, in the files' names.")] = "20260101",
    size_mb: Annotated[
        float | None, typer.Option(help="MB of XML, however many articles that takes.")
    ] = None,
    pages_per_stream: Annotated[int, typer.Option(help="Pages of each bz2 stream.")] = 100,
    compresslevel: Annotated[int, typer.Option(help="Of bz2, 1 to 9.")] = 9,
) -> None:
    """Write the embedded sample: a small wiki dump, books and labeled sets of a made-up world."""
    try:
        files = write_sample(
            folder, articles=articles, tales=books, seed=seed, date=date, size_mb=size_mb,
            pages_per_stream=pages_per_stream, compresslevel=compresslevel,
        )  # fmt: skip
    except ValueError as error:
        raise ConfigError(str(error)) from error
    echo(f"{files.pages}\n{files.books}\n{files.tasks}")
    echo(f"{files.page_count:,} pages, {files.xml_bytes / 1e6:.1f} MB of XML")
