"""Tokenized documents as flat arrays, and the pool that random segments are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s, TokenIds, offsets_of
from pipelines.seeds import integers
from schemas.errors import ArtifactCorruptError


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

    Raises:
        ArtifactCorruptError: A sentence has no token, or the sentences are not all tokens.
    """

    token_ids: TokenIds
    sentence_lengths: npt.NDArray[np.uint32]
    sentence_offsets: Int64s
    document_ids: Sequence[str] = ()
    shard_rows: Int64s | None = None

    def __post_init__(self) -> None:
        offsets, lengths = self.sentence_offsets, self.sentence_lengths
        if len(lengths) and lengths.min() == 0:
            sentence = int(lengths.argmin())
            row = int(np.searchsorted(offsets, sentence, side="right")) - 1
            raise self._misfit(f"sentence {sentence - offsets[row]} of row {row} has no token")
        if self.token_bounds[-1] != len(self.token_ids):
            raise self._misfit(
                f"the sentences have {self.token_bounds[-1]} tokens together, the shard has "
                f"{len(self.token_ids)}"
            )

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

    @property
    def documents_with_tokens(self) -> int:
        """Number of documents that are not empty."""
        return int(np.count_nonzero(np.diff(self.sentence_offsets)))

    @property
    def nbytes(self) -> int:
        """Bytes of the token ids, lengths and offsets."""
        arrays = (self.token_ids, self.sentence_lengths, self.sentence_offsets)
        return sum(array.nbytes for array in arrays)

    @cached_property
    def token_bounds(self) -> Int64s:
        """Sentence s has the tokens token_bounds[s] .. token_bounds[s+1]."""
        return offsets_of(self.sentence_lengths)

    @cached_property
    def document_bounds(self) -> Int64s:
        """Document d has the tokens document_bounds[d] .. document_bounds[d+1]."""
        return self.token_bounds[self.sentence_offsets]

    @staticmethod
    def _misfit(problem: str) -> ArtifactCorruptError:
        return ArtifactCorruptError(f"tokenized documents: {problem}. Build the tokens again")


class Draw(NamedTuple):
    """Consecutive sentences drawn from a pool; arrays of shape (draws,).

    Attributes:
        shard, row: Shard number of the document and its row in the token shard.
        start, stop: Range of tokens of that shard.
    """

    shard: Int64s
    row: Int64s
    start: Int64s
    stop: Int64s


class NextSentencePool:
    """Documents that random segments B are drawn from, each equally likely.

    Draws depend on the numbers and contents of the shards, not on the order of the mapping.
    Documents without tokens are not part of the pool.

    Args:
        shards: Token shards by number, with the shard of the A segments.
    """

    def __init__(self, shards: Mapping[int, TokenDocuments]) -> None:
        self.shards = {number: shards[number] for number in sorted(shards)}
        self._ordinals: dict[int, slice] = {}
        columns: list[tuple[Any, ...]] = []
        bounds = [np.zeros(1, np.int64)]
        sentences = tokens = documents = 0
        for number, shard in self.shards.items():
            present = np.flatnonzero(np.diff(shard.sentence_offsets))
            self._ordinals[number] = slice(documents, documents + len(present))
            columns.append(
                (
                    np.full(len(present), number),
                    np.full(len(present), tokens),
                    shard.rows[present],
                    shard.sentence_offsets[present] + sentences,
                    shard.sentence_offsets[present + 1] + sentences,
                )
            )
            bounds.append(shard.token_bounds[1:] + tokens)
            documents += len(present)
            sentences += len(shard.sentence_lengths)
            tokens += len(shard.token_ids)
        # One entry per document; sentences and tokens are counted across all shards.
        self._shard, self._base, self._row, self._first, self._stop = (
            np.concatenate(column).astype(np.int64) for column in zip(*columns, strict=True)
        )
        self._bounds: Int64s = np.concatenate(bounds)
        self._rank_by_size()

    def _rank_by_size(self) -> None:
        sizes = self._bounds[self._stop] - self._bounds[self._first]
        self._by_size = np.argsort(-sizes, kind="stable")
        """Numbers of documents, longest first."""

        self._rank = np.empty_like(self._by_size)
        self._rank[self._by_size] = np.arange(len(sizes))
        self._negative_sizes = -sizes[self._by_size]

    def __len__(self) -> int:
        """Number of documents that can be drawn."""
        return len(self._row)

    def ordinals(self, shard: int, rows: Int64s) -> Int64s:
        """Return the numbers in this pool of documents with tokens, for `draw`."""
        numbers = self._ordinals[shard]
        found: Int64s = numbers.start + np.searchsorted(self._row[numbers], rows)
        return found

    def draw(
        self,
        keys: npt.NDArray[np.uint64],
        *,
        counter: int,
        excluded: Int64s,
        tokens: Int64s,
        replaced: Int64s,
    ) -> Draw:
        """Draw a run of sentences for each key, in place of the real next segment.

        As in google-research/bert (create_pretraining_data.py, lines 279-289), sentences follow
        the first one until there are enough tokens or the document ends. Document and first
        sentence are drawn so that the length of a pair does not tell its label:

        * The document is uniform over those that are long enough for a segment like the real one.
        * Where the real segment has enough tokens, the first sentence is uniform over those from
          which there are enough. Where the real segment ends early, at the end of its document,
          the drawn one ends at the end of a document too, and is as long as sentences allow.

        If no other document is long enough, all others are equally likely.

        Args:
            keys: Keys of the draws, which use the counters `counter` and `counter + 1`.
            counter: First of the two counters.
            excluded: Number in this pool of the document that must not be drawn.
            tokens: Number of tokens wanted. At least one sentence is drawn.
            replaced: Number of tokens of the real next segment.
        """
        wanted = np.maximum(tokens, 1)
        length = np.minimum(wanted, replaced)
        document = self._draw_documents(keys, counter=counter, excluded=excluded, min_tokens=length)
        first, stop = self._first[document], self._stop[document]
        begin = self._bounds[stop] - length
        latest = np.searchsorted(self._bounds, begin, side="right") - 1
        sentence = first + integers(keys, counter + 1, below=np.maximum(latest - first, 0) + 1)
        at_end = np.flatnonzero(replaced < wanted)
        nearest = self._nearest_bound(latest[at_end], begin[at_end])
        sentence[at_end] = np.clip(nearest, first[at_end], stop[at_end] - 1)
        start = self._bounds[sentence]
        enough = np.searchsorted(self._bounds, start + wanted)
        end = self._bounds[np.minimum(enough, stop)]
        base = self._base[document]
        return Draw(self._shard[document], self._row[document], start - base, end - base)

    def _draw_documents(
        self,
        keys: npt.NDArray[np.uint64],
        *,
        counter: int,
        excluded: Int64s,
        min_tokens: Int64s,
    ) -> Int64s:
        """Draw a document of at least `min_tokens` tokens for each key, but not `excluded`."""
        rank = self._rank[excluded]
        long_enough = np.searchsorted(self._negative_sizes, -min_tokens, side="right")
        others = long_enough - (rank < long_enough)
        drawn = integers(keys, counter, below=np.where(others > 0, others, len(self) - 1))
        documents: Int64s = self._by_size[drawn + (drawn >= rank)]
        return documents

    def _nearest_bound(self, before: Int64s, tokens: Int64s) -> Int64s:
        """Return the sentence that begins nearest to each token, given the last one before it."""
        after = np.minimum(before + 1, len(self._bounds) - 1)
        is_after = self._bounds[after] - tokens < tokens - self._bounds[before]
        return np.where(is_after, after, before)
