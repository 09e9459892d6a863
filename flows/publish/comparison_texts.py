"""A comparison of two corpora, and a publication, as lines, as JSON and as Markdown."""

from __future__ import annotations

from typing import Any

from flows.formats import columns
from flows.publish.comparison import Comparison, Row, change_text, limit_text, value_text
from flows.publish.publishing import Publication

_HEAD = ("step", "figure", "published", "new", "change", "allowed", "")


def comparison_lines(comparison: Comparison) -> list[str]:
    """The comparison as aligned lines of plain text."""
    rows = [_cells(row, beyond="BEYOND") for row in comparison.rows]
    published, new = comparison.files
    return [
        f"published from: {published}",
        f"new one from:   {new}",
        "",
        *columns([_HEAD, *rows], right=(2, 3, 4)),
        *_section("configured otherwise:", comparison.differences),
    ]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON values; a change from nothing to something is null."""
    return {
        "published_files": comparison.files[0],
        "new_files": comparison.files[1],
        "rows": [_row_json(row) for row in comparison.rows],
        "differences": list(comparison.differences),
        "problems": list(comparison.problems),
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
    lines += ["## Figures", "", f"| {' | '.join(_HEAD)} |", "|---|---|--:|--:|--:|---|---|"]
    for row in comparison.rows:
        cells = (_escaped(cell) for cell in _cells(row, beyond="**beyond**"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def verdict(publication: Publication) -> str:
    """What became of a corpus, in one sentence."""
    name, tokens = publication.name, publication.parts["build-tokens"].split("/")[-2]
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


def _cells(row: Row, *, beyond: str) -> tuple[str, ...]:
    return (
        row.step,
        row.figure,
        value_text(row, row.old),
        value_text(row, row.new),
        change_text(row),
        limit_text(row),
        "" if row.is_within else beyond,
    )


def _row_json(row: Row) -> dict[str, Any]:
    change = row.change
    return {
        "step": row.step,
        "figure": row.figure,
        "kind": row.kind,
        "published": row.old,
        "new": row.new,
        "change": None if change in (None, float("inf")) else change,
        "limit": list(row.limit) if row.limit else None,
        "within": row.is_within,
    }


def _section(title: str, texts: tuple[str, ...]) -> list[str]:
    return ["", title, *(f"  {text}" for text in texts)] if texts else []


def _escaped(text: str) -> str:
    # File names and configuration come from others; none may end a cell or become a tag.
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
