"""What a score was not given: rows, steps and ends of texts that its data or its training left out.

A number of cut-down data must not stand unmarked beside the paper's. What is less than the whole is
kept as `cut` in the statistics of examples, cells and evaluations, and said wherever the number is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.tasks.task import Row, Task

MARK = "\u2020"  # a dagger, behind the number; a note says what of
_NAMES = {"train": "training"}


def units_of(row: Row, *, task: Task) -> int:
    """How much of a split a row is: one, or its sentences where rows are documents."""
    return len(row.values["sentence_lengths"]) if task.type == "tagging" else 1


def cut_split(
    kept: int, *, left_out: int, split: str, task: Task, data: str
) -> dict[str, Any] | None:
    """What a split's table has of the whole split, or None where it has all.

    Args:
        kept: units (`units_of`) in the table.
        left_out: units of the files that are not, for a limit or a fault; what a good file has and
            is left out by rule (MNLI's gold label `-`) is no part of the whole.
        split: its name.
        task: whose `sizes` say how much the official split has.
        data: what the files are, where they are not the task's own.
    """
    official = 0 if data else task.sizes.get(split, 0)
    whole = max(kept + left_out, official)
    unit = "sentences" if task.type == "tagging" else "rows"
    return {"kept": kept, "of": whole, "unit": unit} if kept < whole else None


def split_text(split: str, cut: Mapping[str, Any]) -> str:
    """`4,000 of 67,349 training rows`."""
    name = _NAMES.get(split, split)
    return f"{cut['kept']:,} of {cut['of']:,} {name} {cut['unit']}"


def examples_cut(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """What of the statistics of examples goes to those of what is made of them.

    Returns:
        `training`, texts about the data that models learn from, and `splits`, a text for each other
        split that is not whole.
    """
    texts = {split: split_text(split, cut) for split, cut in statistics.get("cut", {}).items()}
    learnt = ("augmentation", "train")
    return {
        "training": [texts[split] for split in learnt if split in texts],
        "splits": {split: text for split, text in texts.items() if split not in learnt},
    }


def cut_on(split: str, cut: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts that belong to a score on a split."""
    own = cut.get("splits", {}).get(split)
    return (*cut.get("training", ()), *([own] if own else ()))


def cut_notes(found: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """A line for each entry, given with what its number was not given, that is not of the whole."""
    texts: dict[str, dict[str, None]] = {}
    for entry, cut in found:
        texts.setdefault(entry, {}).update(dict.fromkeys(cut))
    return [f"{MARK} {entry}: {'; '.join(cut)}." for entry, cut in texts.items() if cut]


def marked(text: str, cut: Sequence[str]) -> str:
    """A number as it is shown, with the mark of those that are of cut-down data."""
    return f"{text} {MARK}" if text and cut else text


def joined(cuts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What several trainings left out, each text once."""
    found = list(cuts)
    splits: dict[str, str] = {}
    for cut in found:
        splits |= cut.get("splits", {})
    texts = dict.fromkeys(text for cut in found for text in cut.get("training", ()))
    return {"training": list(texts), "splits": splits}
