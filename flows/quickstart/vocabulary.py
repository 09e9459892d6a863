"""How many pieces a vocabulary should have, and how many the texts can surely give.

The learner makes exactly as many as are asked for or fails, so what is proposed must be reached.
"""

from __future__ import annotations

import math

import pyarrow.compute as pc

from flows.quickstart.languages import Guess
from pipelines.wordpiece.vocab_files import FIXED_PIECES
from pipelines.wordpiece.vocabulary import MAX_LEARNT_CHARACTERS, count_words

_SIZES = ((100_000, 600), (300_000, 1_200), (1_000_000, 2_500), (8_000_000, 4_000),
          (60_000_000, 8_000), (400_000_000, 16_000), (math.inf, 30_522))  # fmt: skip
"""Pieces by bytes of text."""

_MARGIN = 0.5
"""Of the words seen twice, so many are counted on: texts differ from their beginnings."""


def vocabulary_size(sample: str, *, text_bytes: int, guess: Guess) -> tuple[int, int]:
    """Pieces, and characters with a piece of their own.

    Args:
        sample: beginnings of the texts.
        text_bytes: of all texts.
        guess: their language.
    """
    size = next(size for limit, size in _SIZES if text_bytes < limit)
    if guess.has_large_alphabet:
        # Each character is a piece, and one more with ## where characters are not words.
        size = max(size, min(16_000, 2_000 + 2 * guess.characters))
    letters, inner, words = _pieces(sample, lowercase=guess.lowercase)
    _, _, earlier = _pieces(sample[: len(sample) // 2], lowercase=guess.lowercase)
    # All pairs of pieces in a word that is there twice are merged in the end. In longer texts there
    # are more of such words, by as much as the sample's second half has brought.
    growth = min(1.0, math.log2(words / earlier)) if earlier else 0.0
    times = max(1.0, text_bytes / max(1, len(sample.encode())))
    reached = int(_MARGIN * words * times**growth)
    fixed = len(FIXED_PIECES) + inner
    if letters:  # else nothing could be looked at
        size = min(size, fixed + letters + reached)
    if guess.has_large_alphabet:  # a quarter is left to words
        return size, max(100, min(8_000, size - fixed - min(reached, size // 4)))
    return size, max(100, min(1_000, size // 6))


def _pieces(text: str, *, lowercase: bool) -> tuple[int, int, int]:
    """Letters, those that stand inside words, and words of several letters.

    Of words that are there twice: no other is learnt from, letters are not either.
    """
    counts = count_words(text.split("\n"), lowercase=lowercase)
    fits = pc.less_equal(pc.utf8_length(counts["word"]), MAX_LEARNT_CHARACTERS)
    twice = counts.filter(pc.and_(fits, pc.greater_equal(counts["count"], 2)))
    words: list[str] = twice["word"].to_pylist()
    letters = {letter for word in words for letter in word}
    inner = {letter for word in words for letter in word[1:]}
    return len(letters), len(inner), sum(len(word) > 1 for word in words)
