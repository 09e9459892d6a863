"""Read the pages of MediaWiki XML dumps (export versions 0.3 to 0.11), one at a time.

`<page>` and `</page>` are found as bytes: XML writes `<` in text as `&lt;`. A separate expat parser
reads each page. An invalid page therefore does not affect others, and a dump can be read from any
byte: a page belongs to the range with the `<` of its `<page>`. Entities are never expanded: a page
cannot declare one, and declarations between pages are refused.

Format: https://www.mediawiki.org/wiki/Help:Export and the `export-0.*.xsd` it names.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple
from xml.parsers import expat

from pipelines.io.compression import Chunk, Damage

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
