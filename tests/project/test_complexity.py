"""Time is linear in the input, whatever a page, a book, a line or a recipe holds.

`BERTLOOM_FUZZ=2000` tries 2,000 patterns of each format; the default is a few hundred.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import complexity

from flows.recipes.loader import recipe_from
from flows.recipes.safe_yaml import parse_yaml
from pipelines.books.clean_book import clean_book
from pipelines.books.gutenberg import split_books
from pipelines.counters import Counters
from pipelines.documents.sentences import split_sentences
from pipelines.io.compression import Chunk
from pipelines.mediawiki.dumps import iterate_pages
from pipelines.mediawiki.wikitext import clean_wikitext, wiki_settings
from pipelines.sources import text as text_source
from schemas.corpus_configs import TextSource
from schemas.errors import ConfigError
from schemas.redaction import escape_control_characters, redact

CAMPAIGN = int(os.environ.get("BERTLOOM_FUZZ") or 0)
MARKUP = {language: wiki_settings(language) for language in ("en", "fr", "ja", "zh", "de")}


def page(text: str, language: str = "en") -> None:
    split_sentences(clean_wikitext(text, MARKUP[language]), language, max_characters=1000)


def french_page(text: str) -> None:
    page(text, "fr")


def german_page(text: str) -> None:
    page(text, "de")


def chinese_page(text: str) -> None:
    page(text, "zh")


def book(text: str) -> None:
    for cleaned in map(clean_book, split_books(text)):
        split_sentences(cleaned.paragraphs, "en", max_characters=1000)


def lines(text: str) -> None:
    text_file(text.encode("utf-8", "surrogatepass"), "a.txt", rows_per_document=1000)


def dump(text: str) -> None:
    """Read a dump with a text between its header and its only page."""
    data = f"<mediawiki>{text}<page><title>a</title></page></mediawiki>".encode()
    chunk = Chunk(data, 0, len(data), len(data), is_plain=True)
    list(iterate_pages([chunk], end=len(data), at_start=True, at_end=True))


def text_file(data: bytes, name: str, **options: Any) -> None:
    """Read a file as documents of at most 1 kB."""
    fsspec.filesystem("memory").pipe(f"/growth/{name}", data)
    path = f"memory://growth/{name}"
    config = TextSource(name="s", paths=(path,), max_document_bytes=1024, **options)
    for split in text_source.plan(config):
        for _, raw in text_source.read(split, config, Counters().count):
            split_sentences(list(raw.paragraphs), "en", max_characters=1000)


def long_line(text: str) -> None:
    text_file(text.encode(), "a.txt")


def parquet(text: str) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [text, text[: len(text) // 2]]}), sink)
    text_file(sink.getvalue(), "a.parquet")


def recipe(text: str) -> None:
    with contextlib.suppress(ConfigError):  # as it must be: any other error fails the test
        data = parse_yaml(text, where="x").value
        if isinstance(data, dict):  # `load_recipe` refuses files of anything else
            recipe_from(data, where="x", folder=Path("/nowhere"))


def message(text: str) -> None:
    escape_control_characters(redact(text))


FORMATS: dict[str, tuple[Callable[[str], object], tuple[str, ...], int]] = {
    "wikitext": (page, complexity.WIKITEXT, 150),
    "French wikitext": (french_page, complexity.WIKITEXT, 30),
    "Chinese wikitext": (chinese_page, complexity.WIKITEXT, 30),
    "books": (book, complexity.BOOKS, 150),
    "lines": (lines, complexity.SENTENCES, 60),
    "recipes": (recipe, complexity.RECIPES, 60),
    "messages": (message, complexity.MESSAGES, 40),
}


# Texts that once took quadratic time: prefix, first, second, suffix of a pattern.
KNOWN = [
    (page, ("a", "{{x}}")),
    (page, ("a", "__TOC__")),
    (page, ("", "\ufdd0", "", "a")),
    (page, ("word ", "{")),
    (page, ("word ", "{{{")),
    (page, ("word ", "[//")),
    (page, ("word ", "[http://")),
    (page, ("word ", "{{end}}")),
    (page, ("", "<ref name=x>a\n", "", "</ref>")),
    (page, ("a", "<span style=display:none>")),
    (page, ("{{convert|1", "|-|1", "", "|km}}")),
    (page, ("\n=", "<!--")),
    (page, ("word ", "'")),
    (page, ("word ", "“")),
    (page, ("word ", "«", "", "a")),
    (french_page, ("a", "{{x}}", "", "b")),
    (page, ("1. a ", "b. ")),
    (page, ("Ab ", "1. a ")),
    (page, ("Ab 1. a ", "2. ")),
    (german_page, ("Am 1. ", "Mai 2. ")),
    (book, ("", " ")),
    (book, ("word\n", " ", "", "word")),
    (book, ("a", " ", "", "b\nc\nd")),
    (book, ("a\n\n", ".", "", "x")),
    (book, ("", "a", "", "1-\nb")),
    (book, ("CONTENTS", ".", "", "x")),
    (book, ("[Footnote", " ", "", "x")),
    (book, ("", "[Map\n\n")),
    (book, ("", "I.\n\n", "", "word")),
    (book, ("", "THE END\n\n")),
    (book, ("", "volume-")),
    (book, ("", "illustrat")),
    (book, ("CHAPTER I\n", "A B\n")),
    (book, ("", "_a_")),
    (lines, ("", "“")),
    (lines, ("", "a")),
    (lines, ("1.", '”"', "", "1. ")),
    (lines, ("a. ", "*", "- ", "")),
    (long_line, ("", "word ")),
    (long_line, ("", "x")),
    (long_line, ("", "The end. ")),
    (parquet, ("", "word ")),
    (parquet, ("", "x")),
    (parquet, ("", "The end. ")),
    (dump, ("", "<!--")),
    (dump, ("", "<!--", "-->", "")),
    (dump, ("", "<!-- -->", "<!", "")),
    (recipe, ('a: "', "${A:-", "", '"')),
    (recipe, ("a: ", "[", "]", "")),
    (recipe, ("a: ", "9")),
]


@pytest.mark.parametrize(
    ("work", "parts"),
    [pytest.param(*known, id=f"{known[0].__name__}-{known[1][1]!a}") for known in KNOWN],
)
def test_time_of_known_pattern_is_linear(
    work: Callable[[str], object], parts: tuple[str, ...]
) -> None:
    found = complexity.measure(work, complexity.Pattern(0, *parts))
    assert found.of_a_doubling <= complexity.LIMIT, found


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_time_of_generated_patterns_is_linear(name: str) -> None:
    work, atoms, count = FORMATS[name]
    for pattern in complexity.patterns(CAMPAIGN or count, atoms):
        growth = min(_growths(work, pattern, times=4))
        assert growth <= complexity.LIMIT, pattern


def _growths(
    work: Callable[[str], object], pattern: complexity.Pattern, *, times: int
) -> Iterator[float]:
    """Measure again while the growth is too large: a busy machine disturbs a measurement."""
    for _ in range(times):
        growth = complexity.measure(work, pattern).of_a_doubling
        yield growth
        if growth <= complexity.LIMIT:
            return


def test_quadratic_time_is_found() -> None:
    def square(text: str) -> int:
        return sum(text.count("b", at) for at in range(len(text)))

    pattern = complexity.Pattern(0, "", "a")
    assert any(
        complexity.measure(square, pattern).of_a_doubling > complexity.LIMIT for _ in range(8)
    )
    complexity.assert_linear(str.split, "a")


def test_time_of_nested_yaml_aliases_is_linear() -> None:
    """Each level stands for 9 of the level below."""

    def levels(text: str) -> None:
        recipe(
            "a0: &a0 [x]\n"
            + "".join(
                f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n"
                for n in range(1, len(text) // 100)
            )
        )

    complexity.assert_linear(levels, "x" * 100)
