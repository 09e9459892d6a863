"""Read the header and the pages of MediaWiki XML dumps (export versions 0.3 to 0.11).

`<page>` and `</page>` are found as bytes: XML writes `<` in text as `&lt;`. Each page is parsed for
itself. An invalid page therefore does not affect others, and a dump can be read from any byte: a
page belongs to the range with the `<` of its `<page>`. Entities are never expanded: a page cannot
declare one, and a document type or entity declaration in the header or between pages is refused.
Dumps are in UTF-8 and have no namespace prefix, as MediaWiki writes them.

Format: https://www.mediawiki.org/wiki/Help:Export and the `export-0.*.xsd` it names.
"""

from __future__ import annotations

import codecs
import re
import types
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from xml.parsers import expat

from lxml import etree

from pipelines.io.compression import Chunk, Damage
from schemas.errors import InputError

WIKITEXT = "wikitext"
"""Content model of a page without `<model>`."""

_MOST_BETWEEN = 1 << 20
_MOST_SUPERSEDED = 16 << 20
"""Bytes of a page after which its earlier revisions are discarded while it is read."""

_OPEN, _CLOSE, _LAST, _REVISION = b"<page>", b"</page>", b"</mediawiki>", b"<revision>"
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_TITLE = re.compile(rb"<title>([^<]*)</title>")
_ID = re.compile(rb"<id>([0-9]+)</id>")
_HEAD = re.compile(
    rb"<page>\s*<title>([^<&]++)</title>\s*<ns>(-?[0-9]{1,18})</ns>\s*<id>([0-9]{1,18})</id>"
)


class Page(NamedTuple):
    """A page with the last of its revisions, as the dump has them."""

    title: str
    namespace: int | None
    """None where the dump has no `<ns>` (export versions before 0.6): see `namespace_of`."""

    page_id: int | None
    revision_id: int | None
    timestamp: str | None
    model: str
    text: str
    has_redirect: bool
    """The page has a `<redirect/>`."""

    revisions: int
    byte_start: int
    """Offset of its bzip2 stream in the stored file, or of the page in a plain file."""

    byte_end: int
    fault: str = ""
    """Reason why a page of valid XML is not usable, or ""."""


def iterate_pages(
    chunks: Iterable[Chunk | Damage],
    *,
    end: int,
    at_start: bool,
    at_end: bool,
    namespaces: Container[int] | None = None,
) -> Iterator[Page | Damage]:
    """Yield the pages that begin in the chunks before byte `end`, and damage, in order.

    Holds one revision in memory. A page that is not valid XML becomes a `Damage` of kind `page`.

    Args:
        chunks: Decompressed bytes. They continue after `end` with the rest of the last page.
        end: End of the range in the stored file.
        at_start: The chunks start with the file, so that text between pages can be checked.
        at_end: The range ends with the file, so that a complete `</mediawiki>` must follow.
        namespaces: Namespaces whose pages are read; None: all. Of other pages, only title, number,
            namespace and number of revisions are read, and their XML is not checked.
    """
    scanner = _Scanner(end=end, between=b"" if at_start else None, namespaces=namespaces)
    for chunk in chunks:
        is_cut = scanner.page is not None
        if isinstance(chunk, Damage):
            if is_cut or not chunk.is_behind:
                yield chunk._replace(cut_page=is_cut)
            return
        if chunk.is_behind and not is_cut and not scanner.rest:
            return
        yield from scanner.feed(chunk)
    is_cut = scanner.page is not None
    if is_cut or (at_end and not scanner.closed):
        reason = "the XML ends without </mediawiki>"
        yield Damage("truncated", scanner.position, reason, cut_page=is_cut)


class MalformedPageError(Exception):
    """A page has a structure that no dump has. It becomes a `Damage`."""


