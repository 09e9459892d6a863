"""Choice of a vocabulary size that the texts can reach: the learner fails if it cannot."""

from __future__ import annotations

import math

import pyarrow.compute as pc

from flows.quickstart.language_detection import Guess
from pipelines.wordpiece.vocab_files import FIXED_TOKENS
from pipelines.wordpiece.vocab_training import MAX_TRAINING_CHARACTERS, count_words

_SIZES = ((100_000, 600), (300_000, 1_200), (1_000_000, 2_500), (8_000_000, 4_000),
          (60_000_000, 8_000), (400_000_000, 16_000), (math.inf, 30_522))  # fmt: skip
"""Vocabulary size by upper limit of the bytes of text."""

_MARGIN = 0.5
"""Fraction of the repeated words that is expected in the rest of the texts."""


def choose_vocab_size(sample: str, *, text_bytes: int, guess: Guess) -> tuple[int, int]:
    """Return `vocab_size` and `limit_alphabet`.

    Args:
        sample: First bytes of the texts.
        text_bytes: Bytes of all texts.
        guess: Language of the texts.
    """
    size = next(size for limit, size in _SIZES if text_bytes < limit)
    if guess.has_large_alphabet:
        # Each character needs a piece, and one with ## if it occurs inside words.
        size = max(size, min(16_000, 2_000 + 2 * guess.characters))
    letters, inner, words = _count_pieces(sample, lowercase=guess.lowercase)
    _, _, half_words = _count_pieces(sample[: len(sample) // 2], lowercase=guess.lowercase)
    # All pairs in a repeated word are merged in the end. The second half of the sample shows how
    # fast the number of such words grows with the text.
    growth = min(1.0, math.log2(words / half_words)) if half_words else 0.0
    ratio = max(1.0, text_bytes / max(1, len(sample.encode())))
    reachable = int(_MARGIN * words * ratio**growth)
    fixed = len(FIXED_TOKENS) + inner
    if letters:
        size = min(size, fixed + letters + reachable)
    if guess.has_large_alphabet:  # a quarter remains for words
        return size, max(100, min(8_000, size - fixed - min(reachable, size // 4)))
    return size, max(100, min(1_000, size // 6))


def _count_pieces(text: str, *, lowercase: bool) -> tuple[int, int, int]:
    """Count letters, letters inside words, and words of several letters, all in repeated words."""
    counts = count_words(text.split("\n"), lowercase=lowercase)
    fits = pc.less_equal(pc.utf8_length(counts["word"]), MAX_TRAINING_CHARACTERS)
    repeated = counts.filter(pc.and_(fits, pc.greater_equal(counts["count"], 2)))
    words: list[str] = repeated["word"].to_pylist()
    letters = {letter for word in words for letter in word}
    inner = {letter for word in words for letter in word[1:]}
    return len(letters), len(inner), sum(len(word) > 1 for word in words)
