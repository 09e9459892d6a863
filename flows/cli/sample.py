"""The command `sample`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.console import echo
from flows.sample import write_sample


def sample(
    folder: Annotated[str, typer.Argument(help="Folder to write to: a path or an fsspec URL.")],
    articles: Annotated[int, typer.Option(min=1, help="Number of wiki articles.")] = 4400,
    books: Annotated[int, typer.Option(min=0, help="Number of books.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed: another seed writes other texts.")] = 0,
    date: Annotated[str, typer.Option(help="YYYYMMDD in the names of the files.")] = "20260101",
    size_mb: Annotated[
        float | None, typer.Option(help="MB of XML, in place of --articles.")
    ] = None,
    pages_per_stream: Annotated[int, typer.Option(help="Pages of each bz2 stream.")] = 100,
    compresslevel: Annotated[int, typer.Option(help="bz2 compression level (1-9).")] = 9,
) -> None:
    """Write the embedded sample: a small wiki dump, books and labeled datasets."""
    files = write_sample(
        folder, articles=articles, tales=books, seed=seed, date=date, size_mb=size_mb,
        pages_per_stream=pages_per_stream, compresslevel=compresslevel,
    )  # fmt: skip
    echo(f"{files.pages}\n{files.books}\n{files.tasks}")
    echo(f"{files.page_count:,} pages, {files.xml_bytes / 1e6:.1f} MB of XML")