class _PageBytes:
    """Bytes of a page, without the revisions before the last one."""

    def __init__(self, byte_start: int, byte_end: int) -> None:
        self.byte_start, self.byte_end = byte_start, byte_end
        self.superseded = 0
        self._parts: list[bytes] = []
        self._size, self._most = 0, _MOST_SUPERSEDED

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._most:
            self._size = len(self.join())
            self._most = max(_MOST_SUPERSEDED, 2 * self._size)

    def join(self) -> bytes:
        """Return the page."""
        data = b"".join(self._parts)
        first, last = data.find(_REVISION), data.rfind(_REVISION)
        if first < last:
            self.superseded += data.count(_REVISION, first, last)
            data = data[:first] + data[last:]
        self._parts = [data]
        return data


def _read_page(page: _PageBytes, namespaces: Container[int] | None) -> Page:
    """Return a complete page. The arguments and errors are those of the functions that it calls."""
    skipped = None if namespaces is None else _read_head(page, namespaces)
    return skipped or _parse_page(page)


def _parse_page(page: _PageBytes) -> Page:
    """Return a complete page.

    Raises:
        etree.XMLSyntaxError: The page is not valid XML.
        MalformedPageError: Its elements are not those of a page.
    """
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        huge_tree=True,  # texts of more than 10 MB
        remove_comments=True,
        remove_pis=True,
    )
    root = etree.fromstring(page.join(), parser)
    fields = {element.tag: element for element in root}
    revision = fields.get("revision", ())
    texts = {element.tag: element for element in revision}
    numbers = [_text(fields, "ns"), _text(fields, "id"), _text(texts, "id")]
    title = _text(fields, "title") or ""
    model = _text(texts, "model")
    return Page(
        title=title,
        namespace=_number(numbers[0]),
        page_id=_number(numbers[1]),
        revision_id=_number(numbers[2]),
        timestamp=_text(texts, "timestamp"),
        model=WIKITEXT if model is None else model,
        text=_text(texts, "text") or "",
        has_redirect="redirect" in fields,
        revisions=page.superseded + len(root.findall("revision")),
        byte_start=page.byte_start,
        byte_end=page.byte_end,
        fault=_fault(title, numbers, has_revision="revision" in fields),
    )


def _read_head(page: _PageBytes, namespaces: Container[int]) -> Page | None:
    """Return a page of another namespace without its text, or None for a page to be parsed."""
    data = page.join()
    head = _HEAD.match(data)
    if head is None or (namespace := int(head[2])) in namespaces or _REVISION not in data:
        return None
    return Page(
        title=head[1].decode("utf-8", "replace"),
        namespace=namespace,
        page_id=int(head[3]),
        revision_id=None,
        timestamp=None,
        model=WIKITEXT,
        text="",
        has_redirect=False,
        revisions=page.superseded + 1,
        byte_start=page.byte_start,
        byte_end=page.byte_end,
    )


def _text(elements: Mapping[Any, Any], name: str) -> str | None:
    """Return the text of an element; None if there is no such element."""
    element = elements.get(name)
    if element is None:
        return None
    if len(element):
        raise MalformedPageError(f"<{element[0].tag}> begins inside <{name}>")
    return element.text or ""


def _fault(title: str, numbers: list[str | None], *, has_revision: bool) -> str:
    if not title:
        return "it has no <title>"
    if not has_revision:
        return "it has no <revision>"
    wrong = next((text for text in numbers if text and _number(text) is None), None)
    return "" if wrong is None else f"expected a number for <ns> or <id>, got {wrong!r}"


def _name_of(data: bytes) -> str:
    """Return the name in messages of a page that is not valid XML."""
    title, page_id = _TITLE.search(data), _ID.search(data)
    name = title[1].decode("utf-8", "replace") if title else ""
    return page_name(name, int(page_id[1]) if page_id else None)


def page_name(title: str, page_id: object) -> str:
    """Return the name of a page in messages."""
    return f"{title!r} (id {'unknown' if page_id is None else page_id})"


