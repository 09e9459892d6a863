"""Read the header of a MediaWiki XML dump: version, language, namespaces.

A document type or entity declaration is refused.

Format: https://www.mediawiki.org/wiki/Help:Export and the `export-0.*.xsd` it names.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from xml.parsers import expat

from pipelines.io.compression import Chunk, Damage
from pipelines.mediawiki.dump_xml import Tags
from schemas.errors import InputError

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
