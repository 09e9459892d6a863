"""Count the evaluation texts and examples that a corpus contains."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.arrays import Bools, Int64s
from pipelines.contamination.texts import EvalTexts, Split
from pipelines.counters import Counters

_OVERLAPS = (0.2, 0.5, 0.8)
"""Fractions of a text's n-grams; texts with at least as many in the corpus are counted."""

_FIELD = ("task", "split", "field")


def summarize_texts(
    texts: EvalTexts, splits: Sequence[Split], *, is_found: Bools, is_common: Bools
) -> dict[str, list[dict[str, Any]]]:
    """Return one row per field of each split with texts (`fields`), and one per split (`splits`).

    `is_found` and `is_common` mark the rows of `texts.ngrams`.
    """
    shared, common = (
        np.bincount(texts.ngrams.texts[marks], minlength=len(texts.table))
        for marks in (is_found, is_common)
    )
    fields = _sum_by_field(texts, shared, common)
    examples = _count_examples(texts, shared > 0, _FIELD)
    for row in fields:
        row["examples-contaminated"] = examples[tuple(row[name] for name in _FIELD)]
    examples = _count_examples(texts, shared > 0, ("task", "split"))
    rows = [
        {
            "task": split.task,
            "split": split.name,
            "examples": split.examples,
            "examples-contaminated": examples[split.task, split.name],
        }
        for split in splits
    ]
    return {"fields": fields, "splits": rows}


def _sum_by_field(texts: EvalTexts, shared: Int64s, common: Int64s) -> list[dict[str, Any]]:
    """Return counts of texts by field, given each text's numbers of shared and common n-grams."""
    ngrams = texts.table.column("ngrams").to_numpy()
    overlaps = shared / np.maximum(ngrams, 1)
    columns = {
        "texts": ngrams >= 0,
        "too-short": ngrams == 0,
        "clean": (ngrams > 0) & (shared == 0),
        "contaminated": shared > 0,
        **{f"found-{share:.0%}": overlaps >= share for share in _OVERLAPS},
        "ngrams": ngrams,
        "ngrams-found": shared,
        "ngrams-common": common,
    }
    table = texts.table.select(_FIELD)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values.astype(np.int64)))
    # One thread keeps the order of the fields.
    sums = table.group_by(_FIELD, use_threads=False).aggregate([(name, "sum") for name in columns])
    names = [name.removesuffix("_sum") for name in sums.column_names]
    rows: list[dict[str, Any]] = sums.rename_columns(names).to_pylist()
    return rows


def _count_examples(
    texts: EvalTexts, is_contaminated: Bools, columns: Sequence[str]
) -> collections.Counter[tuple[str, ...]]:
    """Return the number of examples with a contaminated text, by columns of the texts."""
    uses = texts.uses.filter(pa.array(is_contaminated[texts.uses.column("text").to_numpy()]))
    keys = texts.table.select(columns).take(uses.column("text")).columns
    examples = {*zip(*(key.to_pylist() for key in (*keys, uses.column("example"))), strict=True)}
    return collections.Counter(example[:-1] for example in examples)


def count_texts(fields: Sequence[dict[str, Any]]) -> Counters:
    """Return the counters of all texts, which are contaminated, clean or too short."""
    columns = {
        "texts-in": "texts",
        **{f"texts-{kind}": kind for kind in ("contaminated", "clean", "too-short")},
        **{name: name for name in ("ngrams", "ngrams-found", "ngrams-common")},
    }
    return Counters({name: sum(row[key] for row in fields) for name, key in columns.items()})