def _number(text: str | None) -> int | None:
    digits = (text or "").strip()
    return int(digits) if _NUMBER.fullmatch(digits) else None


class _Origin(NamedTuple):
    """Origin of a byte of the text in the stored file."""

    is_behind: bool
    """The byte is after the range."""

    start: int
    """Start of its bzip2 stream, or offset of the byte in a plain file."""

    end: int


class _Scanner:
    """Splits a stream of bytes into pages."""

    def __init__(
        self, *, end: int, between: bytes | None, namespaces: Container[int] | None
    ) -> None:
        self.page: _PageBytes | None = None
        self.rest = b""  # the last bytes, if they may be the start of a tag
        self.closed = False  # </mediawiki> was seen
        self.position = 0
        self._end = end
        self._namespaces = namespaces
        self._rest_origin = _Origin(False, 0, 0)
        self._borrowed = 0
        self._chunk = Chunk(b"", 0, 0, 0)
        self._between = between  # text since the last page; None if it cannot be checked

    def feed(self, chunk: Chunk) -> Iterator[Page | Damage]:
        data, self._borrowed, self.rest = self.rest + chunk.data, len(self.rest), b""
        self._chunk, self.position = chunk, chunk.position
        at = 0
        while at < len(data):
            if self.page is None:
                at = yield from self._find_page(data, at)
            else:
                at = yield from self._fill_page(self.page, data, at)

    def _find_page(self, data: bytes, at: int) -> Generator[Damage, None, int]:
        start = data.find(_OPEN, at)
        stop = start if start >= 0 else len(data) - _half_tag(data, at, tags=(_OPEN, _LAST))
        yield from self._pass_between(data[at:stop], is_all=start >= 0)
        if start < 0:
            return self._keep(data, stop)
        origin = self._origin_of(start)
        if origin.is_behind:  # this page and all that follow belong to the next range
            return len(data)
        self.page = _PageBytes(origin.start, origin.end)
        self.page.add(_OPEN)
        return start + len(_OPEN)

    def _fill_page(
        self, page: _PageBytes, data: bytes, at: int
    ) -> Generator[Page | Damage, None, int]:
        close = data.find(_CLOSE, at)
        following = data.find(_OPEN, at, close if close >= 0 else len(data))
        if following >= 0:
            yield self._damaged(page, "the next page begins before </page>")
            return following
        if close < 0:
            stop = len(data) - _half_tag(data, at, tags=(_OPEN, _CLOSE))
            page.add(data[at:stop])
            return self._keep(data, stop)
        stop = close + len(_CLOSE)
        page.add(data[at:stop])
        if self._chunk.is_plain:
            page.byte_end = self._origin_of(stop).start
        try:
            parsed = _read_page(page, self._namespaces)
        except (MalformedPageError, etree.XMLSyntaxError) as error:
            yield self._damaged(page, error)
            return stop
        self.page, self._between = None, b""
        yield parsed
        return stop

    def _damaged(self, page: _PageBytes, error: object) -> Damage:
        self.page, self._between = None, None
        reason = f"the page {_name_of(page.join())} is not valid XML: {error}"
        return Damage("page", self.position, reason, cut_page=True)

    def _keep(self, data: bytes, stop: int) -> int:
        self._rest_origin = self._origin_of(stop)
        self.rest = data[stop:]
        return len(data)

    def _origin_of(self, index: int) -> _Origin:
        chunk = self._chunk
        if chunk.is_plain:
            offset = chunk.start - self._borrowed + index
            return _Origin(offset >= self._end, offset, offset)
        if index < self._borrowed:
            return self._rest_origin
        return _Origin(chunk.is_behind, chunk.start, chunk.end)

    def _pass_between(self, data: bytes, *, is_all: bool) -> Iterator[Damage]:
        """Check the text between pages: header, white space, end."""
        self.closed = self.closed or _LAST in data
        if self._between is None or (is_all and not self._between and data.isspace()):
            return
        self._between += data
        text = _without_comments(self._between) if is_all else b""
        if b"<!" in text or _OPEN[:-1] in text or len(self._between) > _MOST_BETWEEN:
            start = self._between.strip()[:40]
            reason = f"expected white space between pages, or a header before them, got {start!r}"
            yield Damage("damaged", self.position, reason)


