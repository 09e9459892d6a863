"""Whose the texts of a source are, as far as that is known.

Wikimedia gives out the text of its wikis under CC BY-SA 4.0 and, most of it, the GFDL
(https://dumps.wikimedia.org/legal.html); authors are named by a link to the page. Project
Gutenberg's books are in the public domain in the United States unless a book says otherwise
(https://www.gutenberg.org/policy/license.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from schemas.card_configs import CardsConfig
from schemas.manifest import Manifest, RawInput

NOT_SAID = "not said"
_DUMP = re.compile(r"(?:^|/)([a-z][a-z_]*?)wiki-(?:\d{8}|latest)-pages-")
_GUTENBERG = re.compile(r"(?:^|[/_-])(?:pg\d+|\d+-0|gutenberg)", re.IGNORECASE)
_WIKI_CODES = {"simple": "en", "be_x_old": "be", "zh_classical": "lzh", "zh_yue": "yue"}


class SourceFacts(NamedTuple):
    """A source of documents, for people who use them."""

    name: str
    kind: str
    languages: tuple[str, ...]
    """ISO 639 codes; none where the source does not say."""

    licenses: tuple[str, ...]
    """As the hub writes them; none where nothing is known."""

    license_text: str
    attribution: str
    files: tuple[RawInput, ...]


def source_facts(documents: Manifest, cards: CardsConfig) -> Iterator[SourceFacts]:
    """The sources of a `build-documents` artifact, in the order of its configuration."""
    configured = documents.config.get("sources", [])
    for source in configured:
        files = tuple(_files_of(documents, source["name"], is_only=len(configured) == 1))
        yield _facts(source, files, cards)


def _files_of(documents: Manifest, name: str, *, is_only: bool) -> Iterator[RawInput]:
    for item in documents.raw_inputs:
        if is_only or item.identity.startswith(f"{name}\t"):
            yield item


def _facts(
    source: Mapping[str, Any], files: tuple[RawInput, ...], cards: CardsConfig
) -> SourceFacts:
    kind, name = source["kind"], source["name"]
    wikis = sorted({found[1] for item in files if (found := _DUMP.search(item.name))})
    languages = [source["language"]] if source.get("language") else [_language(w) for w in wikis]
    said = cards.sources.get(name)
    licenses, text, attribution = _known(kind, wikis, files)
    if said is not None and (said.license or said.attribution or said.url):
        licenses = (said.license,) if said.license else licenses
        text = said.license or text
        attribution = " ".join(part for part in (said.attribution, said.url) if part)
    return SourceFacts(
        name, kind, tuple(sorted(filter(None, languages))), licenses, text, attribution, files
    )


def _known(
    kind: str, wikis: list[str], files: tuple[RawInput, ...]
) -> tuple[tuple[str, ...], str, str]:
    """Licences, the same in words, and who is to be named, where the recipe says nothing."""
    known = [wiki for wiki in wikis if _language(wiki)]
    if kind == "wikipedia" and known:
        pages = " or ".join(
            f"`https://{wiki.replace('_', '-')}.wikipedia.org/?oldid=REVISION_ID`" for wiki in known
        )
        return (
            ("cc-by-sa-4.0", "gfdl"),
            "CC BY-SA 4.0 and GFDL, as Wikimedia gives out the text of its wikis",
            "the authors of each page, by a link to it: the columns `title` and `revision_id` of a "
            f"document lead to the revision that was read, {pages}, whose history names them",
        )
    if kind == "books" and any(_GUTENBERG.search(item.name) for item in files):
        return (
            ("other",),
            "books of Project Gutenberg: public domain in the United States unless a book says "
            "otherwise; elsewhere as the law there says",
            "Project Gutenberg, https://www.gutenberg.org",
        )
    return (), NOT_SAID, ""


def _language(wiki: str) -> str:
    """ISO 639 code of Wikipedia's name of a language edition; "" where it is none."""
    code = _WIKI_CODES.get(wiki, wiki)
    return code if len(code) <= 3 else ""
