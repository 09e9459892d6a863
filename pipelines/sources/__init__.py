"""Sources of documents, one module per kind.

A new kind needs a config with its `kind` in `schemas.corpus_configs`, a module with `plan` and
`read` (`pipelines.io.splits`), and an entry in `SOURCES`.
"""

from __future__ import annotations

from pipelines.io.splits import RawText, Source, SourceFile, Split
from pipelines.sources import books, text, wikipedia

SOURCES: dict[str, Source] = {
    "wikipedia": wikipedia,
    "books": books,
    "text": text,
}

__all__ = ["SOURCES", "RawText", "Source", "SourceFile", "Split"]
