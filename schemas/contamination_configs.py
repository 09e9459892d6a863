"""Configurations of the search for evaluation texts in a corpus."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from schemas.configs import Config, SourceName


class ContaminationRules(Config):
    """What counts as a text that is in the corpus, and which documents are too much like one."""

    splits: tuple[str, ...] = ()
    """Splits whose texts are looked for; none named: all but those that models learn from (`train`,
    `augmentation`)."""

    ngram_size: int = Field(default=13, ge=4, le=100)
    """Words of a run (an n-gram) that text and document share. A character of a script that is
    written without spaces counts half a word."""

    min_text_words: int = Field(default=8, ge=1)
    """A text that has fewer than `words`, but so many, is looked for as a whole; one with fewer
    still is counted as too short."""

    max_document_frequency: int = Field(default=10, ge=1)
    """A run that more documents have is a common phrase, and tells nothing of where it is from."""

    min_overlap: float = Field(default=0.2, gt=0.0, le=1.0)
    """A document is to be left out that has this share of the runs of any text."""

    @model_validator(mode="after")
    def _shorter_is_fewer(self) -> ContaminationRules:
        if self.min_text_words > self.ngram_size:
            raise ValueError(
                f"min_text_words: expected at most ngram_size, {self.ngram_size}, got "
                f"{self.min_text_words}"
            )
        return self


class ContaminationConfig(ContaminationRules):
    """`find-contamination`: evaluation texts are looked for in documents."""

    remove_duplicates: bool = True
    """Whether documents that say the same as another are passed over, as `build-tokens` does."""


class DecontaminateConfig(ContaminationRules):
    """Evaluation texts are looked for, and the documents that have them are left out."""

    tasks: Annotated[tuple[SourceName, ...], Field(min_length=1)]
    """Entries of build_examples whose texts are looked for; their content is what counts."""
