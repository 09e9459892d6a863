"""What a search for evaluation texts comes to, by task, split and field."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.arrays import Bools, Int64s
from pipelines.contamination.texts import Texts
from pipelines.counters import Counters
from schemas.errors import CountMismatchError

SHARES = (0.2, 0.5, 0.8)
"""Texts of whose runs at least so much was found are counted by themselves."""


def found_shares(texts: Texts, found: Bools) -> tuple[Int64s, np.ndarray]:
    """How many runs each text has, and the share of them that any document has."""
    runs = np.diff(texts.bounds)
    sums = np.concatenate([[0], np.cumsum(found)])
    counts = sums[texts.bounds[1:]] - sums[texts.bounds[:-1]]
    return runs, counts / np.maximum(runs, 1)


def summary_rows(texts: Texts, found: Bools, common: Bools) -> list[dict[str, Any]]:
    """A row for each field of each split of a task that has any text.

    Args:
        texts: all of them.
        found: for each of their runs, whether a document has it.
        common: whether too many have.
    """
    runs, shares = found_shares(texts, found)
    sums = [np.concatenate([[0], np.cumsum(marks)]) for marks in (found, common)]
    rows = []
    for number, place in enumerate(texts.places):
        mine = np.flatnonzero(texts.place == number)
        if not len(mine):  # as the second texts of a task of single ones
            continue
        is_long, touched = runs[mine] > 0, shares[mine] > 0
        first, last = texts.bounds[mine[0]], texts.bounds[mine[-1] + 1]
        split = (place.task, place.split)
        of_texts, of_rows = texts.of_examples.get(split, (mine[:0], mine[:0]))
        here = np.isin(of_texts, mine[touched])
        rows.append(
            {
                **place._asdict(),
                "texts": len(mine),
                "too-short": int(np.sum(~is_long)),
                "clean": int(np.sum(is_long & ~touched)),
                "contaminated": int(np.sum(touched)),
                **{f"found-{share:.0%}": int(np.sum(shares[mine] >= share)) for share in SHARES},
                "ngrams": int(np.sum(runs[mine])),
                "ngrams-found": int(sums[0][last] - sums[0][first]),
                "ngrams-common": int(sums[1][last] - sums[1][first]),
                "examples": texts.examples[split],
                "examples-contaminated": len(np.unique(of_rows[here])),
            }
        )
    return rows


def split_rows(texts: Texts, found: Bools) -> list[dict[str, Any]]:
    """A row for each split: its examples, and those with any text that was found."""
    touched = np.flatnonzero(found_shares(texts, found)[1] > 0)
    rows = []
    for (task, split), examples in texts.examples.items():
        of_texts, of_rows = texts.of_examples.get((task, split), (touched[:0], touched[:0]))
        count = len(np.unique(of_rows[np.isin(of_texts, touched)]))
        rows.append(
            {"task": task, "split": split, "examples": examples, "examples-contaminated": count}
        )
    return rows


def text_counters(rows: list[dict[str, Any]]) -> Counters:
    """The counters of all texts together.

    Raises:
        CountMismatchError: the texts are not those found, clean and too short.
    """
    kinds = [f"texts-{kind}" for kind in ("in", "contaminated", "clean", "too-short")]
    counters = Counters(dict.fromkeys([*kinds, "ngrams", "ngrams-found", "ngrams-common"], 0))
    for row in rows:
        counters.count("texts-in", row["texts"])
        for kind in ("contaminated", "clean", "too-short"):
            counters.count(f"texts-{kind}", row[kind])
        for kind in ("", "-found", "-common"):
            counters.count(f"ngrams{kind}", row[f"ngrams{kind}"])
    came_in, *came_out = (counters[kind] for kind in kinds)
    if came_in != sum(came_out):
        listed = ", ".join(f"{kind} {counters[kind]}" for kind in kinds)
        raise CountMismatchError(f"find-contamination: texts do not add up: {listed}")
    return counters
