"""Read the header and the pages of MediaWiki XML dumps (export versions 0.3 to 0.11).

`<page>` and `</page>` are found as bytes: XML writes `<` in text as `&lt;`. A separate expat parser
reads each page. An invalid page therefore does not affect others, and a dump can be read from any
byte: a page belongs to the range with the `<` of its `<page>`. Entities are never expanded: a page
cannot declare one, and a document type or entity declaration in the header or between pages is
refused. MediaWiki writes UTF-8 only; a dump in UTF-16 is converted to it while it is read.

Format: https://www.mediawiki.org/wiki/Help:Export and the `export-0.*.xsd` it names.
"""

from __future__ import annotations

import codecs
import itertools
import re
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from xml.parsers import expat

from pipelines.io.compression import Chunk, Damage
from schemas.errors import InputError

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be"]

_STARTS: tuple[tuple[bytes, Encoding | Literal["utf-32"]], ...] = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with that one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"<\0?\0", "utf-16-le"),
    (b"\0<\0?", "utf-16-be"),
    (b"<\0m\0", "utf-16-le"),
    (b"\0<\0m", "utf-16-be"),
)
_LONGEST_START = 4


def detect_encoding(
    chunks: Iterable[Chunk | Damage], *, where: str
) -> tuple[Encoding, Iterator[Chunk | Damage]]:
    """Return the encoding of a dump by its first bytes, and all of its chunks.

    Raises:
        InputError: The dump is UTF-32.
    """
    remaining = iter(chunks)
    taken: list[Chunk | Damage] = []
    head = b""
    while len(head) < _LONGEST_START:
        chunk = next(remaining, None)
        if chunk is None:
            break
        taken.append(chunk)
        if isinstance(chunk, Damage):
            break
        head += chunk.data
    found: Encoding | Literal["utf-32"] = "utf-8"
    for start, name in reversed(_STARTS):
        found = name if head.startswith(start) else found
    if found == "utf-32":
        raise InputError(
            f"{where}: is UTF-32. Expected UTF-8 or UTF-16: convert it, e.g. `iconv -f UTF-32 -t "
            "UTF-8`, and take the encoding out of its first line"
        )
    return found, itertools.chain(taken, remaining)


def transcode_to_utf8(
    chunks: Iterable[Chunk | Damage], *, encoding: Encoding, end: int
) -> Iterator[Chunk | Damage]:
    """Yield the chunks in UTF-8. A chunk of UTF-16 has the whole file as its place.

    A file that ends within a UTF-16 character ends with a `Damage`.

    Args:
        chunks: Chunks of the whole file. Half a surrogate pair becomes U+FFFD.
        encoding: Encoding of the file, from `detect_encoding`.
        end: Size of the file in bytes.
    """
    if encoding == "utf-8":
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    is_first = True
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk
            continue
        text = decoder.decode(chunk.data)
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        yield Chunk(text.encode(), 0, end, chunk.position)
    if decoder.decode(b"", final=True):
        yield Damage("truncated", end, "the file ends within a UTF-16 character")


WIKITEXT = "wikitext"
"""Content model of a page without `<model>`."""

_MOST_BETWEEN = 1 << 20
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_PAGE_FIELDS = frozenset({"title", "ns", "id"})
_REVISION_FIELDS = frozenset({"id", "timestamp", "model", "text"})


class Tags(NamedTuple):
    """Names of the elements of a dump, with its namespace prefix."""

    page: str = "page"
    root: str = "mediawiki"

    @property
    def prefix(self) -> str:
        """Prefix of the names of pages and their elements, with its colon, or ""."""
        return self.page.removesuffix("page")


