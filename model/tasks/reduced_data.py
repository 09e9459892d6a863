"""Reductions of data and training: missing rows, steps and text ends.

A score on reduced data must be marked next to the paper's. Reductions are stored as `cut` in the
statistics of examples, trials and evaluations, and shown with every score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.task_results import Cut
from model.tasks.task import Row, Task

MARK = "\u2020"  # a dagger after the number; a note explains it
_NAMES = {"train": "training"}


def units_of(row: Row, *, task: Task) -> int:
    """Return the size of a row: 1, or its sentences if rows are documents."""
    return len(row.values["sentence_lengths"]) if task.type == "tagging" else 1


def cut_split(
    kept: int, *, left_out: int, split: str, task: Task, data: str
) -> dict[str, Any] | None:
    """Return the reduction of a split, or None if its table is complete.

    Args:
        kept: Units (`units_of`) in the table.
        left_out: Units of the files that a limit or a fault excluded. Units excluded by rule
            (MNLI's gold label `-`) do not count.
        split: Name of the split.
        task: Task; its `sizes` are those of the official splits.
        data: Description of the files, if they are not the task's own.
    """
    official = 0 if data else task.sizes.get(split, 0)
    whole = max(kept + left_out, official)
    unit = "sentences" if task.type == "tagging" else "rows"
    return {"kept": kept, "of": whole, "unit": unit} if kept < whole else None


def split_text(split: str, cut: Mapping[str, Any]) -> str:
    """`4,000 of 67,349 training rows`."""
    name = _NAMES.get(split, split)
    return f"{cut['kept']:,} of {cut['of']:,} {name} {cut['unit']}"


def examples_cut(statistics: Mapping[str, Any]) -> Cut:
    """Return the reductions that trials inherit from the statistics of their examples."""
    texts = {split: split_text(split, cut) for split, cut in statistics.get("cut", {}).items()}
    learned = ("augmentation", "train")
    return Cut(
        training=tuple(texts[split] for split in learned if split in texts),
        splits={split: text for split, text in texts.items() if split not in learned},
    )


def cut_notes(cuts: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Return one line per entry with reductions."""
    texts: dict[str, dict[str, None]] = {}
    for entry, cut in cuts:
        texts.setdefault(entry, {}).update(dict.fromkeys(cut))
    return [f"{MARK} {entry}: {'; '.join(cut)}." for entry, cut in texts.items() if cut]


def marked(text: str, cut: Sequence[str]) -> str:
    """Format a number, with a mark for reduced data."""
    return f"{text} {MARK}" if text and cut else text
