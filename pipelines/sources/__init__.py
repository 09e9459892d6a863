"""Where documents come from: one module a kind of source.

To add one: a config with its `kind` in `schemas.corpus_configs`, a module here with `plan` and
`read` (see `pipelines.io.splits`), and a line in `SOURCES`.
"""

from __future__ import annotations

from pipelines.io.splits import RawDocument, Source, SourceFile, Split
from pipelines.sources import bookcorpus, books, text, wikipedia

SOURCES: dict[str, Source] = {
    "wikipedia": wikipedia,
    "books": books,
    "bookcorpus": bookcorpus,
    "text": text,
}

__all__ = ["SOURCES", "RawDocument", "Source", "SourceFile", "Split"]
