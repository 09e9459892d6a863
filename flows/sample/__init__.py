"""The embedded sample corpus: a small wiki and a dozen tales of a made-up world, any size.

This project writes it itself, so nothing of it belongs to anyone else, and its text is known to
the letter: `write_articles` gives the plain sentences behind every page. The same seed gives the
same bytes everywhere.
"""

from __future__ import annotations

from flows.sample.articles import Article, write_articles
from flows.sample.books import Tale, write_books, write_tale
from flows.sample.dump import Page, SampleFiles, write_dump, write_pages
from flows.sample.labelled import write_labelled
from flows.sample.world import World

__all__ = [
    "Article", "Page", "SampleFiles", "Tale", "World", "write_articles",
    "write_labelled", "write_pages", "write_sample", "write_tale",
]  # fmt: skip

_BOUNDLESS = 10_000_000


def write_sample(
    folder: str, *, articles: int = 400, tales: int = 12, seed: int = 0, date: str = "20260101",
    size_mb: float | None = None, pages_per_stream: int = 100, compresslevel: int = 9,
) -> SampleFiles:  # fmt: skip
    """Write a sample corpus in the formats of the real dumps, and labelled sets about it.

    Args:
        folder: a path or any fsspec URL; it is made where it does not exist.
        articles: articles of the wiki; a hundred make up one region.
        tales: tales in `books.tar.gz`.
        seed: another seed, another world.
        date: eight digits, for the names of the files and the time of the revisions.
        size_mb: MB (10**6 bytes) of XML, at most one stream more; `articles` then has no effect.
        pages_per_stream: pages of each bz2 stream; the official dumps have 100.
        compresslevel: of bz2.

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
    small = World(seed, articles)
    files = write_dump(
        folder, write_pages(small if size_mb is None else World(seed, _BOUNDLESS)), date=date,
        pages_per_stream=pages_per_stream, compresslevel=compresslevel,
        size=None if size_mb is None else int(size_mb * 1e6),
    )  # fmt: skip
    books = write_books(folder, (write_tale(small, number) for number in range(tales)))
    return files._replace(books=books, tasks=write_labelled(folder, seed=seed))
