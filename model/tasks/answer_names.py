"""Labels and tags of a task: its fixed ones, or those in its training data."""

from __future__ import annotations

from model.tasks.task import Bad, Row, Task

OUTSIDE = "O"
_MOST_DIGITS = 100


class AnswerNames:
    """Collector of the names of answers in a stream of rows, training data first.

    A row with a label that the training data lacks is bad, because no model can learn it. Tag types
    come from train and dev, so that one rare type does not drop a document.
    """

    def __init__(self, task: Task) -> None:
        self._type = task.type
        self._fixed = task.labels
        self._seen: set[str] = set()

    def check(self, split: str, found: Row | Bad) -> Row | Bad:
        """Record the names in a row; return the row, or the reason why it is bad."""
        if isinstance(found, Bad) or self._fixed:
            return found
        if self._type == "tagging":
            if split in ("train", "dev"):
                self._seen.update(found.values.get("tags") or ())
            return found
        label = found.values.get("label")
        if self._type != "classification" or label is None:
            return found
        if split == "train":
            self._seen.add(label)
        elif label not in self._seen:
            return Bad(found.position, "label-not-in-train", str(label))
        return found

    def labels(self) -> tuple[str, ...]:
        """Return all names in the order of the model's outputs."""
        if self._fixed:
            return self._fixed
        if self._type == "tagging":
            types = sorted({tag[2:] for tag in self._seen if tag != OUTSIDE})
            return (OUTSIDE, *(f"{begin}-{of_type}" for of_type in types for begin in "BI"))
        return tuple(sorted(self._seen, key=_by_value)) if self._type == "classification" else ()


def _by_value(label: str) -> tuple[int, int, str]:
    digits = label.removeprefix("-")
    # A longer one is no number that anyone counts with, and Python may refuse to read it.
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return (0, int(label), label) if is_number else (1, 0, label)
