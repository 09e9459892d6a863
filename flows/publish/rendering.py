"""A comparison of two corpora, and a publication, as lines, as JSON and as Markdown."""

from __future__ import annotations

from typing import Any

from flows.formats import columns
from flows.publish.comparison import TOKENS, Comparison, Row
from flows.publish.publishing import Publication

HEAD = ("step", "figure", "published", "new", "change", "allowed", "")
"""Of the columns of `comparison_rows`; the three after the second are numbers."""


def comparison_rows(comparison: Comparison, *, beyond: str = "BEYOND") -> list[tuple[str, ...]]:
    """A row of texts for each figure; the last is `beyond` for one that is beyond its limit."""
    return [
        (row.step, row.figure, *row.texts(), "" if row.is_within else beyond)
        for row in comparison.rows
    ]


def comparison_lines(comparison: Comparison) -> list[str]:
    """The comparison as aligned lines of plain text."""
    published, new = comparison.files
    lines = [f"published from: {published}", f"new one from:   {new}", ""]
    lines += columns([HEAD, *comparison_rows(comparison)], right=(2, 3, 4))
    if comparison.differences:
        lines += ["", "configured otherwise:", *(f"  {text}" for text in comparison.differences)]
    return lines


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON values; a change from nothing to something is null."""
    return {
        "published_files": comparison.files[0],
        "new_files": comparison.files[1],
        "rows": [_row_json(row) for row in comparison.rows],
        "differences": list(comparison.differences),
        "problems": list(comparison.problems),
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "step": row.step,
        "figure": row.figure,
        "kind": row.kind,
        "published": row.old,
        "new": row.new,
        "change": None if row.change == float("inf") else row.change,
        "limit": list(row.limit) if row.limit else None,
        "within": row.is_within,
    }


def comparison_markdown(comparison: Comparison, *, title: str, verdict: str) -> str:
    """The comparison as Markdown.

    Args:
        comparison: what to show.
        title: of the page.
        verdict: what became of the new corpus, a sentence.
    """
    published, new = (_escaped(text) for text in comparison.files)
    lines = [f"# {_escaped(title)}", "", _escaped(verdict), ""]
    lines += [f"- published from: {published}", f"- new one from: {new}", ""]
    for head, texts in (
        ("Beyond the limits", comparison.problems),
        ("Configured otherwise", comparison.differences),
    ):
        if texts:
            lines += [f"## {head}", "", *(f"- {_escaped(text)}" for text in texts), ""]
    lines += ["## Figures", "", f"| {' | '.join(HEAD)} |", "|---|---|--:|--:|--:|---|---|"]
    for row in comparison_rows(comparison, beyond="**beyond**"):
        lines.append(f"| {' | '.join(map(_escaped, row))} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    # File names and configuration come from others; none may end a cell or become a tag.
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def verdict(publication: Publication) -> str:
    """What became of a corpus, in one sentence."""
    name, tokens = publication.name, publication.parts[TOKENS].split("/")[-2]
    before = publication.replaced
    if publication.outcome == "same":
        return f"{name} leads to this content already ({before}): nothing was moved"
    if publication.outcome == "planned":
        text = f"{name} would lead to {tokens}"
    else:
        text = f"{name} leads to {tokens} now, kept as {publication.kept_as}"
    if publication.forced:
        return f"{text}; it is beyond the limits (--force); before: {before}"
    if not before:
        return f"{text}; the first of this name, so there is nothing to compare it with"
    return f"{text}; before: {before}"


def publication_lines(publication: Publication) -> list[str]:
    """What became of a corpus, with the comparison, as lines of plain text."""
    compared = publication.comparison
    lines = ["", *comparison_lines(compared), ""] if compared is not None else []
    return [*lines, verdict(publication)]


def publication_json(publication: Publication) -> dict[str, Any]:
    """A publication as plain JSON values."""
    compared = publication.comparison
    return {
        **publication._asdict(),
        "comparison": comparison_json(compared) if compared is not None else None,
    }
