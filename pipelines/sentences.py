"""Paragraphs become sentences, with `sentencex` (Wikimedia's sentence segmenter, in Rust)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import sentencex

# sentencex looks at a paragraph as a whole; none of prose is longer than this, and what is longer
# (a novel in one line) is cut at a space first, so that time and memory stay bounded.
_LONGEST_PARAGRAPH = 100_000


def split_sentences(paragraphs: list[str], language: str, *, max_characters: int) -> list[str]:
    """The sentences of a document, in order, without white space around them and none empty.

    Args:
        paragraphs: cleaned text, without line breaks.
        language: ISO 639 code; an unknown one is split by the general rules of sentencex.
        max_characters: a longer sentence is cut at a space (or, without one, right there).
    """
    sentences: list[str] = []
    for paragraph in paragraphs:
        for piece in _cut(paragraph, _LONGEST_PARAGRAPH):
            for sentence in sentencex.segment(language, piece):
                stripped = sentence.strip()
                if len(stripped) > max_characters:
                    sentences.extend(_cut(stripped, max_characters))
                elif stripped:
                    sentences.append(stripped)
    return sentences


def _cut(text: str, longest: int) -> Iterator[str]:
    while len(text) > longest:
        space = text.rfind(" ", 1, longest + 1)
        end = space if space > 0 else longest
        yield text[:end].strip()
        text = text[end:].strip()
    if text:
        yield text


def normalised_text(sentences: list[str]) -> str:
    """What has to be equal for two documents to be duplicates: NFC, case folded, single spaces."""
    return " ".join(unicodedata.normalize("NFC", " ".join(sentences)).casefold().split())
