"""Read pages in HTML or XHTML as the text that a plain-text book has.

Blank lines separate paragraphs, as many as plain texts have are above headings, and a `<br>` ends a
line. What is no text of the book is dropped, and its words are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from html.entities import html5
from typing import NamedTuple

from lxml import etree

from pipelines.books.words import count_words

HEADING_GAP = "\n" * 4
_PARAGRAPH_GAP = "\n" * 2
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCKS = _HEADINGS.union(
    ("address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details"),
    ("div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr"),
    ("html", "legend", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table"),
    ("tbody", "tfoot", "thead", "title", "tr", "ul"),
)
_CELLS = frozenset({"td", "th"})

_DROPPED_ELEMENTS = {
    **dict.fromkeys(("script", "style", "template", "svg"), "markup"),
    **dict.fromkeys(("rp", "rt"), "note"),  # pronunciation above Chinese or Japanese characters
    "nav": "list",
    "title": "front-matter",
}
_DROPPED_TYPES = {
    **dict.fromkeys(("toc", "landmarks", "page-list", "loi", "lot"), "list"),
    **dict.fromkeys(("cover", "copyright-page", "colophon", "imprint"), "license"),
    **dict.fromkeys(("titlepage", "halftitlepage"), "front-matter"),
    **dict.fromkeys(("noteref", "pagebreak"), "note"),
}
"""Reasons by the values of `epub:type`, and of `role` behind `doc-`."""

_TYPE_ATTRIBUTES = ("epub:type", "{http://www.idpf.org/2007/ops}type", "role")
_INNER_LINK = re.compile(r"#|(?![a-z]+:|//).*\.x?html?(?:#|$)", re.IGNORECASE)
_NOTE_MARK = re.compile(r"[\s\[({]*(?:\d{1,4}|[a-zA-Z]|[*†‡§¶]{1,3})[\s\])}.]*")
_SPACE = re.compile(r"[ \t\r\n\f]+")
_ENTITY = re.compile(r"&(\w+);")
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})


class Page(NamedTuple):
    """Text of a page or of a whole book."""

    text: str
    title: str
    dropped_words: Counter[str]
    """Words that are not in the text, by `pipelines.books.blocks.Reason`."""


def read_html(text: str) -> Page:
    """Return the text of a page. One that is no XHTML is read as browsers read HTML."""
    try:
        renderer = _parse(text, etree.XMLParser)
    except etree.XMLSyntaxError:
        renderer = _parse(text, etree.HTMLParser)
    return Page("".join(renderer.blocks), renderer.title, renderer.dropped_words)


def parse_xml(data: bytes) -> etree._Element:
    """Return the root of an XML file. Nothing outside it is read, and no entity is expanded.

    Raises:
        etree.XMLSyntaxError: The file is not well-formed, or declares an entity.
    """
    if b"<!ENTITY" in data:
        raise etree.XMLSyntaxError("expected no <!ENTITY ...>", 0, 0, 0)
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False))


def _parse(text: str, parser: type[etree.XMLParser | etree.HTMLParser]) -> _Renderer:
    renderer = _Renderer()
    options = {"resolve_entities": False} if parser is etree.XMLParser else {}
    if options:
        if "<!ENTITY" in text or "<html" not in text[:4096]:
            raise etree.XMLSyntaxError("expected XHTML without entities", 0, 0, 0)
        text = _ENTITY.sub(_character, text)
    # Without `huge_tree` the end of a long or deep page would be lost.
    etree.fromstring(
        text.encode("utf-8", "replace"),
        parser(target=renderer, encoding="utf-8", huge_tree=True, **options),
    )
    return renderer


def _character(entity: re.Match[str]) -> str:
    """Return the character of a name of HTML, which XML does not know."""
    name = entity[1]
    return entity[0] if name in _XML_ENTITIES else html5.get(f"{name};", entity[0])


class _Renderer:
    """Target of a parser."""

    def __init__(self) -> None:
        self.blocks = list[str]()
        self.title = ""
        self.dropped_words = Counter[str]()
        self._parts = list[str]()
        """Text since the start of the block, with a line feed for each `<br>`."""

        self._links = list[int | None]()
        """Index of the first part of each open link, None of a link to another book or site."""

        self._linked = 0
        """Number of letters of the block in links within the book."""

        self._dropping = list[str]()
        """Open elements, from one that is dropped on."""

        self._dropped_parts = list[str]()
        self._headings = self._preformatted = 0
        """Numbers of open elements."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        name = _local_name(tag)
        if name in _BLOCKS:
            self._end_block()
        if self._dropping or _drop_reason(name, attributes):
            self._dropping.append(_drop_reason(name, attributes))
        elif name == "a":
            is_inner = _INNER_LINK.match(attributes.get("href", "")) is not None
            self._links.append(len(self._parts) if is_inner else None)
        elif name == "br":
            self._parts.append("\n")
        elif name in _CELLS:
            self._parts.append(" ")
        self._headings += name in _HEADINGS
        self._preformatted += name == "pre"

    def end(self, tag: str) -> None:
        """End an element."""
        name = _local_name(tag)
        if self._dropping:
            reason = self._dropping.pop()
            if not self._dropping:
                self._end_drop(reason, name)
        elif name == "a" and self._links:
            self._end_link(self._links.pop())
        if name in _BLOCKS:
            self._end_block()
        self._headings -= name in _HEADINGS
        self._preformatted -= name == "pre"

    def data(self, text: str) -> None:
        """Take a part of the text."""
        if self._dropping:
            self._dropped_parts.append(text)
        else:
            self._parts.append(text if self._preformatted else _SPACE.sub(" ", text))

    def comment(self, text: str) -> None:
        """Take a comment, which is no text."""

    def close(self) -> None:
        """End the page."""
        self._end_block()

    def _end_drop(self, reason: str, name: str) -> None:
        text = "".join(self._dropped_parts)
        if words := count_words(text):
            self.dropped_words[reason] += words
        if name == "title":
            self.title = self.title or " ".join(text.split())
        self._dropped_parts = []

    def _end_link(self, start: int | None) -> None:
        if start is None:
            return
        text = "".join(self._parts[start:])
        if _NOTE_MARK.fullmatch(text):
            del self._parts[start:]
            self.dropped_words["note"] += count_words(text)
        else:
            self._linked += _count_letters(text)

    def _end_block(self) -> None:
        if self._dropping:
            self._dropped_parts.append(" ")
            return
        lines = "".join(self._parts).split("\n")
        linked, self._linked, self._parts, self._links = self._linked, 0, [], []
        # Lines of preformatted text can be indented.
        block = "\n".join(line if line[:2] == "  " else line.strip() for line in lines).strip("\n")
        if not block.strip():
            return
        if linked and linked == _count_letters(block) and not self._headings:
            self.dropped_words["list"] += count_words(block)  # an entry of a table of contents
            return
        self.blocks.append(f"{HEADING_GAP if self._headings else _PARAGRAPH_GAP}{block}")


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _drop_reason(name: str, attributes: Mapping[str, str]) -> str:
    """Return why an element is dropped, "" if it is not."""
    types: Iterable[str] = (
        word.removeprefix("doc-")
        for attribute in _TYPE_ATTRIBUTES
        for word in attributes.get(attribute, "").lower().split()
    )
    reasons = (_DROPPED_TYPES[word] for word in types if word in _DROPPED_TYPES)
    return _DROPPED_ELEMENTS.get(name) or next(reasons, "")


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))
