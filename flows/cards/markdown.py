"""Markdown: front matter and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml


def front_matter(fields: Mapping[str, Any]) -> str:
    """The fields that say something, as YAML between dashes, in their order."""
    said = {name: value for name, value in fields.items() if value not in (None, "", [], {}, ())}
    text = yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{text}---\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table with a line for each row; the columns numbered in `right` are aligned right."""
    rules = ["---:" if number in right else "---" for number in range(len(head))]
    lines = [head, rules, *([cell_text(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell_text(text: str) -> str:
    """A text that stays in its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str, *, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"
