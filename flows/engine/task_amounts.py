"""What the artifacts of fine-tuning and evaluation hold, in a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from schemas.errors import BertloomError

Statistics = Mapping[str, Any]

_NOT_AS_EXPECTED = (KeyError, TypeError, ValueError, AttributeError, BertloomError)
"""Of statistics that another version of the stage wrote, or of a task that is no more."""


def task_amount(stage: str, statistics: Statistics) -> str | None:
    """A few words for an artifact of a stage about tasks; None for others, and if unreadable."""
    describe = _DESCRIBE.get(stage)
    try:
        return describe(statistics) if describe else None
    except _NOT_AS_EXPECTED:
        return None


def _examples(statistics: Statistics) -> str:
    from model.tasks.cut_data import split_text

    splits = ", ".join(f"{rows:,} {split}" for split, rows in statistics["splits"].items())
    cut = [split_text(split, cut) for split, cut in statistics.get("cut", {}).items()]
    return f"{splits} examples{_in_brackets(cut)}"


def _in_brackets(texts: Iterable[str]) -> str:
    """What a number was not given, behind it."""
    told = "; ".join(dict.fromkeys(texts))
    return f" ({told})" if told else ""


def _cut_on_dev(statistics: Statistics) -> tuple[str, ...]:
    from model.tasks.cut_data import cut_on

    return cut_on("dev", statistics.get("cut", {}))


def _dev_metrics(statistics: Statistics) -> list[tuple[str, float]]:
    """What a cell scored on dev, the task's own metrics first, the one that chooses before all."""
    from model.tasks import find_task  # Arrow takes a while to load

    dev: Mapping[str, float] = statistics["metrics"].get("dev", {})
    own = find_task(str(statistics["task"])).metrics
    return sorted(dev.items(), key=lambda item: own.index(item[0]) if item[0] in own else len(own))


def _cell(statistics: Statistics) -> str:
    shown = [f"{name} {share_text(value)}" for name, value in _dev_metrics(statistics)[:2]]
    told = f"{', '.join(shown)} on dev" if shown else "no answers on dev"
    return f"{told}{_in_brackets(_cut_on_dev(statistics))}"


def _evaluation(statistics: Statistics) -> str:
    return f"{_scores(statistics)}{_in_brackets(_cut_on_dev(statistics))}"


def score_cut(name: str, statistics: Statistics) -> tuple[str, ...]:
    """What a number of an artifact's statistics was not given, in a few words each.

    Args:
        name: its dotted path, such as `metrics.dev.accuracy`.
        statistics: the artifact's.
    """
    from model.tasks.cut_data import cut_on

    kind, *path = name.split(".")
    if kind == "entries":  # of the tables; names of entries may have dots
        told = ((entry, about.get("cut", ())) for entry, about in statistics[kind].items())
        return tuple(next((cut for entry, cut in told if name.startswith(f"{kind}.{entry}.")), ()))
    return cut_on(path[0], statistics.get("cut", {})) if kind == "metrics" else ()


def _scores(statistics: Statistics) -> str:
    points = {point["name"]: point for point in statistics["points"]}
    point = points[statistics["best_point"]]
    metric = statistics["metric"]
    value = statistics["metrics"].get("dev", {}).get(metric)
    said = "best" if statistics["ensemble"] == 1 else f"{statistics['ensemble']} together"
    best = "" if value is None else f", {said} {share_text(value)}"
    mean = share_text(point["mean"])
    if point["runs"] == 1:
        return f"{metric} {mean}{best if len(points) > 1 or statistics['ensemble'] > 1 else ''}"
    return f"{metric} {mean} ± {share_text(point['sd'])} of {point['runs']} runs{best}"


def _tables(statistics: Statistics) -> str:
    del statistics
    return "tables"


_DESCRIBE: dict[str, Callable[[Statistics], str]] = {
    "build-examples": _examples,
    "finetune": _cell,
    "evaluate": _evaluation,
    "tabulate": _tables,
}


def cells_amount(cells: Sequence[Statistics]) -> str:
    """A few words for the cells of a grid: how many, and the range of the first metric."""
    count = f"{len(cells)} cell{'s' if len(cells) != 1 else ''}"
    try:
        firsts = [next(iter(_dev_metrics(cell)), None) for cell in cells]
    except _NOT_AS_EXPECTED:
        return count
    values = [found[1] for found in firsts if found is not None]
    if not values or firsts[0] is None:
        return count
    cut = [text for cell in cells for text in _cut_on_dev(cell)]
    return f"{count}, {firsts[0][0]} {_between(values)}{_in_brackets(cut)}"


def _between(values: Sequence[float]) -> str:
    low, high = share_text(min(values)), share_text(max(values))
    return low if low == high else f"{low} to {high}"


def share_text(value: float) -> str:
    """A share of 1 with three digits, as tables of statistics have it: .912."""
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text
