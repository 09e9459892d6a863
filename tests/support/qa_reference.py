"""Windows, labels and answers of spans, spelt out one token at a time, to test the fast ones by.

Written from the description of run_squad.py (design notes, B.5); it shares no code with the model
package but the word pieces of the `tokenizers` library.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from model.tasks.squad import SQUAD_TASKS
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, bert_tokenizer
from pipelines.wordpiece.vocab_files import SPECIAL_TOKENS
from schemas.arrow import SPAN_EXAMPLES
from schemas.finetune_configs import FeaturesConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TINY_VOCAB = (
    *SPECIAL_TOKENS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *"().,-?é",
    *("18", "1895", "##95", "##43", "mill", "##er", "the"),
)
SQUAD_1, SQUAD_2 = SQUAD_TASKS["squad-1.1"], SQUAD_TASKS["squad-2.0"]


def table(*rows: dict[str, Any]) -> pa.Table:
    """Examples; `answers` as texts, with their first places."""
    full = []
    for number, row in enumerate(rows):
        answers = row.get("answers", [])
        full.append(
            {
                "id": f"q{number}",
                "title": "",
                "question": "who?",
                "answer_starts": [row["context"].find(answer) for answer in answers],
                "is_impossible": not answers,
                **row,
                "answers": answers,
            }
        )
    return pa.Table.from_pylist(full, schema=SPAN_EXAMPLES)


@dataclass
class Window:
    """One window of a question."""

    row: int
    start: int
    length: int
    ids: list[int] = field(default_factory=list)
    b_start: int = 0
    is_max: list[bool] = field(default_factory=list)
    label: tuple[int, int] = (0, 0)


class Oracle:
    """All windows of all rows, slowly."""

    def __init__(
        self, examples: pa.Table, tokenizer: WordPieceTokenizer, config: FeaturesConfig
    ) -> None:
        self.config = config
        self.rows = examples.to_pylist()
        self.tokenizer = tokenizer
        self.library: Tokenizer = bert_tokenizer(tokenizer.vocab, lowercase=tokenizer.lowercase)
        self.pieces: list[list[int]] = []
        self.word_of: list[list[int]] = []
        self.words: list[list[tuple[int, int]]] = []
        self.windows: list[Window] = []
        for number, row in enumerate(self.rows):
            self._read(row["context"])
            self._cut(number, row["question"])
            if row["answers"]:
                self._label(number)

    def _read(self, context: str) -> None:
        words: list[tuple[int, int]] = []
        start = None
        for at, character in enumerate(context + " "):
            if character in " \t\r\n\u202f":
                if start is not None:
                    words.append((start, at))
                start = None
            elif start is None:
                start = at
        pieces: list[int] = []
        word_of: list[int] = []
        for number, (start, end) in enumerate(words):
            for piece in self.library.encode(context[start:end]).ids:
                pieces.append(piece)
                word_of.append(number)
        self.words.append(words)
        self.pieces.append(pieces)
        self.word_of.append(word_of)

    def _cut(self, number: int, question: str) -> None:
        query = self.library.encode(question).ids[: self.config.max_query_length]
        room = self.config.max_seq_length - len(query) - 3
        pieces = self.pieces[number]
        own: list[Window] = []
        start = 0
        while start < len(pieces):
            length = min(len(pieces) - start, room)
            own.append(Window(number, start, length))
            if start + length == len(pieces):
                break
            start += min(length, self.config.doc_stride)
        for window in own:
            part = pieces[window.start : window.start + window.length]
            cls, sep = self.tokenizer.cls_id, self.tokenizer.sep_id
            window.ids = [cls, *query, sep, *part, sep]
            window.b_start = len(query) + 2
            for piece in range(window.start, window.start + window.length):
                window.is_max.append(self._most_context(own, piece) is window)
        self.windows += own

    @staticmethod
    def _most_context(own: list[Window], piece: int) -> Window | None:
        best, best_score = None, -math.inf
        for window in own:
            left = piece - window.start
            right = window.start + window.length - 1 - piece
            if left < 0 or right < 0:
                continue
            score = min(left, right) + 0.01 * window.length
            if score > best_score:
                best, best_score = window, score
        return best

    def _label(self, number: int) -> None:
        result = self.answer_pieces(number)
        if result is None:
            return
        first, last = result
        for window in self.windows:
            end = window.start + window.length - 1
            if window.row == number and first >= window.start and last <= end:
                shift = window.b_start - window.start
                window.label = (first + shift, last + shift)

    def answer_pieces(self, number: int) -> tuple[int, int] | None:
        """Return the first and last token of the first answer that occurs in the context."""
        row = self.rows[number]
        for answer, start in zip(row["answers"], row["answer_starts"], strict=True):
            if start < 0:
                continue
            inside = range(start, start + len(answer))
            touched = [
                word
                for word, (begin, end) in enumerate(self.words[number])
                if begin < inside.stop and end > inside.start
            ]
            own = [at for at, word in enumerate(self.word_of[number]) if word in touched]
            if not own:
                return None
            wanted = self.library.encode(answer).ids
            for first in own:
                for last in reversed(own[own.index(first) :]):
                    if self.pieces[number][first : last + 1] == wanted:
                        return first, last
            return own[0], own[-1]
        return None

    def text(self, number: int, first: int, last: int) -> str:
        """The characters of a span of pieces, with marks that combine with the last."""
        context = self.rows[number]["context"]
        offsets = [
            (begin + start, begin + end)
            for begin, stop in self.words[number]
            for start, end in self.library.encode(context[begin:stop]).offsets
        ]
        _, word_end = self.words[number][self.word_of[number][last]]
        end = offsets[last][1]
        while end < word_end and unicodedata.category(context[end])[0] == "M":
            end += 1
        return context[offsets[first][0] : end].strip()

    def answers(
        self, number: int, outputs: np.ndarray, *, has_unanswerable: bool
    ) -> tuple[list[tuple[str, float]], float | None]:
        """The n best texts with their sums, and the null odds (None if there is no span)."""
        config = self.config
        result: list[tuple[float, int, int]] = []
        null = math.inf
        begin = 0
        for window in self.windows:
            logits = outputs[begin : begin + len(window.ids)].astype(float).tolist()
            begin += len(window.ids)
            if window.row != number:
                continue
            null = min(null, logits[0][0] + logits[0][1])
            places = range(len(logits))
            starts = sorted(places, key=lambda at: logits[at][0], reverse=True)[
                : config.n_best_size
            ]
            ends = sorted(places, key=lambda at: logits[at][1], reverse=True)[: config.n_best_size]
            for start in starts:
                for end in ends:
                    first, last = start - window.b_start, end - window.b_start
                    if not (0 <= first < window.length and 0 <= last < window.length):
                        continue
                    if not window.is_max[first]:
                        continue
                    if last < first or last - first + 1 > config.max_answer_length:
                        continue
                    total = logits[start][0] + logits[end][1]
                    result.append((total, first + window.start, last + window.start))
        ranked: list[tuple[float, int, int] | None] = sorted(result, key=lambda item: -item[0])
        if has_unanswerable:
            at = sum(item[0] >= null for item in result)
            ranked.insert(at, None)
        best: list[tuple[str, float]] = []
        for item in ranked:
            if len(best) == config.n_best_size:
                break
            text = "" if item is None else self.text(number, item[1], item[2])
            if text in [known for known, _ in best]:
                continue
            best.append((text, null if item is None else item[0]))
        if (has_unanswerable and "" not in [text for text, _ in best]) or not best:
            best.append(("", null))
        spans = [item for item in ranked if item is not None]
        return best, null - spans[0][0] if spans else None
