"""One-line summaries of artifacts about models and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.formatting import format_percent
from model.task_results import DEV, Cut, read_evaluation, split_text
from model.tasks import find_task
from schemas.manifest import Manifest


def summarize_phase(manifest: Manifest) -> str:
    """Return steps and perplexity: `1,000 steps, held-out perplexity 6.84`."""
    perplexity = manifest.statistics.get("held_out", {}).get("perplexity")
    score = f", held-out perplexity {perplexity:.2f}" if perplexity is not None else ""
    caution = _in_parentheses(filter(None, [manifest.statistics.get("held_out_caution")]))
    return f"{manifest.counters['steps']:,} steps{score}{caution}"


def summarize_examples(manifest: Manifest) -> str:
    """Return the number of examples per split: `40 train, 30 dev, 20 test examples`."""
    statistics = manifest.statistics
    splits = ", ".join(f"{rows:,} {split}" for split, rows in statistics["splits"].items())
    cut = [split_text(split, cut) for split, cut in statistics.get("cut", {}).items()]
    return f"{splits} examples{_in_parentheses(cut)}"


def summarize_trial(manifest: Manifest) -> str:
    """Return the dev scores of a trial: `f1 91.2, em 85.0 on dev`."""
    scores = [f"{name} {format_percent(value)}" for name, value in _dev_metrics(manifest)[:2]]
    text = f"{', '.join(scores)} on dev" if scores else "no answers on dev"
    return f"{text}{_in_parentheses(_cut_on_dev(manifest))}"


def summarize_trials(manifests: Sequence[Manifest]) -> str:
    """Return the number of trials, and the range of the main metric of each kind of task."""
    values: dict[str, list[float]] = {}
    for manifest in manifests:
        for name, value in _dev_metrics(manifest)[:1]:
            values.setdefault(name, []).append(value)
    count = f"{len(manifests)} trial{'s' if len(manifests) != 1 else ''}"
    scores = [f"{name} {_format_range(scores)}" for name, scores in values.items()]
    cut = [text for manifest in manifests for text in _cut_on_dev(manifest)]
    return f"{', '.join([count, *scores])}{_in_parentheses(cut) if scores else ''}"


def _format_range(values: Sequence[float]) -> str:
    low, high = format_percent(min(values)), format_percent(max(values))
    return low if low == high else f"{low} to {high}"


def summarize_evaluation(manifest: Manifest) -> str:
    """Return the scores of the best point: `accuracy 91.2 ± 0.4, 5 restarts, best 91.7`."""
    result = read_evaluation(manifest)
    scores = result.scores(DEV, result.metric)
    parts = [f"{result.metric} {format_percent(scores.mean, scores.sd)}"]
    if scores.restarts > 1:
        parts.append(f"{scores.restarts} restarts")
    if result.ensemble > 1:
        parts.append(f"{result.ensemble} together {format_percent(scores.ensemble)}")
    elif scores.restarts > 1:
        parts.append(f"best {format_percent(scores.best)}")
    return f"{', '.join(parts)}{_in_parentheses(result.cut.on(DEV))}"


def summarize_tables(manifest: Manifest) -> str:
    """Return `tables`."""
    del manifest
    return "tables"


def score_cut(name: str, statistics: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how the data or the training behind a score was reduced.

    Args:
        name: Dotted path of the score in the statistics, such as `metrics.dev.accuracy`.
        statistics: Statistics of the artifact.
    """
    kind, *path = name.split(".")
    if kind == "entries":  # names of entries may have dots
        cuts = ((entry, about.get("cut", ())) for entry, about in statistics[kind].items())
        return tuple(next((cut for entry, cut in cuts if name.startswith(f"{kind}.{entry}.")), ()))
    cut = Cut.model_validate(statistics.get("cut", {}))
    return cut.on(path[0]) if kind == "metrics" else ()


def _in_parentheses(texts: Iterable[str]) -> str:
    joined = "; ".join(dict.fromkeys(texts))
    return f" ({joined})" if joined else ""


def _cut_on_dev(manifest: Manifest) -> tuple[str, ...]:
    return score_cut(f"metrics.{DEV}", manifest.statistics)


def _dev_metrics(manifest: Manifest) -> list[tuple[str, float]]:
    """Return the scores on dev, metrics of the task first, in the order of the task."""
    dev: Mapping[str, float] = manifest.statistics["metrics"].get(DEV, {})
    own = find_task(str(manifest.statistics["task"])).metrics
    return sorted(dev.items(), key=lambda item: own.index(item[0]) if item[0] in own else len(own))
