"""A document, and the step from a raw text to it: sentences, limits and the digest of a text.

`build-documents` and the public transforms call the same functions.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.counters import Count
from pipelines.documents.sentences import normalize_text, split_sentences
from pipelines.io.splits import RawText
from pipelines.white_space import count_spaced_words
from schemas.corpus_configs import DocumentsConfig

_WORD = re.compile(r"\w+")


class Document(NamedTuple):
    """A text as sentences, with the columns of the table `schemas.arrow.DOCUMENTS`.

    >>> Document(["Call me Ishmael."], digest=text_digest(["Call me Ishmael."])).sentences
    ['Call me Ishmael.']
    """

    sentences: Sequence[str]
    digest: bytes
    """16 bytes, equal for equal text, see `text_digest`."""

    source: str = ""
    """See `RawText`, as for the fields below."""

    title: str = ""
    file: str = ""
    byte_start: int = 0
    byte_end: int = 0
    page_id: int | None = None
    revision_id: int | None = None
    timestamp: str | None = None


class DocumentLimits(NamedTuple):
    """Minimum size of a document and maximum size of a sentence."""

    min_words: int
    min_sentences: int
    max_sentence_characters: int


def split_text(
    text: RawText,
    *,
    limits: DocumentLimits | DocumentsConfig,
    count: Count,
) -> Document | None:
    """Split a text into sentences, or return None if it is too short.

    Args:
        text: Text to split. Its language decides how.
        limits: Minimum size of a document and maximum size of a sentence.
        count: Called with `documents-in`, `documents-kept` or `documents-dropped-REASON`, and for
            a kept document with `sentences`, `words` and `characters`.
    """
    sentences = split_sentences(
        list(text.paragraphs), text.language, max_characters=limits.max_sentence_characters
    )
    count("documents-in")
    if len(sentences) < limits.min_sentences:
        count("documents-dropped-too-few-sentences")
        return None
    if not _has_words(sentences, limits.min_words):
        count("documents-dropped-too-few-words")
        return None
    for name, number in kept_counts(sentences).items():
        count(name, number)
    return Document(sentences, text_digest(sentences), *text[2:])


def kept_counts(sentences: Sequence[str]) -> dict[str, int]:
    """Return what one kept document adds to the counters.

    >>> kept_counts(["Call me Ishmael."])
    {'documents-kept': 1, 'sentences': 1, 'words': 3, 'characters': 16}
    """
    return {
        "documents-kept": 1,
        "sentences": len(sentences),
        "words": count_spaced_words(" ".join(sentences)),
        "characters": sum(map(len, sentences)),
    }


def _has_words(sentences: list[str], min_words: int) -> bool:
    words = itertools.chain.from_iterable(map(_WORD.finditer, sentences))
    return sum(1 for _ in itertools.islice(words, min_words)) >= min_words


def text_digest(sentences: list[str]) -> bytes:
    """Return 16 bytes that are equal for texts that differ only in case and white space.

    >>> text_digest(["Call me Ishmael."]) == text_digest(["call me", "ISHMAEL."])
    True
    """
    return hashlib.blake2b(normalize_text(sentences).encode(), digest_size=16).digest()


def record_batch(rows: Sequence[tuple[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return pairs of a document id and a record as rows of a table.

    Args:
        rows: Pairs.
        schema: Schema of the table. Its columns are `document_id` and fields of the records.
    """
    ids, records = zip(*rows, strict=True)
    columns = {
        name: ids if name == "document_id" else [getattr(record, name) for record in records]
        for name in schema.names
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)
