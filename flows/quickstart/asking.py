"""Questions to a new model out of the texts that were held out from its training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from tokenizers import Tokenizer

from flows.run.step_execution import stage_input
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import read_file
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, SPECIAL_TOKENS, TOKENIZER_FILE
from schemas.manifest import Manifest

_LOOKED_AT = 200
_LEAST_PIECES, _MOST_PIECES = 8, 40
_NEAR = 4
"""Pieces on either side of a mask that a short question has."""

_BY_ITSELF = r"[\u3001\u3002\u300c-\u300f\u4e00-\u9fff]"
_NO_SPACE = re.compile(f"(?<={_BY_ITSELF}) | (?={_BY_ITSELF})")
"""Spaces beside characters that are words by themselves, where nobody writes any."""


class Question(NamedTuple):
    """A text with one word masked."""

    text: str
    word: str
    """What stands there."""

    near: str
    """The words around, to ask for on a line."""


def held_out_texts(trained: Manifest, *, store: ArtifactStore, wanted: int) -> list[Question]:
    """Some held-out texts with a frequent word masked in each; none where none was held out.

    The same of the same corpus each time: of the first held-out instances, those whose masked word
    is the most frequent among them.

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
    rows = list(_held_out_rows(instances, store=store))
    times = Counter(token for ids in rows for token in ids)
    questions = [one for ids in rows if (one := _question(ids, tokenizer)) is not None]
    by_word: dict[str, Question] = {}
    for _, found in sorted(questions, key=lambda pair: (-times[pair[0]], pair[0])):
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
        and not _goes_on(pieces[at + 1])
        and (len(pieces[at]) > 2 or ord(pieces[at][0]) > 0x2E80)
    ]
    if not choices:
        return None
    at = choices[len(choices) // 2]
    word = pieces[at]
    token = int(tokenizer.token_to_id(word) or 0)
    first = next(i for i in range(max(0, at - _NEAR), at + 1) if pieces[i][0].isalnum())
    end = next((i for i in range(at + _NEAR, len(pieces)) if not _goes_on(pieces[i])), len(pieces))
    text = _masked(pieces[:at], pieces[at + 1 :], tokenizer)
    return token, Question(text, word, _masked(pieces[first:at], pieces[at + 1 : end], tokenizer))


def _goes_on(piece: str) -> bool:
    return piece.startswith(CONTINUATION)


def _masked(before: Sequence[str], after: Sequence[str], tokenizer: Tokenizer) -> str:
    parts = [_joined(before, tokenizer), MASK, _joined(after, tokenizer)]
    return _NO_SPACE.sub("", " ".join(part for part in parts if part))


def _joined(pieces: Sequence[str], tokenizer: Tokenizer) -> str:
    ids = [tokenizer.token_to_id(piece) for piece in pieces]
    return str(tokenizer.decode([token for token in ids if token is not None]))


def _file_url(manifest: Manifest, name: str, store: ArtifactStore) -> str:
    entry = manifest.file(name)
    return store.url(f"{manifest.data}/{entry.object if entry is not None else name}")
