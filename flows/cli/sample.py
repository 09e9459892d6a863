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
) -> None:
    """Write the embedded sample: a small wiki dump, books and labeled datasets."""
    files = write_sample(folder, articles=articles, tales=books, seed=seed)
    echo(f"{files.pages}\n{files.books}\n{files.tasks}")
    echo(f"{files.page_count:,} pages, {files.xml_bytes / 1e6:.1f} MB of XML")
