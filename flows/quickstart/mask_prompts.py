"""Prompts for a new model: held-out texts in which one word is masked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

from flows.store.artifact import StoredArtifact
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, SPECIAL_TOKENS, TOKENIZER_FILE

_MAX_ROWS = 200
_MIN_PIECES, _MAX_PIECES = 8, 40
_UNSPACED = r"[\u3001\u3002\u300c-\u300f\u4e00-\u9fff]"
_EXTRA_SPACE = re.compile(f"(?<={_UNSPACED}) | (?={_UNSPACED})")
"""Spaces next to characters that are written without spaces."""

_SEPARATORS = ("[CLS]", "[SEP]", "[PAD]")
_SENTENCE_ENDS = frozenset(".!?\u3002\uff01\uff1f\u0964\u061f\u06d4")


class MaskPrompt(NamedTuple):
    """A text with one masked word."""

    text: str
    word: str
    """Masked word."""


def held_out_prompts(checkpoint: StoredArtifact, *, limit: int) -> list[MaskPrompt]:
    """Return prompts from held-out texts, those with the most frequent masked words first.

    Args:
        checkpoint: Artifact of a pretraining.
        limit: Maximum number of prompts.
    """
    instances = checkpoint.input("instances")
    rows = _held_out_rows(instances) if instances is not None else []
    if not rows:
        return []
    with checkpoint.open(TOKENIZER_FILE) as source:
        tokenizer = Tokenizer.from_str(source.read().decode())
    frequency = Counter(tokenizer.id_to_token(token) for ids in rows for token in ids)
    prompts = [prompt for ids in rows if (prompt := find_prompt(ids, tokenizer)) is not None]
    by_word = {prompt.word: prompt for prompt in reversed(prompts)}
    return sorted(by_word.values(), key=lambda prompt: -frequency[prompt.word])[:limit]


def _held_out_rows(instances: StoredArtifact) -> list[list[int]]:
    """Return the token ids of the first held-out instances, without masks."""
    shards = [p for p in instances.files if p.startswith("__held-out__/") and p.endswith(".arrow")]
    if not shards:
        return []
    columns = ["input_ids", "masked_lm_positions", "masked_lm_ids"]
    rows = instances.table(shards).head(_MAX_ROWS, columns=columns).to_pylist()
    for row in rows:
        for position, token in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
            row["input_ids"][position] = token
    return [row["input_ids"] for row in rows]


def find_prompt(ids: Sequence[int], tokenizer: Tokenizer) -> MaskPrompt | None:
    """Return a prompt from whole sentences of an instance. Default: from all of its text."""
    separators = {tokenizer.token_to_id(piece) for piece in _SEPARATORS}
    texts = [*_sentences(ids, tokenizer), [token for token in ids if token not in separators]]
    return next(filter(None, (_mask_word(tokens, tokenizer) for tokens in texts)), None)


def _sentences(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield sentences that begin within a segment, short ones with the next one."""
    tokens: list[int] = []
    has_start = False
    for token in ids:
        piece = tokenizer.id_to_token(token)
        tokens.append(token)
        if piece in _SEPARATORS:
            tokens, has_start = [], False
        elif piece in _SENTENCE_ENDS and not has_start:
            tokens, has_start = [], True
        elif piece in _SENTENCE_ENDS and len(tokens) >= _MIN_PIECES:
            yield tokens
            tokens = []


def _mask_word(tokens: Sequence[int], tokenizer: Tokenizer) -> MaskPrompt | None:
    """Return a prompt with a whole word in the middle masked. None: the text has none."""
    pieces = [str(tokenizer.id_to_token(token)) for token in tokens]
    if not _MIN_PIECES <= len(pieces) <= _MAX_PIECES or set(pieces) & set(SPECIAL_TOKENS):
        return None
    positions = [
        position
        for position in range(2, len(pieces) - 2)
        if pieces[position].isalpha() and not pieces[position + 1].startswith(CONTINUATION)
        if len(pieces[position]) > 2 or ord(pieces[position][0]) > 0x2E80
    ]
    if not positions:
        return None
    position = positions[len(positions) // 2]
    before, after = tokenizer.decode(tokens[:position]), tokenizer.decode(tokens[position + 1 :])
    text = _EXTRA_SPACE.sub("", f"{before} {MASK} {after}".strip())
    return MaskPrompt(text, pieces[position])
