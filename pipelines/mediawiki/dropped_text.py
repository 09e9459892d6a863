"""Count the text that is dropped within the pages of a split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pipelines.counters import TEXT_UNITS


class DroppedText:
    """Counts of dropped text by reason.

    Attributes:
        characters: Characters by reason. A table, list, heading, caption, reference, template or
            closing section is counted as wikitext, with its markup.
        sentences: Sentences by reason, of paragraphs that are kept.
    """

    def __init__(self) -> None:
        self.characters = Counter[str]()
        self.sentences = Counter[str]()

    def add_sentence(self, reason: str, sentence: str) -> None:
        """Count a sentence and its characters."""
        self.sentences[reason] += 1
        self.characters[reason] += len(sentence)

    def counters(self) -> Iterator[tuple[str, int]]:
        """Yield counters `sentences-dropped-REASON` and `characters-dropped-REASON`."""
        for unit, numbers in zip(TEXT_UNITS, (self.sentences, self.characters), strict=True):
            for reason, number in numbers.items():
                if number:
                    yield f"{unit}-dropped-{reason}", number

    def clear(self) -> None:
        """Set all counts to 0."""
        self.characters.clear()
        self.sentences.clear()
