"""Prompts for a new model: held-out texts in which one word is masked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tokenizers import Tokenizer

from flows.run.step_execution import stage_input
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import read_file
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, SPECIAL_TOKENS, TOKENIZER_FILE
from schemas.manifest import Manifest

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


def held_out_prompts(checkpoint: Manifest, *, store: ArtifactStore, limit: int) -> list[MaskPrompt]:
    """Return prompts from held-out texts, those with the most frequent masked words first.

    Args:
        checkpoint: Manifest of a pretraining.
        store: Store with the pretraining and its instances.
        limit: Maximum number of prompts.
    """
    instances = checkpoint.input("instances")
    if instances is None:
        return []
    entry = checkpoint.file(TOKENIZER_FILE)
    url = store.url(
        f"{checkpoint.data_path}/{entry.stored_name if entry is not None else TOKENIZER_FILE}"
    )
    tokenizer = Tokenizer.from_str(read_file(url).decode())
    manifest = store.read_manifest(instances.manifest)
    rows = list(islice(_held_out_rows(manifest, store=store), _MAX_ROWS))
    frequency = Counter(tokenizer.id_to_token(token) for ids in rows for token in ids)
    prompts = [prompt for ids in rows if (prompt := _mask_word(ids, tokenizer)) is not None]
    by_word = {prompt.word: prompt for prompt in reversed(prompts)}
    return sorted(by_word.values(), key=lambda prompt: -frequency[prompt.word])[:limit]


def _held_out_rows(manifest: Manifest, *, store: ArtifactStore) -> Iterator[list[int]]:
    """Yield the token ids of held-out instances without masks."""
    instances = stage_input("instances", manifest, store=store)
    columns = ["input_ids", "masked_lm_positions", "masked_lm_ids"]
    for entry in instances.files:
        if not (entry.path.startswith("__held-out__/") and entry.path.endswith(".arrow")):
            continue
        with open_shard(input_file(instances, entry.path)) as shard:
            for number in range(shard.num_record_batches):
                for row in shard.get_batch(number).select(columns).to_pylist():
                    ids: list[int] = row["input_ids"]
                    masked = zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True)
                    for position, token in masked:
                        ids[position] = token
                    yield ids


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
