"""Questions to a new model out of the texts that were held out from its training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from tokenizers import Tokenizer

from flows.engine.steps import stage_input
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import read_file
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, SPECIAL_TOKENS, TOKENIZER_FILE
from schemas.manifest import Manifest

_LOOKED_AT = 200
_LEAST_PIECES, _MOST_PIECES = 8, 40


class Question(NamedTuple):
    """A text with one word masked."""

    text: str
    word: str
    """What stands there."""


def held_out_texts(trained: Manifest, *, store: ArtifactStore, wanted: int) -> list[Question]:
    """Some held-out texts with a frequent word masked in each; none where none was held out.

    The same of the same corpus each time: of the first held-out instances, those whose masked word
    has the lowest id, as the vocabulary has frequent pieces first.

    Args:
        trained: a pretraining's artifact.
        store: where it and its instances are.
        wanted: how many, at most.
    """
    given = trained.input("instances")
    if given is None:
        return []
    instances = store.read_manifest(given.manifest)
    tokenizer = Tokenizer.from_str(read_file(_file_url(trained, TOKENIZER_FILE, store)).decode())
    questions = [
        question
        for ids in _held_out_rows(instances, store=store)
        if (question := _question(ids, tokenizer)) is not None
    ]
    by_word: dict[str, Question] = {}
    for _, found in sorted(questions, key=lambda pair: pair[0]):
        by_word.setdefault(found.word, found)
    return list(by_word.values())[:wanted]


def _held_out_rows(instances: Manifest, *, store: ArtifactStore) -> Iterator[list[int]]:
    """Token ids of the first held-out instances, as they were before masking."""
    found = stage_input("instances", instances, store=store)
    left = _LOOKED_AT
    for entry in found.files:
        if not (entry.path.startswith("__held-out__/") and entry.path.endswith(".arrow")):
            continue
        with open_shard(input_file(found, entry.path)) as shard:
            for number in range(shard.num_record_batches):
                for row in _rows(shard.get_batch(number)):
                    yield row
                    left -= 1
                    if not left:
                        return


def _rows(batch: pa.RecordBatch) -> Iterator[list[int]]:
    columns = ("input_ids", "masked_lm_positions", "masked_lm_ids")
    for row in batch.select(list(columns)).to_pylist():
        ids = list(row["input_ids"])
        for position, token in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
            ids[position] = token
        yield ids


def _question(ids: Sequence[int], tokenizer: Tokenizer) -> tuple[int, Question] | None:
    """A text with one whole word masked."""
    pieces = [tokenizer.id_to_token(token) or "" for token in ids]
    pieces = [piece for piece in pieces if piece not in ("[CLS]", "[SEP]", "[PAD]")]
    if not _LEAST_PIECES <= len(pieces) <= _MOST_PIECES or set(pieces) & set(SPECIAL_TOKENS):
        return None
    choices = [
        at
        for at in range(2, len(pieces) - 2)
        if pieces[at].isalpha()
        and not pieces[at + 1].startswith(CONTINUATION)
        and (len(pieces[at]) > 2 or ord(pieces[at][0]) > 0x2E80)
    ]
    if not choices:
        return None
    at = choices[len(choices) // 2]
    word = pieces[at]
    token = int(tokenizer.token_to_id(word) or 0)
    parts = [_joined(pieces[:at], tokenizer), MASK, _joined(pieces[at + 1 :], tokenizer)]
    return token, Question(" ".join(part for part in parts if part), word)


def _joined(pieces: Sequence[str], tokenizer: Tokenizer) -> str:
    ids = [tokenizer.token_to_id(piece) for piece in pieces]
    return str(tokenizer.decode([token for token in ids if token is not None]))


def _file_url(manifest: Manifest, name: str, store: ArtifactStore) -> str:
    entry = manifest.file(name)
    return store.url(f"{manifest.data}/{entry.object if entry is not None else name}")