_PLAIN_TAGS = Tags()


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
    tags: Tags = _PLAIN_TAGS,
) -> Iterator[Page | Damage]:
    """Yield the pages that begin in the chunks before byte `end`, and damage, in order.

    Holds one revision in memory. A page that is not valid XML becomes a `Damage` of kind `page`.

    Args:
        chunks: Decompressed bytes. They continue after `end` with the rest of the last page.
        end: End of the range in the stored file.
        at_start: The chunks start with the file, so that text between pages can be checked.
        at_end: The range ends with the file, so that a complete `</mediawiki>` must follow.
        tags: Names of elements (`read_header`).
    """
    scanner = _Scanner(end=end, between=b"" if at_start else None, tags=tags)
    for chunk in chunks:
        if isinstance(chunk, Damage) and chunk.start >= end:
            if scanner.parser is not None:  # the range is whole, but not the page that leaves it
                yield chunk._replace(kind="page", cut_page=True)
            return
        if isinstance(chunk, Damage):
            yield chunk._replace(cut_page=scanner.parser is not None)
            scanner.lose_track()
            if chunk.kind in ("truncated", "untrusted"):
                return
        elif scanner.parser is not None or scanner.rest or chunk.start < end:
            yield from scanner.feed(chunk)
        else:
            break
    if scanner.parser is not None or (at_end and not scanner.closed):
        reason = f"the XML ends without </{tags.root}>"
        yield Damage("truncated", scanner.position, reason, cut_page=scanner.parser is not None)


class MalformedPageError(Exception):
    """A page has a structure that no dump has. It becomes a `Damage`."""


class _PageParser:
    """Parser of one page, fed in slices. It keeps fields of the last revision."""

    def __init__(self, byte_start: int, byte_end: int, *, prefix: str) -> None:
        self._prefix = prefix
        self.byte_end = byte_end
        self.is_new = True
        self._byte_start = byte_start
        self._path: list[str] = []
        self._page: dict[str, str] = {}
        self._revision: dict[str, str] = {}
        self._revisions = 0
        self._has_redirect = False
        self._parts: list[str] = []
        self._into: dict[str, str] | None = None
        self._parser = parser = expat.ParserCreate("UTF-8")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._stop

    @property
    def name(self) -> str:
        """Title and id, if they are known."""
        return page_name(self._page.get("title", ""), self._page.get("id"))

    def feed(self, data: bytes) -> None:
        """Parse bytes of the page. Raises ExpatError or MalformedPageError."""
        self.is_new = self.is_new and not data
        self._parser.Parse(data, False)

    def finish(self, byte_end: int) -> Page:
        """Return the page after its `</page>` was fed. Raises ExpatError."""
        parser = self._parser
        parser.Parse(b"", True)
        # Break the reference cycle, so that the page is freed at once.
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
        page, revision = self._page, self._revision
        numbers = [page.get("ns"), page.get("id"), revision.get("id")]
        return Page(
            title=page.get("title", ""),
            namespace=_number(numbers[0]),
            page_id=_number(numbers[1]),
            revision_id=_number(numbers[2]),
            timestamp=revision.get("timestamp"),
            model=revision.get("model", WIKITEXT),
            text=revision.get("text", ""),
            has_redirect=self._has_redirect,
            revisions=self._revisions,
            byte_start=self._byte_start,
            byte_end=byte_end,
            fault=self._fault(numbers),
        )

    def _fault(self, numbers: list[str | None]) -> str:
        if not self._page.get("title"):
            return "it has no <title>"
        if not self._revisions:
            return "it has no <revision>"
        wrong = next((text for text in numbers if text and _number(text) is None), None)
        return "" if wrong is None else f"expected a number for <ns> or <id>, found {wrong!r}"

    def _start(self, tag: str, _attributes: dict[str, str]) -> None:
        name = tag.removeprefix(self._prefix)
        path = self._path
        depth = len(path)
        path.append(name)
        if self._into is not None:
            raise MalformedPageError(f"<{name}> begins inside <{path[-2]}>")
        if depth == 1:
            if name in _PAGE_FIELDS:
                self._listen(self._page)
            elif name == "revision":
                self._revisions += 1
                self._revision = {}
            elif name == "redirect":
                self._has_redirect = True
        elif depth == 2 and name in _REVISION_FIELDS and path[1] == "revision":
            self._listen(self._revision)
        if depth and name == "page":
            raise MalformedPageError("another <page> begins inside it")

    def _listen(self, into: dict[str, str]) -> None:
        self._into = into
        self._parser.CharacterDataHandler = self._parts.append

    def _stop(self, tag: str) -> None:
        self._path.pop()
        if self._into is not None:
            self._into[tag.removeprefix(self._prefix)] = "".join(self._parts)
            self._parts.clear()
            self._into = None
            self._parser.CharacterDataHandler = None


