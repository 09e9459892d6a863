# ruff: noqa: RUF001 - texts in several scripts
"""Pages in HTML and XHTML as plain text."""

from __future__ import annotations

import pytest
from support import complexity
from support.archive_builder import xhtml

from pipelines.books.clean_book import clean_book
from pipelines.books.gutenberg import split_books
from pipelines.books.html import read_html

PROSE = (
    "It was a bright cold morning when the three of them set out along the river bank, and "
    "no one in the village had yet opened so much as a single shutter to see them go."
)


def blocks(page: str) -> list[str]:
    return [block for block in read_html(page).text.split("\n\n") if block]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>One\n  two.<p>Three", ["One two.", "Three"]),
        ("<div>One<div>Two</div>Three</div>", ["One", "Two", "Three"]),
        ("<p>A <b>bo</b>ld <i>w<b>or</b></i>d&nbsp;&amp; caf&eacute; &#8212; x</p>", None),
        ("<p>Line one,<br>line two,<br/>\nline three.</p>", ["Line one,\nline two,\nline three."]),
        ("One<br><br>Two", ["One", "Two"]),
        ("<pre>A  b\n  c\n\nd</pre>", ["A  b\n  c", "d"]),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</table>", ["a b", "c"]),
        ("<ul><li>a<li>b</ul>", ["a", "b"]),
        ("Старик <em>пошёл</em> к&#160;реке", ["Старик пошёл к\xa0реке"]),
        ("<p>文は<ruby>続<rp>(</rp><rt>つづ</rt><rp>)</rp></ruby>く。</p>", ["文は続く。"]),
        ("<p>a < b & c &unknown; <x-y>d</p>", ["a < b & c &unknown; d"]),
        ("plain", ["plain"]),
        ("", []),
    ],
)
def test_blocks_are_paragraphs(page: str, expected: list[str] | None) -> None:
    expected = ["A bold word\xa0& café — x"] if expected is None else expected
    assert [block.strip("\n") for block in blocks(page)] == expected


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<script>var a = '<p>';</script><style>p { x }</style><p>Kept.", {"markup": 8}),
        ("<svg><text>a picture</text></svg><p>Kept.", {"markup": 2}),
        ("<nav><ol><li><a href='x'>One</a></li></ol></nav><p>Kept.", {"list": 1}),
        ("<div role='doc-toc'>One <p>two</p></div><p>Kept.", {"list": 2}),
        ("<p class=t><a href='#c1'>I. The Start</a></p><p>Kept.", {"list": 3}),
        ("<p><a href='c2.xhtml#a'>The Start</a> . . . 12</p><p>Kept.", {"list": 6}),
        ("<p>Kept<a href='#n1'><sup>[1]</sup></a>.</p>", {"note": 1}),
        ("<p>Kept<span role='doc-pagebreak'>12</span>.</p>", {"note": 1}),
        ("<section role='doc-colophon'><h2>By</h2><p>us</p></section>Kept.", {"license": 2}),
        ("<title>The Title</title><p>Kept.", {"front-matter": 2}),
        ("<p hidden>Kept.<!-- a comment -->", {}),
        ("<p><a href='https://a.b'>Kept</a>.", {}),
    ],
)
def test_what_is_no_text_is_dropped_and_counted(page: str, words: dict[str, int]) -> None:
    read = read_html(page)
    assert read.text.strip() == "Kept."
    assert read.dropped_words == words


def test_elements_that_xhtml_closes_itself_hold_no_text() -> None:
    page = xhtml("<p>One<a id='x'/></p><p>Two&nbsp;&lt;</p>", head="<title/><script src='x'/>")
    assert [block.strip("\n") for block in blocks(page)] == ["One", "Two\xa0<"]
    read = read_html(xhtml("<section epub:type='toc'>a</section>b", head="<title>A</title>"))
    assert (read.text.strip(), read.title) == ("b", "A")


def test_no_entity_is_expanded_and_nothing_else_is_read(tmp_path: object) -> None:
    declared = '<!DOCTYPE html [<!ENTITY a "bomb"><!ENTITY b SYSTEM "file:///etc/hostname">]>'
    text = read_html(f"<?xml version='1.0'?>{declared}<html><p>x &a; &b; y</p></html>").text
    assert text.split()[-4:] == ["x", "&a;", "&b;", "y"]


def test_headings_are_dropped_as_those_of_plain_text() -> None:
    page = (
        f"<h1>The Long Walk</h1><h2>CHAPTER I</h2><p>{PROSE}</p><h2>A Morning<br>by the River</h2>"
        f"<p>{PROSE}</p><p>“Yes,” she said.</p>"
    )
    (book,) = map(clean_book, split_books(read_html(page).text))
    assert book.paragraphs == [PROSE, PROSE, "“Yes,” she said."]
    assert book.dropped_words["heading"] == 10


def test_marks_of_project_gutenberg_are_found_in_a_page() -> None:
    page = (
        "<section><p><strong>Title</strong>: A Walk</p><div><span>*** START OF THE PROJECT "
        f"GUTENBERG EBOOK A WALK ***</span></div></section><p>{PROSE}</p><section><div>*** END OF "
        "THE PROJECT GUTENBERG EBOOK A WALK ***</div><p>License.</p></section>"
    )
    (book,) = map(clean_book, split_books(read_html(page).text))
    assert (book.text.title, book.paragraphs) == ("A Walk", [PROSE])


@pytest.mark.parametrize(
    "unit",
    ["<div>", "<p>a", "<a href='#x'>1", "<b><i></b>", "<!--", "<br>", "<pre>", "&amp;", "<", "\n ",
     "<rt>", "<a href=#>", "</a>", "<nav>", "<svg>a"],
)  # fmt: skip
def test_page_is_read_in_linear_time(unit: str) -> None:
    complexity.assert_linear(read_html, unit)


@pytest.mark.parametrize("element", ["div", "b", "section", "blockquote"])
def test_text_in_deep_page_is_kept(element: str) -> None:
    deep = f"<{element}>" * 5_000 + "the end"
    assert read_html(deep).text.strip() == "the end"
    closed = deep + f"</{element}>" * 5_000
    assert read_html(xhtml(closed)).text.strip() == "the end"
