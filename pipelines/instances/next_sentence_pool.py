"""The documents that random segments B are drawn from, and the draws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipelines.arrays import Bools, Int64s, UInt64s, offsets_of
from pipelines.instances.token_documents import TokenDocuments
from pipelines.instances.units import Units, split_units
from pipelines.seeds import integers

DRAW_COUNTERS = 6
"""Number of counters of a key that a draw uses."""

_ATTEMPTS = DRAW_COUNTERS - 2
"""Draws from all documents. If all of them draw A's own document, the next draw is from the others
only."""

_MIN_ENDINGS = 8
"""Minimum number of document ends that one is drawn from. If fewer have the length of the real B,
slightly shorter and longer ones are added."""


class RealSegments(NamedTuple):
    """The real Bs that random ones replace; arrays of shape (draws,).

    Attributes:
        a_length: Number of tokens of A.
        length: Number of tokens from the first unit of B on.
        moved: Number of these tokens that are part of A.
        is_inside: The first unit begins inside a sentence.
        is_end: B ends with its document.
    """

    a_length: Int64s
    length: Int64s
    moved: Int64s
    is_inside: Bools
    is_end: Bools


class Draw(NamedTuple):
    """Runs of tokens drawn from a pool; arrays of shape (draws,).

    Attributes:
        shard, row: Shard number of the document and its row in the token shard.
        start, stop: Range of tokens of that shard.
    """

    shard: Int64s
    row: Int64s
    start: Int64s
    stop: Int64s


class NextSentencePool:
    """Token shards that random segments B are drawn from.

    Draws depend on the numbers and contents of the shards, not on the order of the mapping.

    Args:
        shards: Token shards by number, with the shard of the A segments.
    """

    def __init__(self, shards: Mapping[int, TokenDocuments]) -> None:
        self.shards = {number: shards[number] for number in sorted(shards)}
        self._segments: dict[int, RandomSegments] = {}

    def random_segments(self, max_tokens: int) -> RandomSegments:
        """Return the segments that can be drawn for pairs of at most `max_tokens` tokens."""
        if max_tokens not in self._segments:
            self._segments[max_tokens] = RandomSegments(self.shards, max_tokens=max_tokens)
        return self._segments[max_tokens]


class RandomSegments:
    """Draws a B from another document so that nothing but its content tells it from the real B.

    A real B begins at a unit that is not the first of its document. So does a random one:

    * It begins inside a sentence if and only if the real one does.
    * If the real B ends where the pair is full, the random one has as many tokens, and begins at
      any unit that is followed by enough tokens, each equally likely.
    * If the real B ends with its document, so does the random one, and it has as many tokens, or
      nearly as many where too few documents have such an end.

    Documents of fewer than two tokens have no second unit and are never drawn. If no other document
    has a B like the real one, any other document is drawn.
    """

    def __init__(self, shards: Mapping[int, TokenDocuments], *, max_tokens: int) -> None:
        self.units = {
            number: split_units(shard, max_tokens=max_tokens) for number, shard in shards.items()
        }
        self._max_tokens = max_tokens
        numbers = list(shards)
        documents = offsets_of([len(shard) for shard in shards.values()])
        tokens = offsets_of([len(shard.token_ids) for shard in shards.values()])
        self._first_document = dict(zip(numbers, documents.tolist(), strict=False))
        # One entry per document; tokens are counted across all shards.
        self._shard = np.repeat(np.array(numbers, np.int64), np.diff(documents))
        self._base = np.repeat(tokens[:-1], np.diff(documents))
        self._rows = {number: shard.rows for number, shard in shards.items()}
        self._row = np.concatenate([shard.rows for shard in shards.values()])
        starts = [_later_starts(units) for units in self.units.values()]
        document, start, end, earliest, is_inside = (
            np.concatenate(column) for column in zip(*starts, strict=True)
        )
        counts = [len(part.document) for part in starts]
        document += np.repeat(documents[:-1], counts)
        for column in (start, end, earliest):
            column += np.repeat(tokens[:-1], counts)
        self._starts = {
            inside: _Starts(
                *(column[is_inside == inside] for column in (document, start, end, earliest)),
                max_tokens=max_tokens,
            )
            for inside in (False, True)
        }
        self.num_documents = int(np.count_nonzero(np.bincount(document)))

    def draw(
        self, keys: UInt64s, *, counter: int, own_shard: int, own_rows: Int64s, real: RealSegments
    ) -> Draw:
        """Draw a B for each key, in place of the real one.

        Args:
            keys: Keys of the draws, which use `DRAW_COUNTERS` counters.
            counter: First of the counters.
            own_shard: Number of the shard of A's documents.
            own_rows: Row of A's document in its token shard.
            real: The real Bs.
        """
        own = self._first_document[own_shard] + np.searchsorted(self._rows[own_shard], own_rows)
        start, stop, document = (np.zeros(len(keys), np.int64) for _ in range(3))
        is_inside = self._drawable(real.is_inside)
        for inside, starts in self._starts.items():
            at = np.flatnonzero(is_inside == inside)
            if not len(at):
                continue
            drawn = starts.draw(
                keys[at],
                counter,
                excluded=own[at],
                lengths=real.length[at],
                is_end=real.is_end[at],
            )
            document[at], stop[at] = starts.document[drawn], starts.end[drawn]
            start[at] = starts.start[drawn] + real.moved[at]
            if inside:  # it can begin at any token of the sentence
                exact = stop[at] - (real.length[at] - real.moved[at])
                exact = np.maximum(exact, starts.earliest[drawn])
                start[at] = np.where(real.is_end[at], exact, start[at])
        start = np.minimum(start, stop - 1)
        length = real.length - real.moved
        longest = np.where(real.is_end, self._max_tokens - real.a_length, length)
        stop = np.minimum(stop, start + longest)
        base = self._base[document]
        return Draw(self._shard[document], self._row[document], start - base, stop - base)

    def _drawable(self, is_inside: Bools) -> Bools:
        """Replace a kind of start that no other document has by the other kind."""
        drawable = [inside for inside, starts in self._starts.items() if starts.num_documents > 1]
        if len(drawable) == 2:
            return is_inside
        return np.full(len(is_inside), drawable[0]) if drawable else ~is_inside


class _LaterStarts(NamedTuple):
    """Starts of all units but the first of each document of a shard, in their order."""

    document: Int64s
    start: Int64s
    end: Int64s  # of the document
    earliest: Int64s  # token where a B can begin, not before the second of the unit before it
    is_inside: Bools


def _later_starts(units: Units) -> _LaterStarts:
    counts = np.diff(units.offsets)
    is_later = np.ones(len(units.is_inside), np.bool_)
    is_later[units.offsets[:-1][counts > 0]] = False
    document = np.repeat(np.arange(len(counts)), counts)[is_later]
    return _LaterStarts(
        document=document,
        start=units.bounds[:-1][is_later],
        end=units.bounds[units.offsets[document + 1]],
        earliest=units.bounds[:-1][np.flatnonzero(is_later) - 1] + 1,
        is_inside=units.is_inside[is_later],
    )


class _Starts:
    """Places of one kind where a B can begin, sorted by the number of tokens behind them."""

    def __init__(
        self,
        document: Int64s,
        start: Int64s,
        end: Int64s,
        earliest: Int64s,
        *,
        max_tokens: int,
    ) -> None:
        remaining = np.minimum(end - start, max_tokens)
        order = np.argsort(remaining.astype(np.uint16), kind="stable")  # a radix sort
        self.document, self.start, self.end = document[order], start[order], end[order]
        self.earliest = earliest[order]
        self._shortest = offsets_of(np.bincount(remaining, minlength=max_tokens + 1))
        """The starts from _shortest[n] on have n tokens or more behind them."""

        self._first_ending, self._last_ending = _group_endings(self._shortest)
        first = np.flatnonzero(np.diff(document, prepend=-1))
        self._documents, self._ends = document[first], end[first]
        self._offsets = np.append(first, len(document))
        self._in_documents, self._order = start, order

    @property
    def num_documents(self) -> int:
        """Number of documents with such a place."""
        return len(self._documents)

    def draw(
        self, keys: UInt64s, counter: int, *, excluded: Int64s, lengths: Int64s, is_end: Bools
    ) -> Int64s:
        """Draw a place with enough tokens behind it, or as many, in another document."""
        low = np.where(is_end, self._first_ending[lengths], self._shortest[lengths])
        high = np.where(is_end, self._last_ending[lengths], len(self.start))
        low, high = np.minimum(low, len(self.start) - 1), np.maximum(high, 1)
        drawn = np.empty(len(keys), np.int64)
        left = np.arange(len(keys))
        for attempt in range(_ATTEMPTS):
            first = low[left]
            below = high[left] - first
            drawn[left] = first + integers(keys[left], counter + attempt, below=below)
            left = left[self.document[drawn[left]] == excluded[left]]
            if not len(left):
                return drawn
        drawn[left] = self._draw_document_first(
            keys[left],
            counter + _ATTEMPTS,
            excluded=excluded[left],
            lengths=lengths[left],
            is_end=is_end[left],
        )
        return drawn

    def _draw_document_first(
        self, keys: UInt64s, counter: int, *, excluded: Int64s, lengths: Int64s, is_end: Bools
    ) -> Int64s:
        """Draw one of the other documents, then a place in it."""
        rank = np.searchsorted(self._documents, excluded)
        is_present = self._documents[np.minimum(rank, len(self._documents) - 1)] == excluded
        others = len(self._documents) - is_present
        document = integers(keys, counter, below=others)
        document += is_present & (document >= rank)
        first = self._offsets[document]
        latest = self._ends[document] - lengths
        enough = np.searchsorted(self._in_documents, latest, side="right") - first
        enough = np.maximum(enough, 1)
        place = np.where(is_end, enough - 1, integers(keys, counter + 1, below=enough))
        return self._rank[first + place]

    @cached_property
    def _rank(self) -> Int64s:
        """Position in the sorted order of each place in the order of documents."""
        rank = np.empty_like(self._order)
        rank[self._order] = np.arange(len(rank))
        return rank


def _group_endings(shortest: Int64s) -> tuple[Int64s, Int64s]:
    """Return the range of starts that the end of a document of each length is drawn from.

    These are the starts with as many tokens behind them. If there are fewer than `_MIN_ENDINGS`,
    neighboring lengths share a range, so that each place in it is drawn as often as it is replaced.
    """
    bounds = [0]
    for bound in shortest[:-1].tolist():  # without the last length: these have more tokens
        if bound - bounds[-1] >= _MIN_ENDINGS:
            bounds.append(bound)
    last = int(shortest[-2])
    if len(bounds) > 1 and last - bounds[-1] < _MIN_ENDINGS:
        bounds.pop()
    if last > bounds[-1]:
        bounds.append(last)
    edges = np.array(bounds, np.int64)
    group = np.maximum(np.searchsorted(edges, shortest[:-1], side="right") - 1, 0)
    group = np.minimum(group, max(len(edges) - 2, 0))
    return edges[group], edges[np.minimum(group + 1, len(edges) - 1)]
