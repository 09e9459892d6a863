"""The embedded sample corpus: a small wiki and a dozen tales of a made-up world, any size.

This project writes it itself, so nothing of it belongs to anyone else, and its text is known to
the letter: `write_articles` gives the plain sentences behind every page. The same seed gives the
same bytes everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from flows.sample.articles import Article, write_article, write_articles
from flows.sample.books import write_books
from flows.sample.dump import write_dump
from flows.sample.labelled import write_labelled
from flows.sample.markup import NEVER_PROSE
from flows.sample.pages import Page, write_pages
from flows.sample.tales import Tale, write_tale
from flows.sample.world import World

__all__ = [
    "NEVER_PROSE", "Article", "Page", "SampleFiles", "Tale", "World", "write_article",
    "write_articles", "write_labelled", "write_pages", "write_sample", "write_tale",
]  # fmt: skip

_BOUNDLESS = 10_000_000
"""Articles of a world that only its size in bytes limits."""


class SampleFiles(NamedTuple):
    """URLs (or paths, as the folder was given) of a sample corpus, and how much it holds."""

    pages: str
    page_index: str
    checksums: str
    books: str
    page_count: int
    """Pages in the dump: articles, redirects and pages of other namespaces."""
    xml_bytes: int
    """Size of the dump's XML before compression."""
    tasks: str = ""
    """The folder of the labelled sets, one folder for each task (`flows.sample.labelled`)."""


def write_sample(
    folder: str,
    *,
    articles: int = 400,
    tales: int = 12,
    seed: int = 0,
    date: str = "20260101",
    size_mb: float | None = None,
    pages_per_stream: int = 100,
    compresslevel: int = 9,
) -> SampleFiles:
    """Write a sample corpus in the formats of the real dumps, and labelled sets about it.

    Args:
        folder: a path or any fsspec URL; it is made where it does not exist.
        articles: articles of the wiki, at least 1; a hundred make up one region.
        tales: tales in `books.tar.gz`.
        seed: another seed, another world.
        date: eight digits, for the names of the files and the time of the revisions.
        size_mb: write this many MB (10**6 bytes) of XML, however many articles that takes,
            and at most one stream more. `articles` then has no effect on the wiki.
        pages_per_stream: pages of each bz2 stream; the official dumps have 100.
        compresslevel: of bz2, 1 to 9.

    Raises:
        ValueError: an argument is out of its range.
    """
    for name, value, low, high in (
        ("articles", articles, 1, _BOUNDLESS), ("tales", tales, 0, 10_000),
        ("pages_per_stream", pages_per_stream, 1, 100_000), ("compresslevel", compresslevel, 1, 9),
        ("size_mb", 1 if size_mb is None else size_mb, 1e-6, 100_000),
    ):  # fmt: skip
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}, expected {low} to {high}")
    if len(date) != 8 or not (date.isascii() and date.isdigit()):
        raise ValueError(f"date is {date!r}, expected eight digits such as '20260101'")
    small = World.build(seed, articles)
    world = small if size_mb is None else World.build(seed, _BOUNDLESS)
    dump = write_dump(
        folder,
        write_pages(world),
        date=date,
        pages_per_stream=pages_per_stream,
        compresslevel=compresslevel,
        size=None if size_mb is None else int(size_mb * 1e6),
    )
    books = write_books(folder, (write_tale(small, number) for number in range(tales)))
    return SampleFiles(*dump[:3], books, *dump[3:], tasks=write_labelled(folder, seed=seed))
