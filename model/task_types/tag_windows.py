"""Windows over documents of any length, so that every word has as much context as can be had.

Paper 5.3 gives the model "the maximal document context provided by the data". A document that fits
into one sequence is one window. A longer one is read in windows that overlap by about half, and
each word is tagged once, in the window that shows most around it.

Letters for shapes: P word pieces of a document, W its words that have pieces, K windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipelines.arrays import Int64s

UNBOUNDED = np.iinfo(np.int64).max
"""Context on a side where nothing of the document is cut off."""


class Windows(NamedTuple):
    """Which words each window shows, and which of them are tagged in it.

    Attributes:
        first: int64 (K,): first word of each window, ascending.
        last: int64 (K,): one past its last word.
        home: int64 (W,): number of the window in which each word is tagged.
    """

    first: Int64s
    last: Int64s
    home: Int64s


def plan_windows(starts: Int64s, *, size: int) -> Windows:
    """Cut a document into windows of whole words.

    Windows start at most half a window apart, evenly spread; the last one reaches as far back as it
    can. So every word has a quarter of a window, or the document's end, on both sides, but for
    words near very long ones.

    Args:
        starts: int64 (W + 1,): word i has the pieces starts[i] .. starts[i + 1] - 1, at least one
            and at most `size`.
        size: pieces of a window.
    """
    words, pieces = len(starts) - 1, int(starts[-1])
    if pieces <= size:
        whole = np.zeros(min(words, 1), np.int64)
        return Windows(whole, whole + words, np.zeros(words, np.int64))
    rest = pieces - size
    step = -(-rest // -(-rest // max(1, size // 2)))  # as many windows as half steps, no wider
    first, last = [0], [_fitting(starts, 0, size=size)]
    while last[-1] < words:
        target = int(np.searchsorted(starts, starts[first[-1]] + step, side="right")) - 1
        begin = min(max(target, first[-1] + 1), last[-1])
        if pieces - starts[begin] <= size:
            begin = int(np.searchsorted(starts, pieces - size))
        first.append(begin)
        last.append(_fitting(starts, begin, size=size))
    begins, ends = np.array(first), np.array(last)
    return Windows(begins, ends, _homes(starts, begins, ends))


def _fitting(starts: Int64s, begin: int, *, size: int) -> int:
    """One past the last word that fits into a window that begins with this one."""
    return int(np.searchsorted(starts, starts[begin] + size, side="right")) - 1


def _homes(starts: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """The window of each word with most context; of several, the first.

    Context is the fewer of the pieces before and behind the word's first piece; on a side where
    the window reaches the document's end, nothing is lacking.
    """
    words = len(starts) - 1
    best = np.full(words, -1, np.int64)
    home = np.zeros(words, np.int64)
    for number, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        places = starts[begin:end]
        before = places - starts[begin] if begin else np.full(len(places), UNBOUNDED)
        behind = starts[end] - 1 - places if end < words else np.full(len(places), UNBOUNDED)
        context = np.minimum(before, behind)
        better = np.flatnonzero(context > best[begin:end]) + begin
        best[better] = context[better - begin]
        home[better] = number
    return home
