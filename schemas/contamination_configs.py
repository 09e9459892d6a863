"""Configurations of the search for evaluation texts in a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from schemas.base_configs import Config, SourceName, content_in_key


class ContaminationRules(Config):
    """Definition of a text that is in the corpus and of a document to exclude."""

    splits: tuple[str, ...] = ()
    """Splits whose texts to search for. []: all except `train` and `augmentation`."""

    ngram_size: int = Field(default=13, ge=4, le=100)
    """Number of consecutive words that a text and a document share. In scripts without spaces
    between words, a character counts as half a word."""

    min_text_words: int = Field(default=8, ge=1)
    """Minimum number of words of a text. Texts with fewer than `ngram_size` words are searched for
    as a whole; texts with fewer than this are counted as too short."""

    max_document_frequency: int = Field(default=10, ge=1)
    """Maximum number of documents with an n-gram. More frequent ones are common phrases."""

    min_overlap: float = Field(default=0.2, gt=0.0, le=1.0)
    """Fraction of a text's n-grams that a document to exclude contains."""

    def _problems(self) -> Iterator[str]:
        if self.min_text_words > self.ngram_size:
            values = f"{self.ngram_size}, got {self.min_text_words}"
            yield f"min_text_words: expected at most ngram_size, {values}"


class ContaminationConfig(ContaminationRules):
    """`find-contamination`: search the documents for evaluation texts."""

    remove_duplicates: bool = True
    """Skip duplicate documents, as `build-tokens` does."""


class DecontaminateConfig(ContaminationRules):
    """Removal of documents that contain evaluation texts."""

    tasks: Annotated[tuple[SourceName, ...], Field(min_length=1)] = content_in_key(...)
    """Entries of build_examples whose texts to search for."""