def page_name(title: str, page_id: object) -> str:
    """Return the name of a page in messages."""
    return f"{title!r} (id {'unknown' if page_id is None else page_id})"


def _number(text: str | None) -> int | None:
    digits = (text or "").strip()
    return int(digits) if _NUMBER.fullmatch(digits) else None


class _Place(NamedTuple):
    """Origin of a byte of the text in the stored file."""

    owner: int
    """Offset that decides which range the byte belongs to."""

    start: int
    """Start of its bzip2 stream, or offset of the byte in a plain file."""

    end: int


class _Scanner:
    """Splits a stream of bytes into pages."""

    def __init__(self, *, end: int, between: bytes | None, tags: Tags) -> None:
        self._prefix = tags.prefix
        self._open, self._close, self._last = (
            f"<{name}>".encode() for name in (tags.page, f"/{tags.page}", f"/{tags.root}")
        )
        self.parser: _PageParser | None = None
        self.rest = b""  # the last bytes, if they may be the start of a tag
        self.closed = False  # </mediawiki> was seen
        self.position = 0
        self._end = end
        self._rest_place = _Place(0, 0, 0)
        self._borrowed = 0
        self._chunk = Chunk(b"", 0, 0, 0)
        self._between = between  # text since the last page; None if it cannot be checked

    def lose_track(self) -> None:
        """Discard the current page: bytes are missing."""
        self.parser, self.rest, self._between = None, b"", None

    def feed(self, chunk: Chunk) -> Iterator[Page | Damage]:
        data, self._borrowed, self.rest = self.rest + chunk.data, len(self.rest), b""
        self._chunk, self.position = chunk, chunk.position
        at = 0
        while at < len(data):
            if self.parser is None:
                at = yield from self._find_page(data, at)
            else:
                at = yield from self._fill_page(self.parser, data, at)

    def _find_page(self, data: bytes, at: int) -> Generator[Damage, None, int]:
        found = data.find(self._open, at)
        stop = (
            found if found >= 0 else len(data) - _half_tag(data, at, tags=(self._open, self._last))
        )
        yield from self._pass_between(data[at:stop], is_all=found >= 0)
        if found < 0:
            return self._keep(data, stop)
        place = self._place_of(found)
        if place.owner >= self._end:  # this page and all that follow belong to the next range
            return len(data)
        self.parser = _PageParser(place.start, place.end, prefix=self._prefix)
        return found

    def _fill_page(
        self, parser: _PageParser, data: bytes, at: int
    ) -> Generator[Page | Damage, None, int]:
        found = data.find(self._close, at)
        kept_back = _half_tag(data, at, tags=(self._open, self._close))
        stop = found + len(self._close) if found >= 0 else len(data) - kept_back
        seen = at + 1 if parser.is_new else at
        try:
            parser.feed(data[at:stop])
            if found < 0:
                return self._keep(data, stop)
            end = self._place_of(stop).start if self._chunk.is_plain else parser.byte_end
            page = parser.finish(end)
        except (MalformedPageError, expat.ExpatError) as error:
            self.parser, self._between = None, None
            reason = f"the page {parser.name} is not valid XML: {error}"
            yield Damage("page", self.position, reason, cut_page=True)
            # If it was never closed, the next one has begun in what was just fed.
            following = data.find(self._open, seen, stop)
            return following if following >= 0 else stop
        self.parser, self._between = None, b""
        yield page
        return stop

    def _keep(self, data: bytes, stop: int) -> int:
        self._rest_place = self._place_of(stop)
        self.rest = data[stop:]
        return len(data)

    def _place_of(self, index: int) -> _Place:
        chunk = self._chunk
        if chunk.is_plain:
            offset = chunk.start - self._borrowed + index
            return _Place(offset, offset, offset)
        if index < self._borrowed:
            return self._rest_place
        return _Place(chunk.start, *(chunk.stream or (chunk.start, chunk.end)))

    def _pass_between(self, data: bytes, *, is_all: bool) -> Iterator[Damage]:
        """Check the text between pages: header, white space, end."""
        self.closed = self.closed or self._last in data
        if self._between is None:
            return
        self._between += data
        text = _without_comments(self._between) if is_all else b""
        if b"<!" in text or self._open[:-1] in text or len(self._between) > _MOST_BETWEEN:
            found = self._between.strip()[:40]
            reason = f"expected white space between pages, or a header before them, found {found!r}"
            yield Damage("untrusted", self.position, reason)


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

