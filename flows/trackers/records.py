"""What a tracker is told of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from flows.nested_values import flatten, numeric_leaves
from schemas.disclosure import recorded
from schemas.manifest import Manifest

_SAME_AS_STEP = frozenset({"step", "kind", "split"})


class TrackedStep(NamedTuple):
    """A step that trains or evaluates, as trackers know it."""

    label: str
    """`pretrain.phase-1`."""

    recipe: str
    key: str
    """Its cache key. What goes on has the same, and goes on in the same run of the tracker."""

    params: dict[str, str]
    tags: dict[str, str]


class Values(NamedTuple):
    """Numbers of one update of the weights."""

    step: int
    numbers: dict[str, float]


class TrackerRun(Protocol):
    """A run of a tracker. Whatever is asked of it may raise anything."""

    last_step: int
    """The last one that it has been told of before; -1 where it is new."""

    def log(self, values: list[Values]) -> None:
        """Tell it some lines of a curve."""

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        """Tell it what came of it."""


def tracked_step(
    label: str,
    *,
    recipe: str,
    stage: str,
    key: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Manifest],
    run_id: str,
) -> TrackedStep:
    """What is known of a step before it runs, without the secrets of addresses."""
    params = flatten(recorded(config), keep_empty=False)
    tags = {
        "bertloom.step": label,
        "bertloom.stage": stage,
        "bertloom.recipe": recipe,
        "bertloom.key": key,
        "bertloom.run": run_id,
        **{f"bertloom.input.{name}": given.content for name, given in inputs.items()},
    }
    return TrackedStep(label, recipe, key, {k: str(v) for k, v in params.items()}, tags)


def values_of(line: Mapping[str, Any]) -> Values:
    """A line of a curve: `loss` of kind `train` is `train/loss`."""
    group = str(line.get("kind") or line.get("split") or "train")
    prefix = "held_out_" if group == "held-out" else ""
    found = {
        f"{group}/{name.removeprefix(prefix)}": float(value)
        for name, value in line.items()
        if name not in _SAME_AS_STEP and isinstance(value, int | float) and math.isfinite(value)
    }
    return Values(int(line["step"]), found)


def summary_of(manifest: Manifest) -> dict[str, float]:
    """Figures of a finished step: `held-out/perplexity`, `dev/matthews`."""
    return dict(_figures(manifest.statistics))


def _figures(statistics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in numeric_leaves(statistics.get("held_out", {})).items():
        yield f"held-out/{name}", value
    for split, metrics in statistics.get("metrics", {}).items():
        for name, value in numeric_leaves(metrics).items():
            yield f"{split}/{name}", value


def tags_of(manifest: Manifest) -> dict[str, str]:
    """What the artifact is called."""
    return {"bertloom.artifact": manifest.artifact_id, "bertloom.content": manifest.content}
