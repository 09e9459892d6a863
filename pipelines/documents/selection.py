"""A document's text as sentences: which documents are wanted, and the digest of a text."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import Protocol

from pipelines.counters import Count, Example
from pipelines.documents.sentences import normalize_text, split_sentences

_WORD = re.compile(r"\w+")


class TextLimits(Protocol):
    """The part of a `DocumentsConfig` that says which documents are too short."""

    @property
    def min_words(self) -> int: ...

    @property
    def min_sentences(self) -> int: ...

    @property
    def max_sentence_characters(self) -> int: ...


def wanted_sentences(
    paragraphs: list[str],
    language: str,
    *,
    limits: TextLimits,
    count: Count,
    example: Example | str = "",
) -> list[str]:
    """Return the sentences of a document; none where it is dropped as too short.

    Args:
        paragraphs: cleaned text, without line breaks.
        language: ISO 639 code; decides how sentences are split.
        limits: the fewest words and sentences; where a long sentence is cut.
        count: gets `documents-in`, `documents-kept` or `documents-dropped-REASON`, and of what is
            kept `sentences`, `words` and `characters`.
        example: The document, for readers of the counters.
    """
    sentences = split_sentences(paragraphs, language, max_characters=limits.max_sentence_characters)
    count("documents-in")
    if len(sentences) < limits.min_sentences:
        count("documents-dropped-too-few-sentences", example=example)
        return []
    if not _has_words(sentences, limits.min_words):
        count("documents-dropped-too-few-words", example=example)
        return []
    count("documents-kept")
    count("sentences", len(sentences))
    count("words", sum(len(sentence.split()) for sentence in sentences))
    count("characters", sum(map(len, sentences)))
    return sentences


def _has_words(sentences: list[str], least: int) -> bool:
    words = itertools.chain.from_iterable(map(_WORD.finditer, sentences))
    return sum(1 for _ in itertools.islice(words, least)) >= least


def text_digest(sentences: list[str]) -> bytes:
    """16 bytes that are equal for documents of equal text, but for case and white space.

    >>> text_digest(["Call me Ishmael."]) == text_digest(["call me", "ISHMAEL."])
    True
    """
    return hashlib.blake2b(normalize_text(sentences).encode(), digest_size=16).digest()
