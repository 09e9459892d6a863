"""The documents that random segments B are drawn from, and the draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Bools, Int64s, UInt64s, offsets_of
from pipelines.instances.token_documents import TokenDocuments
from pipelines.instances.units import Units, split_units
from pipelines.seeds import integers

_ATTEMPTS = 4
"""Number of draws from all documents. If each of them draws A's own document, the next one is from
the others only."""

_MIN_ENDINGS = 4
"""Minimum number of document ends that one is drawn from. If fewer have the length of the real B,
slightly shorter and longer ones are added."""


class RealSegments(NamedTuple):
    """The real Bs that random ones replace; arrays of shape (draws,).

    Attributes:
        a_length: Number of tokens of A.
        length: Number of tokens from B's first unit on.
        moved: Number of these tokens that are part of A. 0 where the unit begins a sentence.
        is_inside: The first unit begins inside a sentence.
        is_end: B ends with its document.
    """

    a_length: Int64s
    length: Int64s
    moved: Int64s
    is_inside: Bools
    is_end: Bools

    def take(self, rows: Int64s) -> RealSegments:
        columns: tuple[npt.NDArray[Any], ...] = self
        return RealSegments(*(column[rows] for column in columns))


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
    """Draws a B from another document that differs from the real B in its content only.

    A real B begins at a unit that is not the first of its document. So does a random one:

    * It begins inside a sentence if and only if the real one does.
    * If the real B ends where the pair is full, the random one has as many tokens, and begins at
      any unit that is followed by enough tokens, each equally likely.
    * If the real B ends with its document, so does the random one, and it has as many tokens, or
      nearly as many where too few documents have such an end.

    Documents of fewer than two tokens have no second unit and are never drawn. If no other document
    has a B like the real one, any other document is drawn.

    Attributes:
        units: Units of the documents of each shard.
        num_documents: Number of documents that can be drawn.
    """

    def __init__(self, shards: Mapping[int, TokenDocuments], *, max_tokens: int) -> None:
        self.units = {
            number: split_units(shard, max_tokens=max_tokens) for number, shard in shards.items()
        }
        self._max_tokens = max_tokens
        documents = offsets_of([len(shard) for shard in shards.values()])
        tokens = offsets_of([len(shard.token_ids) for shard in shards.values()])
        self._first_document = dict(zip(shards, documents[:-1].tolist(), strict=True))
        # One entry per document; documents and tokens are numbered across all shards.
        self._shard = np.repeat(np.array(list(shards), np.int64), np.diff(documents))
        self._base = np.repeat(tokens[:-1], np.diff(documents))
        self._rows = {number: shard.rows for number, shard in shards.items()}
        self._row = np.concatenate(list(self._rows.values()))
        starts = _Starts.join(
            [
                _later_starts(units).shifted(document, token)
                for units, document, token in zip(
                    self.units.values(), documents.tolist(), tokens.tolist(), strict=False
                )
            ]
        )
        self.num_documents = int(np.count_nonzero(np.bincount(starts.document)))
        self._by_kind = {
            kind: _SortedStarts(
                starts.take(np.flatnonzero(starts.is_inside == kind)), max_tokens=max_tokens
            )
            for kind in (False, True)
        }

    def draw(
        self, keys: UInt64s, *, counter: int, own_shard: int, own_rows: Int64s, real: RealSegments
    ) -> Draw:
        """Draw a B for each key, in place of the real one.

        Args:
            keys: Keys of the draws.
            counter: First of the counters of the keys that the draws use.
            own_shard: Number of the shard of A's documents.
            own_rows: Row of A's document in its token shard.
            real: The real Bs.
        """
        own = self._first_document[own_shard] + np.searchsorted(self._rows[own_shard], own_rows)
        document, start, stop = (np.zeros(len(keys), np.int64) for _ in range(3))
        kinds = self._drawable_kinds(real.is_inside)
        for kind, starts in self._by_kind.items():
            at = np.flatnonzero(kinds == kind)
            if len(at):
                replaced = real.take(at)
                drawn = starts.draw(keys[at], counter, excluded=own[at], real=replaced)
                document[at], stop[at] = drawn.document, drawn.end
                start[at] = _begin(drawn, replaced) if kind else drawn.start
        # A longer end of a document is cut where the pair is full.
        longest = np.where(real.is_end, self._max_tokens - real.a_length, real.length - real.moved)
        stop = np.minimum(stop, start + longest)
        base = self._base[document]
        return Draw(self._shard[document], self._row[document], start - base, stop - base)

    def _drawable_kinds(self, is_inside: Bools) -> Bools:
        """Replace a kind of start that no other document has by the other kind."""
        drawable = [kind for kind, starts in self._by_kind.items() if starts.num_documents > 1]
        if len(drawable) == 2:
            return is_inside
        return np.full(len(is_inside), drawable[0]) if drawable else ~is_inside


class _Starts(NamedTuple):
    """Units that a B can begin at; arrays of shape (starts,)."""

    document: Int64s
    start: Int64s
    end: Int64s  # of the document
    spare: Int64s  # number of tokens of the unit that can be part of A
    is_inside: Bools

    def shifted(self, documents: int, tokens: int) -> _Starts:
        """Return the starts with other numbers of documents and tokens."""
        return _Starts(
            document=self.document + documents,
            start=self.start + tokens,
            end=self.end + tokens,
            spare=self.spare,
            is_inside=self.is_inside,
        )

    def take(self, rows: Int64s) -> _Starts:
        columns: tuple[npt.NDArray[Any], ...] = self
        return _Starts(*(column[rows] for column in columns))

    @classmethod
    def join(cls, parts: list[_Starts]) -> _Starts:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _later_starts(units: Units) -> _Starts:
    """Return the units of a shard that are not the first of their document, in their order."""
    counts = np.diff(units.offsets)
    is_later = np.ones(len(units.is_inside), np.bool_)
    is_later[units.offsets[:-1][counts > 0]] = False
    unit = np.flatnonzero(is_later)
    document = np.repeat(np.arange(len(counts)), np.maximum(counts - 1, 0))
    return _Starts(
        document=document,
        start=units.bounds[unit],
        end=units.bounds[units.offsets[document + 1]],
        spare=(units.bounds[unit + 1] - units.bounds[unit]) // 2,
        is_inside=units.is_inside[unit],
    )


def _begin(drawn: _Starts, real: RealSegments) -> Int64s:
    """Return where Bs begin that begin inside a sentence: at one of the tokens that real ones do.

    At the end of a document it is the token that gives B the length of the real one, if there is
    such a token.
    """
    exact = drawn.end - (real.length - real.moved)
    is_exact = (drawn.start <= exact) & (exact <= drawn.start + drawn.spare)
    moved = drawn.start + real.moved % (drawn.spare + 1)
    return np.where(real.is_end & is_exact, exact, moved)


class _SortedStarts:
    """Starts of one kind, sorted by the number of tokens from there to the document's end."""

    def __init__(self, starts: _Starts, *, max_tokens: int) -> None:
        self._unsorted = starts
        remaining = np.minimum(starts.end - starts.start, max_tokens)
        self._order = np.argsort(remaining.astype(np.uint16), kind="stable")  # a radix sort
        self._shortest = offsets_of(np.bincount(remaining, minlength=max_tokens + 1))
        """Starts from `_shortest[n]` on are followed by at least n tokens."""

        self._ending_ranges = _group_endings(self._shortest[:-1])
        first = np.flatnonzero(np.diff(starts.document, prepend=-1))
        self._documents = starts.document[first]
        self._offsets = np.append(first, len(starts.document))

    @property
    def num_documents(self) -> int:
        """Number of documents with such a start."""
        return len(self._documents)

    def draw(self, keys: UInt64s, counter: int, *, excluded: Int64s, real: RealSegments) -> _Starts:
        """Draw a start with enough tokens behind it, or as many, in another document."""
        first, stop = (ends[real.length] for ends in self._ending_ranges)
        low = np.where(real.is_end, first, self._shortest[real.length])
        high = np.where(real.is_end, stop, len(self._order))
        low = np.minimum(low, len(self._order) - 1)
        below = np.maximum(high - low, 1)
        drawn = np.empty(len(keys), np.int64)
        left = np.arange(len(keys))
        for attempt in range(_ATTEMPTS):
            rank = low[left] + integers(keys[left], counter + attempt, below=below[left])
            drawn[left] = self._order[rank]
            left = left[self._unsorted.document[drawn[left]] == excluded[left]]
            if not len(left):
                return self._unsorted.take(drawn)
        drawn[left] = self._draw_document_first(
            keys[left], counter + _ATTEMPTS, excluded=excluded[left], real=real.take(left)
        )
        return self._unsorted.take(drawn)

    def _draw_document_first(
        self, keys: UInt64s, counter: int, *, excluded: Int64s, real: RealSegments
    ) -> Int64s:
        """Draw one of the other documents, then a start in it."""
        rank = np.searchsorted(self._documents, excluded)
        is_present = self._documents[np.minimum(rank, self.num_documents - 1)] == excluded
        document = integers(keys, counter, below=self.num_documents - is_present)
        document += is_present & (document >= rank)
        first = self._offsets[document]
        latest = self._unsorted.end[first] - real.length
        enough = np.searchsorted(self._unsorted.start, latest, side="right") - first
        enough = np.maximum(enough, 1)
        rank_in_document = np.where(
            real.is_end, enough - 1, integers(keys, counter + 1, below=enough)
        )
        return first + rank_in_document


def _group_endings(shortest: Int64s) -> tuple[Int64s, Int64s]:
    """Return the range of sorted starts that the end of a document of each length is drawn from.

    These are the starts with as many tokens behind them. If there are fewer than `_MIN_ENDINGS`,
    neighboring lengths share a range, so that each start is drawn as often as it is replaced.

    Args:
        shortest: Position of the first start of each length. Those from the last length on are not
            ends.
    """
    last, edges = int(shortest[-1]), [0]
    for edge in shortest.tolist():
        if edge - edges[-1] >= _MIN_ENDINGS and last - edge >= _MIN_ENDINGS:
            edges.append(edge)
    first = np.array(edges, np.int64)
    group = np.searchsorted(first, np.minimum(shortest, max(last - 1, 0)), side="right") - 1
    return first[group], np.append(first[1:], last)[group]
