"""Rows of text files in any format, and their required fields."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelines.io.splits import SourceFile
from schemas.corpus_configs import TextSource
from schemas.errors import InputError


class TextRow(NamedTuple):
    """Parts of a document, not yet validated."""

    text: Any
    identifier: Any
    title: Any
    position: int
    byte_start: int
    byte_end: int
    where: str = ""
    """`position` in words, where it is not a byte of the text."""

    part: int = 1
    """Number of the part, where it was too long and was cut."""

    number: int = 0
    """Number of the row in its file, or in a split that starts with a document."""

    def describe_place(self, file: SourceFile) -> str:
        """Return where the row is, for notes."""
        return f"{file.name}, {self.where or f'byte {self.position:,} of its text'}"


def require_fields(fields: list[str], file: SourceFile, config: TextSource, *, what: str) -> None:
    """Check that a file has the fields that the configuration names.

    Raises:
        InputError: A field is missing.
    """
    for option in ("text_column", "id_column", "title_column"):
        wanted = getattr(config, option)
        if wanted is not None and wanted not in fields:
            raise InputError(
                f"{file.uri}: expected the {what} {wanted!r} ({option}), found "
                f"{', '.join(map(repr, fields)) or 'none'}. Set {option} of the source "
                f"{config.name!r} to one of them"
            )
