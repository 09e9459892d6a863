"""Well-formed sentences and disturbed ones, as CoLA has them.

In a disturbed sentence a run of words is out of order, or a few words have been exchanged for
words of other sentences. So words and length say nothing, only what fits where.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flows.sample.draws import Draws
from flows.sample.labelled_cast import Cast, sentences

_SHORTEST, _LONGEST = 6, 16


class Judged(NamedTuple):
    """A sentence and whether it is well-formed."""

    text: str
    source: str
    """The sentence as it was before anything was done to it."""
    is_good: bool


def judged(cast: Cast, count: int, *, known: set[str]) -> list[Judged]:
    """`count` sentences, half of them disturbed; none whose source is `known` from another split.

    The sources are added to `known`.
    """
    draws = cast.draws("order")
    pool = dict.fromkeys(
        text
        for paragraph in sentences(cast, "order")
        for text in paragraph
        if _SHORTEST <= len(text.split()) <= _LONGEST and text not in known and '"' not in text
    )
    taken = draws.some(list(pool), count)
    words = [word for text in taken for word in text.split()[1:-1] if word.islower()]
    rows = []
    for number, text in enumerate(taken):
        is_good = number % 2 == 0
        if is_good:
            shown = text
        elif number % 4 == 1:
            shown = exchanged(text, words, draws)
        else:
            shown = disordered(text, draws)
        rows.append(Judged(shown, text, is_good))
        known.add(text)
    return draws.shuffled(rows)


def disordered(text: str, draws: Draws) -> str:
    """The same words, all but the first and the last in another order."""
    first, *middle, last = text.split()
    while True:
        mixed = draws.shuffled(middle)
        if mixed != middle:
            return " ".join([first, *mixed, last])


def exchanged(text: str, words: Sequence[str], draws: Draws) -> str:
    """A third of the words, not the first and not the last, replaced by some of `words`."""
    shown = text.split()
    inner = range(1, len(shown) - 1)
    for place in draws.some(inner, len(inner) // 3 + 1):
        shown[place] = draws.pick([word for word in words if word != shown[place]])
    return " ".join(shown)
