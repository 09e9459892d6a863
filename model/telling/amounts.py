"""How much artifacts about models and tasks hold, in a few words for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.tasks import find_task
from model.tasks.cut_data import cut_on, split_text
from model.telling.percent import format_percent
from schemas.manifest import Manifest


def training_amount(manifest: Manifest) -> str:
    """What a phase of pretraining reached: `1,000 steps, held-out perplexity 6.84`."""
    perplexity = manifest.statistics.get("held_out", {}).get("perplexity")
    reached = f", held-out perplexity {perplexity:.2f}" if perplexity is not None else ""
    return f"{manifest.counters['steps']:,} steps{reached}"


def examples_amount(manifest: Manifest) -> str:
    """How much data of a task there is: `40 train, 30 dev, 20 test examples`."""
    statistics = manifest.statistics
    splits = ", ".join(f"{rows:,} {split}" for split, rows in statistics["splits"].items())
    cut = [split_text(split, cut) for split, cut in statistics.get("cut", {}).items()]
    return f"{splits} examples{_in_brackets(cut)}"


def trial_amount(manifest: Manifest) -> str:
    """Return how well a trial does: `f1 91.2, em 85.0 on dev`."""
    scores = [f"{name} {format_percent(value)}" for name, value in _dev_metrics(manifest)[:2]]
    text = f"{', '.join(scores)} on dev" if scores else "no answers on dev"
    return f"{text}{_in_brackets(_cut_on_dev(manifest))}"


def trials_amount(manifests: Sequence[Manifest]) -> str:
    """How many trials there are, and the range of the metric that chooses."""
    count = f"{len(manifests)} trial{'s' if len(manifests) != 1 else ''}"
    firsts = [next(iter(_dev_metrics(manifest)), None) for manifest in manifests]
    values = [found[1] for found in firsts if found is not None]
    if not values or firsts[0] is None:
        return count
    cut = [text for manifest in manifests for text in _cut_on_dev(manifest)]
    low, high = format_percent(min(values)), format_percent(max(values))
    return (
        f"{count}, {firsts[0][0]} {low if low == high else f'{low} to {high}'}{_in_brackets(cut)}"
    )


def evaluation_amount(manifest: Manifest) -> str:
    """Return how well the best do: `accuracy 91.2 ± 0.4, 5 restarts, best 91.7`."""
    statistics = manifest.statistics
    points = {point["name"]: point for point in statistics["points"]}
    point, metric = points[statistics["best_point"]], statistics["metric"]
    value, models = statistics["metrics"].get("dev", {}).get(metric), statistics["ensemble"]
    which = "best" if models == 1 else f"{models} together"
    best = "" if value is None else f", {which} {format_percent(value)}"
    text = f"{metric} {format_percent(point['mean'])}"
    if point["runs"] > 1:
        text += f" ± {format_percent(point['sd'])}, {point['runs']} restarts{best}"
    elif len(points) > 1 or models > 1:
        text += best
    return f"{text}{_in_brackets(_cut_on_dev(manifest))}"


def tables_amount(manifest: Manifest) -> str:
    """That there are tables."""
    del manifest
    return "tables"


def score_cut(name: str, statistics: Mapping[str, Any]) -> tuple[str, ...]:
    """What the data or training of a number was cut to, in a few words each.

    Args:
        name: its dotted path in an artifact's statistics, such as `metrics.dev.accuracy`.
        statistics: the artifact's.
    """
    kind, *path = name.split(".")
    if kind == "entries":  # of the tables; names of entries may have dots
        cuts = ((entry, about.get("cut", ())) for entry, about in statistics[kind].items())
        return tuple(next((cut for entry, cut in cuts if name.startswith(f"{kind}.{entry}.")), ()))
    return cut_on(path[0], statistics.get("cut", {})) if kind == "metrics" else ()


def _in_brackets(texts: Iterable[str]) -> str:
    joined = "; ".join(dict.fromkeys(texts))
    return f" ({joined})" if joined else ""


def _cut_on_dev(manifest: Manifest) -> tuple[str, ...]:
    return cut_on("dev", manifest.statistics.get("cut", {}))


def _dev_metrics(manifest: Manifest) -> list[tuple[str, float]]:
    """The scores on dev, the task's own metrics first, the one that chooses before all."""
    dev: Mapping[str, float] = manifest.statistics["metrics"].get("dev", {})
    own = find_task(str(manifest.statistics["task"])).metrics
    return sorted(dev.items(), key=lambda item: own.index(item[0]) if item[0] in own else len(own))
