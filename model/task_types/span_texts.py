"""Spans of word pieces as the text of the context, with its own case, accents and white space.

Google's `get_final_text` looks for the joined pieces in the words of the span. Here the library
`tokenizers` says of each piece which characters of its word it is, and the text is cut out of the
context. So nothing has to be found again, and nothing can be found in the wrong place.
"""

from __future__ import annotations

import unicodedata

from model.task_types.span_windows import Plan
from pipelines.wordpiece.ids import WordPieceTokenizer, bert_tokenizer


class SpanTexts:
    """Cuts spans out of the contexts of a plan.

    Args:
        plan: the windows whose pieces are meant.
        tokenizer: the one the plan was made with.
    """

    def __init__(self, plan: Plan, tokenizer: WordPieceTokenizer) -> None:
        self._contexts = plan.contexts
        self._context_pieces = plan.contexts.context_pieces
        self._tokenizer = bert_tokenizer(tokenizer.vocab, lowercase=tokenizer.lowercase)
        self._offsets: dict[str, list[tuple[int, int]]] = {}

    def text(self, row: int, first: int, last: int) -> str:
        """The text of pieces `first` .. `last` (both included) of the context of an example.

        A piece begins and ends where its characters do, so an answer may begin inside a word. Marks
        that combine with its last character, and were dropped as accents, are part of it.
        """
        context = int(self._contexts.of_row[row])
        text = self._contexts.texts[context]
        origin = int(self._context_pieces[context])
        start, _, _ = self._characters(text, origin + first)
        _, end, word_end = self._characters(text, origin + last)
        while end < word_end and unicodedata.category(text[end]).startswith("M"):
            end += 1
        return text[start:end].strip()

    def _characters(self, text: str, piece: int) -> tuple[int, int, int]:
        """Where a piece of the plan begins and ends in its context, and where its word ends."""
        contexts = self._contexts
        word = int(contexts.piece_offsets.searchsorted(piece, side="right")) - 1
        word_start, word_end = int(contexts.word_starts[word]), int(contexts.word_ends[word])
        offsets = self._offsets_in(text[word_start:word_end])
        begin, end = offsets[piece - int(contexts.piece_offsets[word])]
        return word_start + begin, word_start + end, word_end

    def _offsets_in(self, word: str) -> list[tuple[int, int]]:
        known = self._offsets.get(word)
        if known is None:
            known = self._offsets[word] = self._tokenizer.encode(word).offsets
        return known
