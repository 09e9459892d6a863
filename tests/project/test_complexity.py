"""Whatever a page, a book, a line or a recipe holds, twice as much of it takes twice as long.

`BERTLOOM_FUZZ=2000` tries 2,000 patterns of each format; the default is a few hundred.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import complexity

from flows.recipes.loader import recipe_from
from flows.recipes.safe_yaml import parse_yaml
from pipelines.books.clean_book import clean_book
from pipelines.counters import Counters
from pipelines.documents.sentences import split_sentences
from pipelines.io.compression import Chunk
from pipelines.io.lines import stream_lines
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


def chinese_page(text: str) -> None:
    page(text, "zh")


def book(text: str) -> None:
    split_sentences(clean_book(text).paragraphs, "en", max_characters=1000)


def lines(text: str) -> None:
    found = stream_lines(io.BytesIO(text.encode("utf-8", "surrogatepass")), where="x")
    paragraphs = [" ".join(line.data.decode("utf-8", "replace").split()) for line in found]
    split_sentences(paragraphs, "en", max_characters=1000)


def dump(text: str) -> None:
    """Read a dump with a text between its header and its only page."""
    data = f"<mediawiki>{text}<page><title>a</title></page></mediawiki>".encode()
    chunk = Chunk(data, 0, len(data), len(data), is_plain=True)
    list(iterate_pages([chunk], end=len(data), at_start=True, at_end=True))


def text_file(data: bytes, name: str) -> None:
    """Read a file as documents of at most 1 kB."""
    fsspec.filesystem("memory").pipe(f"/growth/{name}", data)
    config = TextSource(name="s", paths=(f"memory://growth/{name}",), max_document_bytes=1024)
    for split in text_source.plan(config):
        for raw in text_source.read(split, config, Counters().count):
            split_sentences(raw.paragraphs, "en", max_characters=1000)


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


MESSAGES = (
    "://", "://a:", "@", "/", "token", "tokentoken=", "secret", "'token': ", "'", '"', "hf_",
    "AKIA", "authorization", "authorization: ", "bearer ", "--", "--a-token", "=", "&", "%3D",
    "sig=", "<", "<AWSAccessKeyId>", "password", "_", "access_key", "\x1b", "\u202e", "a", "1", ":",
    "s3://a:b",
)  # fmt: skip
FORMATS: dict[str, tuple[Callable[[str], object], tuple[str, ...], int]] = {
    "wikitext": (page, complexity.WIKITEXT, 150),
    "French wikitext": (french_page, complexity.WIKITEXT, 30),
    "Chinese wikitext": (chinese_page, complexity.WIKITEXT, 30),
    "books": (book, complexity.BOOKS, 150),
    "lines": (lines, complexity.SENTENCES, 60),
    "recipes": (recipe, complexity.RECIPES, 60),
    "messages": (message, MESSAGES, 40),
}


def bomb(levels: int) -> str:
    """Aliases of aliases: `levels` lines that stand for 9 to the power of it."""
    return "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, levels)
    )


# What once took the square of its length: prefix, repeated, repeated behind it, suffix.
KNOWN = [
    (page, ("a", "{{x}}", "", "")),
    (page, ("a", "__TOC__", "", "")),
    (page, ("", "\ufdd0", "", "a")),
    (page, ("word ", "{", "", "")),
    (page, ("word ", "{{{", "", "")),
    (page, ("word ", "[//", "", "")),
    (page, ("word ", "[http://", "", "")),
    (page, ("word ", "{{end}}", "", "")),
    (page, ("", "<ref name=x>a\n", "", "</ref>")),
    (page, ("a", "<span style=display:none>", "", "")),
    (page, ("{{convert|1", "|-|1", "", "|km}}")),
    (page, ("\n=", "<!--", "", "")),
    (page, ("word ", "'", "", "")),
    (page, ("word ", "“", "", "")),
    (page, ("word ", "«", "", "a")),
    (french_page, ("a", "{{x}}", "", "b")),
    (book, ("", " ", "", "")),
    (book, ("word\n", " ", "", "word")),
    (book, ("a", " ", "", "b\nc\nd")),
    (book, ("a\n\n", ".", "", "x")),
    (book, ("", "a", "", "1-\nb")),
    (book, ("CONTENTS", ".", "", "x")),
    (book, ("[Footnote", " ", "", "x")),
    (book, ("", "[Map\n\n", "", "")),
    (book, ("", "I.\n\n", "", "word")),
    (book, ("", "THE END\n\n", "", "")),
    (book, ("", "volume-", "", "")),
    (book, ("", "illustrat", "", "")),
    (book, ("CHAPTER I\n", "A B\n", "", "")),
    (book, ("", "_a_", "", "")),
    (lines, ("", "“", "", "")),
    (lines, ("", "a", "", "")),
    (lines, ("1.", '”"', "", "1. ")),
    (lines, ("a. ", "*", "- ", "")),
    (long_line, ("", "word ", "", "")),
    (long_line, ("", "x", "", "")),
    (long_line, ("", "The end. ", "", "")),
    (parquet, ("", "word ", "", "")),
    (parquet, ("", "x", "", "")),
    (parquet, ("", "The end. ", "", "")),
    (dump, ("", "<!--", "", "")),
    (dump, ("", "<!--", "-->", "")),
    (dump, ("", "<!-- -->", "<!", "")),
    (recipe, ('a: "', "${A:-", "", '"')),
    (recipe, ("a: ", "[", "]", "")),
    (recipe, ("a: ", "9", "", "")),
]


@pytest.mark.parametrize(
    ("work", "parts"),
    [pytest.param(*known, id=f"{known[0].__name__}-{known[1][1]!a}") for known in KNOWN],
)
def test_what_once_hung_is_linear(
    work: Callable[[str], object], parts: tuple[str, str, str, str]
) -> None:
    found = complexity.measure(work, complexity.Pattern(0, *parts), limit=complexity.LIMIT)
    assert found.of_a_doubling <= complexity.LIMIT, found


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_twice_as_much_takes_twice_as_long(
    name: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    work, atoms, count = FORMATS[name]
    worst = 1.0
    failed = []
    for pattern in complexity.patterns(CAMPAIGN or count, atoms, complexity.WORDS):
        found = complexity.measure(work, pattern, limit=complexity.LIMIT)
        for _ in range(3):  # a busy machine may have its bad moment: one fair look is enough
            if found.of_a_doubling > complexity.LIMIT:
                found = complexity.measure(work, pattern, limit=complexity.LIMIT)
        worst = max(worst, found.of_a_doubling)
        if found.of_a_doubling > complexity.LIMIT:
            failed.append((pattern, found))
    said = f"{CAMPAIGN or count} patterns, worst growth of a doubling {worst:.2f}"
    record_testsuite_property(f"growth of {name}", said)
    assert not failed


def test_levels_of_aliases_cost_no_more_than_their_lines() -> None:
    def levels(text: str) -> None:
        recipe(bomb(len(text) // 100))

    found = complexity.measure(
        levels, complexity.Pattern(0, "", "x" * 100, "", ""), limit=complexity.LIMIT
    )
    assert found.of_a_doubling <= complexity.LIMIT
