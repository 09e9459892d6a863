"""The embedded sample: a small wiki, books and texts of a made-up world, and labeled sets about it.

The corpus shows which words belong together, and the labeled sets ask for it: a pretrained model
answers them, a model trained from scratch cannot. `flows.sample.world` explains how. This project
writes all of it, so nothing belongs to anyone else. The same seed gives the same bytes everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from flows.sample.books import make_book, write_books
from flows.sample.dump import write_dump
from flows.sample.pages import make_pages
from flows.sample.task_datasets import write_task_datasets
from flows.sample.texts import write_texts
from flows.sample.world import Words
from schemas.errors import ConfigError

__all__ = ["SampleFiles", "write_sample"]

_ARTICLES_PER_TEXT = 11


class SampleFiles(NamedTuple):
    """URLs of a sample's files (or paths, as the folder was given), and the size of its dump."""

    pages: str
    page_index: str
    checksums: str
    page_count: int
    xml_bytes: int
    books: str
    texts: str
    """Folder of plain text files."""
    tasks: str
    """Folder of the labeled sets, with a folder for each."""


def write_sample(
    folder: str,
    *,
    articles: int = 4400,
    tales: int = 8,
    seed: int = 0,
    pages_per_stream: int = 100,
) -> SampleFiles:
    """Write a sample corpus in the formats of the real dumps, and labeled sets about it.

    Args:
        folder: path or fsspec URL; it is created if it does not exist.
        articles: articles of the wiki, about 55 words each. There is one text, of about 130
            words, for every 11 of them.
        tales: books in `books.tar.gz`, about 5,500 words each.
        seed: another seed gives other texts, and other halves of the words.
        pages_per_stream: pages of each bz2 stream; the official dumps have 100.

    Raises:
        ConfigError: An argument is out of its range.
    """
    for name, value, low, high in (
        ("articles", articles, 1, 10_000_000),
        ("tales", tales, 0, 10_000),
        ("pages_per_stream", pages_per_stream, 1, 100_000),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name}: expected {low} to {high}, got {value}")
    words = Words.of_world(seed)
    pages = make_pages(words, seed=seed, articles=articles)
    dump = write_dump(folder, pages, pages_per_stream=pages_per_stream)
    books = write_books(folder, (make_book(words, seed=seed, number=n) for n in range(tales)))
    texts = write_texts(folder, words=words, seed=seed, count=articles // _ARTICLES_PER_TEXT)
    tasks = write_task_datasets(folder, words=words, seed=seed)
    return SampleFiles(*dump, books=books, texts=texts, tasks=tasks)