def _without_comments(data: bytes) -> bytes:
    """Remove XML comments. One that is never closed stays."""
    end = data.rfind(b"-->") + 3  # behind it, the pattern would search to the end for each `<!--`
    return _COMMENT.sub(b"", data[:end]) + data[end:]


def _half_tag(data: bytes, start: int, *, tags: tuple[bytes, ...]) -> int:
    """Return how many of the last bytes may be the start of a tag."""
    at = data.rfind(b"<", max(start, len(data) - max(map(len, tags)) + 1))
    half = data[at:] if at >= 0 else b""
    return len(half) if any(tag.startswith(half) for tag in tags) else 0


CANONICAL_NAMESPACES = {
    **{-2: "Media", -1: "Special", 0: "", 1: "Talk", 2: "User", 3: "User talk"},
    **{4: "Project", 5: "Project talk", 6: "File", 7: "File talk", 8: "MediaWiki"},
    **{9: "MediaWiki talk", 10: "Template", 11: "Template talk", 12: "Help", 13: "Help talk"},
    **{14: "Category", 15: "Category talk"},
}
"""English names, valid in every MediaWiki. The header adds the names in the wiki's language."""

# Further common names, for dumps without <siteinfo> and <ns>.
_FURTHER_NAMES = {
    **{"image": 6, "image talk": 7, "wikipedia": 4, "wikipedia talk": 5, "wikibooks": 4},
    **{"wikibooks talk": 5, "wiktionary": 4, "wiktionary talk": 5, "wikinews": 4},
    **{"wikinews talk": 5, "wikiquote": 4, "wikiquote talk": 5, "wikisource": 4},
    **{"wikisource talk": 5, "portal": 100, "portal talk": 101},
}

_ROOT = re.compile(rb"<mediawiki[\s/>]")
_FIRST_PAGE_OR_END = re.compile(rb"<page>|</mediawiki>")
_WIDE_STARTS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MOST_HEADER = 1 << 20
_SITE = re.compile(r"\s*(https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?)(?:/|\s*$)")
_DUMP_NAME = re.compile(
    r"(?:.*/)?([a-z]{2,3}|simple|[a-z]{2,4}(?:_[a-z]{2,8})+)"
    r"(wiki|wiktionary|wikibooks|wikiquote|wikinews|wikisource|wikiversity|wikivoyage)-"
    r"(?:\d{8}|latest)-"
)


class Header(NamedTuple):
    """Header of a dump."""

    version: str = ""
    """Version of the export format, e.g. `0.11`."""

    language: str = ""
    """`xml:lang`, e.g. `en`, or ""."""

    namespaces: Mapping[int, str] = types.MappingProxyType({})
    """Name by number, from `<siteinfo>`."""

    site: str = ""
    """`https://HOST` of the wiki, from the URL of its main page, or ""."""


def read_header(chunks: Iterable[Chunk | Damage], *, where: str) -> Header | Damage:
    """Return the header, or the damage before the first page.

    Raises:
        InputError: The file is not a MediaWiki dump, or declares a document type or entities.
    """
    head = b""
    for chunk in chunks:
        if isinstance(chunk, Damage):
            return chunk
        head += chunk.data
        if first := _FIRST_PAGE_OR_END.search(head):
            return _parse_header(head[: first.start()], where=where)
        if len(head) > _MOST_HEADER:
            break
    if head.startswith(_WIDE_STARTS) or b"\0" in head[:4]:
        raise InputError(
            f"{where}: expected a MediaWiki XML dump in UTF-8, got another encoding. Convert it, "
            "e.g. `iconv -f UTF-16 -t UTF-8`, and take the encoding out of its first line"
        )
    if len(head) > _MOST_HEADER or not _ROOT.search(head):
        raise InputError(
            f"{where}: expected a MediaWiki XML dump, <mediawiki> and its pages, without a prefix "
            f"before the names of elements; got {head[:40]!r} and no <page> in the first "
            f"{len(head):,} bytes. Give it to another kind of source, or take it out of the paths"
        )
    return Damage("truncated", len(head), "the file ends before its first page")


