"""Licenses and attribution of a corpus's sources.

Wikimedia publishes the text of its wikis under CC BY-SA 4.0 and the GFDL
(https://dumps.wikimedia.org/legal.html). Project Gutenberg's books are in the public domain in the
United States unless a book states otherwise (https://www.gutenberg.org/policy/license.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas.manifest import Manifest, RawInput
from schemas.publish_configs import CardsConfig, SourceCard

UNKNOWN = "unknown"
"""The Hub's identifier of an unknown license."""

_DUMP = re.compile(r"(?:^|/)([a-z][a-z_]*?)wiki-(?:\d{8}|latest)-pages-")
_GUTENBERG = re.compile(r"(?:^|[/_-])(?:pg\d+|\d+-0|gutenberg)", re.IGNORECASE)
_WIKI_LANGUAGES = {"simple": "en", "be_x_old": "be", "zh_classical": "lzh", "zh_yue": "yue"}
_PAGE_AUTHORS = "authors of each page, named in its history; its address, with revision_id added:"
_GUTENBERG_RIGHTS = "Project Gutenberg: public domain in the United States, unless a book differs"


class SourceFacts(NamedTuple):
    """A source of documents as a card describes it."""

    name: str
    kind: str
    files: Sequence[RawInput]
    languages: Sequence[str]
    """ISO 639 codes; empty if unknown."""

    licenses: Sequence[str] = ()
    """Identifiers of the Hub; empty if unknown."""

    attribution: str = UNKNOWN
    urls: Sequence[str] = ()


def source_facts(documents: Manifest, cards: CardsConfig) -> Iterator[SourceFacts]:
    """Yield the sources of a `build-documents` artifact in the order of its configuration."""
    sources = documents.config.get("sources", [])
    for source in sources:
        name, raw_inputs = source["name"], documents.raw_inputs
        files = [f for f in raw_inputs if len(sources) == 1 or f.key_digest.startswith(f"{name}\t")]
        facts = _known_facts(source, files)
        stated = cards.sources.get(name, SourceCard())
        if stated.license:
            facts = facts._replace(licenses=(stated.license,))
        if stated.attribution or stated.url:
            facts = facts._replace(attribution=stated.attribution, urls=[stated.url])
        yield facts


def _known_facts(source: Mapping[str, str], files: Sequence[RawInput]) -> SourceFacts:
    """Return what the names of the files imply."""
    wikis = sorted({match[1] for file in files if (match := _DUMP.search(file.name))})
    codes = {wiki: _WIKI_LANGUAGES.get(wiki, wiki) for wiki in wikis}
    codes = {wiki: code for wiki, code in codes.items() if len(code) <= 3}  # ISO 639
    languages = [source["language"]] if source.get("language") else list(codes.values())
    facts = SourceFacts(source["name"], source["kind"], files, languages)
    if facts.kind == "wikipedia" and codes:
        pages = [f"https://{w.replace('_', '-')}.wikipedia.org/?oldid=" for w in codes]
        licenses = ("cc-by-sa-4.0", "gfdl")
        return facts._replace(licenses=licenses, attribution=_PAGE_AUTHORS, urls=pages)
    if facts.kind == "books" and any(_GUTENBERG.search(file.name) for file in files):
        return facts._replace(licenses=("other",), attribution=_GUTENBERG_RIGHTS)
    return facts
