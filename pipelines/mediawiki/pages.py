"""Convert a page of a dump to a document, or return the reason why it is dropped."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.counters import DROPPED_TEMPLATE, UNKNOWN_TEMPLATE, Count
from pipelines.io.splits import RawText
from pipelines.mediawiki.cleaning import UnknownTemplates
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.mediawiki.dumps import WIKITEXT, Page, namespace_of
from pipelines.mediawiki.wikitext import WikiSettings, clean_wikitext, is_redirect


def drop_reason(page: Page, *, namespaces: tuple[int, ...], names: Mapping[int, str]) -> str:
    """Return why a page is dropped before its text is cleaned, or ""."""
    if page.fault:
        return "malformed"
    known = page.namespace
    if (namespace_of(page.title, names) if known is None else known) not in namespaces:
        return "namespace"
    if page.model != WIKITEXT:
        return "not-wikitext"
    if page.has_redirect or is_redirect(page.text):
        return "redirect"
    return "" if page.text.strip() else "empty"


def page_url(site: str, page_id: int | None) -> str:
    """Return the address of a page; "" if the site or the id is unknown."""
    return f"{site}/?curid={page_id}" if site and page_id is not None else ""


def revision_url(site: str, revision_id: int | None) -> str:
    """Return the address of a revision; "" if the site or the id is unknown."""
    return f"{site}/?oldid={revision_id}" if site and revision_id is not None else ""


def clean_page(
    page: Page,
    markup: WikiSettings,
    *,
    source: str,
    holes: UnknownTemplates | None = None,
    dropped: DroppedText | None = None,
) -> tuple[str, RawText] | None:
    """Return the id and the text of a page; None if its markup has no text."""
    paragraphs = clean_wikitext(
        page.text,
        markup,
        holes,
        title=page.title,
        timestamp=page.timestamp or "",
        dropped=dropped,
    )
    if not paragraphs:
        return None
    revision = [] if page.revision_id is None else [str(page.revision_id)]
    identity = page.title if page.page_id is None else str(page.page_id)
    text = RawText(
        paragraphs,
        title=page.title,
        byte_start=page.byte_start,
        byte_end=page.byte_end,
        page_id=page.page_id,
        revision_id=page.revision_id,
        timestamp=page.timestamp,
    )
    return ":".join([source, identity, *revision]), text


def count_holes(holes: UnknownTemplates, count: Count) -> None:
    """Count the templates within sentences of a page that wrote nothing."""
    if holes.total:
        count("templates-unknown", holes.total)
    if holes.templates_dropped:
        count("templates-dropped", holes.templates_dropped)
    holes.total = holes.templates_dropped = 0


def count_dropped(dropped: DroppedText, count: Count) -> None:
    """Count the text that was dropped within a page."""
    for name, number in dropped.counters():
        count(name, number)
    dropped.clear()


def count_names(holes: UnknownTemplates, count: Count) -> None:
    """Count the templates of a split that wrote nothing, by name."""
    for prefix in (UNKNOWN_TEMPLATE, DROPPED_TEMPLATE):
        for name, number in holes.most_common(prefix):
            count(f"{prefix}{name}", number)