def _parse_header(head: bytes, *, where: str) -> Header:
    if not _ROOT.search(head):
        raise InputError(
            f"{where}: expected <mediawiki> before the first page, got {head.strip()[:40]!r}. "
            "If it is part of a dump, put a line `<mediawiki>` before and `</mediawiki>` behind "
            "its pages"
        )
    root: dict[str, str] = {}  # attributes of <mediawiki>
    namespaces: dict[int, str] = {}
    base: dict[str, str] = {}
    open_text: list[Callable[[str], None]] = []

    def collect(texts: dict[Any, str], key: Any) -> None:
        texts[key] = ""

        def add(data: str) -> None:
            texts[key] += data

        open_text[:] = [add]

    def start(name: str, attributes: dict[str, str]) -> None:
        if not root and name != "mediawiki":
            raise InputError(f"{where}: expected <mediawiki> first, found <{name}>")
        if name == "page":
            raise InputError(
                f"{where}: expected pages to begin with <page>, found <{name}> with "
                f"{', '.join(attributes) or 'white space'} in it. Take that out"
            )
        if name == "mediawiki":
            root.update(version=attributes.get("version", "?"))
            root.update(language=attributes.get("xml:lang", ""))
        elif name == "namespace":
            collect(namespaces, int(attributes["key"]))
        elif name == "base":
            collect(base, name)

    def end(_name: str) -> None:
        open_text.clear()

    def text(data: str) -> None:
        for add in open_text:
            add(data)

    def refuse(*_arguments: Any) -> Any:
        raise InputError(
            f"{where}: a document type or entity declaration is not allowed: no MediaWiki dump has "
            "one, and it may be made to exhaust memory or to read other files. Take it out"
        )

    def declaration(_version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8"):
            raise InputError(f"{where}: expected UTF-8, got {encoding}. Convert it with iconv")

    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.XmlDeclHandler = declaration
    try:
        parser.Parse(head + _LAST, True)
    except (expat.ExpatError, ValueError, KeyError) as error:
        raise InputError(f"{where}: the header is not valid: {error}") from error
    site = _SITE.match(base.get("base", ""))
    return Header(root["version"], root["language"], namespaces, site[1] if site else "")


def site_of_dump(name: str) -> str:
    """Return the site of a Wikimedia dump by the name of its file; "" for other names.

    >>> site_of_dump("zh_yuewiki-20260101-pages-articles.xml.bz2")
    'https://zh-yue.wikipedia.org'
    """
    match = _DUMP_NAME.match(name)
    if match is None:
        return ""
    project = "wikipedia" if match[2] == "wiki" else match[2]
    return f"https://{match[1].replace('_', '-')}.{project}.org"


def namespace_of(title: str, namespaces: Mapping[int, str]) -> int:
    """Return the namespace of a title's prefix, or 0.

    Args:
        title: Title as in `<title>`, e.g. `User talk:Ada`.
        namespaces: Name by number, from the dump's `<siteinfo>`. English names are added.
    """
    prefix, colon, _ = title.partition(":")
    if not colon:
        return 0
    name = prefix.replace("_", " ").strip().casefold()
    for known in (namespaces, CANONICAL_NAMESPACES):
        for number, other in known.items():
            if number != 0 and other.casefold() == name:
                return number
    return 0 if namespaces else _FURTHER_NAMES.get(name, 0)
