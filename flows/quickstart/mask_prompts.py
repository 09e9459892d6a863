"""Prompts for a new model: held-out texts in which one word is masked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

from flows.store.artifact import Artifact
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, SPECIAL_TOKENS, TOKENIZER_FILE

_MAX_ROWS = 200
_MIN_PIECES, _MAX_PIECES = 8, 40
_UNSPACED = r"[\u3001\u3002\u300c-\u300f\u4e00-\u9fff]"
_EXTRA_SPACE = re.compile(f"(?<={_UNSPACED}) | (?={_UNSPACED})")
"""Spaces next to characters that are written without spaces."""


class MaskPrompt(NamedTuple):
    """A text with one masked word."""

    text: str
    word: str
    """Masked word."""


def held_out_prompts(checkpoint: Artifact, *, limit: int) -> list[MaskPrompt]:
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
    prompts = [prompt for ids in rows if (prompt := _mask_word(ids, tokenizer)) is not None]
    by_word = {prompt.word: prompt for prompt in reversed(prompts)}
    return sorted(by_word.values(), key=lambda prompt: -frequency[prompt.word])[:limit]


def _held_out_rows(instances: Artifact) -> list[list[int]]:
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


def _mask_word(ids: Sequence[int], tokenizer: Tokenizer) -> MaskPrompt | None:
    """Return a prompt with a whole word in the middle masked. None: the text has none."""
    skipped = {tokenizer.token_to_id(piece) for piece in ("[CLS]", "[SEP]", "[PAD]")}
    tokens = [token for token in ids if token not in skipped]
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