# XML tools that rewrite a dump add a prefix: `<ns0:page>`.
_PREFIX = rb"(?:[A-Za-z_][\w.-]{0,60}:)?"
_FIRST_PAGE = re.compile(rb"<(" + _PREFIX + rb"page)>")
_ROOT = re.compile(rb"<(" + _PREFIX + rb"mediawiki)[\s/>]")
_END = re.compile(rb"</" + _PREFIX + rb"mediawiki>")
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

    tags: Tags = Tags()
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
        page, end = _FIRST_PAGE.search(head), _END.search(head)
        starts = [match.start() for match in (page, end) if match]
        if starts:
            page_name = page[1] if page and page.start() == min(starts) else b""
            return _parse_header(head[: min(starts)], page=page_name.decode(), where=where)
        if len(head) > _MOST_HEADER:
            break
    if len(head) > _MOST_HEADER or not _ROOT.search(head):
        raise InputError(
            f"{where}: expected a MediaWiki XML dump, <mediawiki> and its pages; found "
            f"{head[:40]!r} and no <page> in the first {len(head):,} bytes. Give it to another "
            "kind of source, or take it out of the paths"
        )
    return Damage("truncated", len(head), "the file ends before its first page")


def _parse_header(head: bytes, *, page: str, where: str) -> Header:
    root = _ROOT.search(head)
    if root is None:
        raise InputError(
            f"{where}: expected <mediawiki> before the first page, found {head.strip()[:40]!r} and "
            f"<{page or '/mediawiki'}>. If it is part of a dump, put a line `<mediawiki>` before "
            "and `</mediawiki>` behind its pages"
        )
    tag = root[1].decode()
    found: dict[str, str] = {}
    namespaces: dict[int, str] = {}
    base: dict[str, str] = {}
    open_text: list[Callable[[str], None]] = []

    def collect(texts: dict[Any, str], key: Any) -> None:
        texts[key] = ""

        def add(data: str) -> None:
            texts[key] += data

        open_text[:] = [add]

    def start(full_name: str, attributes: dict[str, str]) -> None:
        name = full_name.rpartition(":")[2]
        if not found and name != "mediawiki":
            raise InputError(f"{where}: expected <mediawiki> first, found <{name}>")
        if name == "page":
            raise InputError(
                f"{where}: expected pages to begin with <page>, found <{full_name}> with "
                f"{', '.join(attributes) or 'white space'} in it. Take that out"
            )
        if name == "mediawiki":
            found.update(version=attributes.get("version", "?"))
            found.update(language=attributes.get("xml:lang", ""))
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
        # A dump in UTF-16 comes here as UTF-8 (`pipelines.mediawiki.dump_encoding`).
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "utf-16", "utf16"):
            raise InputError(f"{where}: expected UTF-8, found {encoding}. Convert it, with iconv")

    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.XmlDeclHandler = declaration
    try:
        parser.Parse(head + f"</{tag}>".encode(), True)
    except (expat.ExpatError, ValueError, KeyError) as error:
        raise InputError(f"{where}: the header is not valid: {error}") from error
    tags = Tags(page or tag.replace("mediawiki", "page"), tag)
    site = _SITE.match(base.get("base", ""))
    return Header(found["version"], found["language"], namespaces, tags, site[1] if site else "")


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
