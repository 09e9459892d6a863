"""Labels and tags of a task: those it says itself, or those that its training data has."""

from __future__ import annotations

from model.tasks.task import Bad, Row, Task

OUTSIDE = "O"
_MOST_DIGITS = 100


class AnswerNames:
    """Collects the names of answers while rows go by, training data first.

    A label that the training data lacks makes a row bad, since no model could have learnt it. Types
    of tags are taken from train and dev alike: a document is not dropped for one rare type.
    """

    def __init__(self, task: Task) -> None:
        self._type = task.type
        self._fixed = task.labels
        self._seen: set[str] = set()

    def check(self, split: str, found: Row | Bad) -> Row | Bad:
        """The row itself, or why it is bad; remembers the names that are in it."""
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
        """All names in the order of the model's outputs."""
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
