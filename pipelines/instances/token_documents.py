"""Tokenized documents as flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s, TokenIds, offsets_of


@dataclass(frozen=True)
class TokenDocuments:
    """Documents of one token shard, end to end, as in the columns of `tokens_schema`.

    Attributes:
        token_ids: uint16 or uint32 of shape (tokens,); may be a view of a memory-mapped file.
        sentence_lengths: Number of tokens of each sentence, at least 1, shape (sentences,).
        sentence_offsets: Document d has the sentences sentence_offsets[d] .. sentence_offsets[d+1];
            int64 of shape (documents + 1,), from 0 to the number of sentences.
        document_ids: Id of each document. Empty for shards that only serve in a pool.
        shard_rows: Rows of the documents in their token shard, ascending, int64 of shape
            (documents,). None: all rows of the shard.
    """

    token_ids: TokenIds
    sentence_lengths: npt.NDArray[np.uint32]
    sentence_offsets: Int64s
    document_ids: Sequence[str] = ()
    shard_rows: Int64s | None = None

    def __len__(self) -> int:
        return len(self.sentence_offsets) - 1

    @cached_property
    def rows(self) -> Int64s:
        """Row of each document in its token shard, ascending."""
        return np.arange(len(self)) if self.shard_rows is None else self.shard_rows

    def copy(self) -> TokenDocuments:
        """Return the documents in new arrays, which are not views."""
        return replace(
            self,
            token_ids=self.token_ids.copy(),
            sentence_lengths=self.sentence_lengths.copy(),
            sentence_offsets=self.sentence_offsets.copy(),
        )

    @cached_property
    def token_bounds(self) -> Int64s:
        """Sentence s has the tokens token_bounds[s] .. token_bounds[s+1]."""
        return offsets_of(self.sentence_lengths)

    @cached_property
    def document_bounds(self) -> Int64s:
        """Document d has the tokens document_bounds[d] .. document_bounds[d+1]."""
        return self.token_bounds[self.sentence_offsets]
