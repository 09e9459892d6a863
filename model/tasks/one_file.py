"""Tasks that come as one file: which split each part of it belongs to.

The rule is fixed and knows nothing but the part's own text, so that the split of a text stays the
same when others come, go or change places, and equal texts are never on two sides.
"""

from __future__ import annotations

from collections.abc import Mapping

from model.tasks.task import Bad


def split_of(text: str, *, task: str, shares: Mapping[str, float]) -> str:
    """The split of a text: drawn once and for all by (task, text), with the shares' chances.

    Args:
        text: what tells the part from others.
        task: its name.
        shares: by split, in order; together 1.
    """
    import numpy as np

    from pipelines.seeds import key_for, uniform

    keys = np.array([key_for(0, "split-of-one-file", task, text)], np.uint64)
    draw, end = float(uniform(keys, 0)[0]), 0.0
    for split, share in shares.items():
        end += share
        if draw < end:
            return split
    return split


def elsewhere(position: str, split: str) -> Bad:
    """Placeholder of a row that belongs to another split; not an error."""
    return Bad(position, "in-another-split", f"belongs to {split}", is_fault=False)
