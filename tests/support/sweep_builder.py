"""Tables of written evaluations, for the tests of tables and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.evaluation_builder import BASE, evaluations, written

from model.tables.render import Tables, build_tables
from model.tables.results import result_rows
from model.tables.sweeps import Sweep
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig
from schemas.manifest import StageInput

GOOD, FAIR, POOR = (
    [0.90, 0.91, 0.92, 0.90, 0.91],
    [0.89, 0.92, 0.90, 0.91, 0.90],
    [0.7, 0.72, 0.71, 0.7, 0.69],
)


def entry(of: str, phase: str = "", **variants: str) -> ExpandedEntry:
    return ExpandedEntry(
        entry=".".join([of, *variants.values()]), of=of, variants=variants, phase=phase
    )


def source(
    *entries: dict[str, Any],
    axes: Mapping[str, ExpandedAxis] | None = None,
    swept: Sequence[ExpandedEntry] = (),
    perplexities: Mapping[str, float] | None = None,
) -> Tables:
    """Tabulate written evaluations, and read the tables back from JSON.

    Args:
        *given: Evaluations.
        axes: Axes of the sweep.
        swept: Entries of the sweep.
        perplexities: Held-out perplexity by phase.
    """
    rows = result_rows(evaluations(*entries))
    phases = {
        name: StageInput(
            name=name,
            artifact_id="0" * 16,
            data="",
            files=(),
            statistics={"held_out": {"perplexity": perplexity}},
        )
        for name, perplexity in (perplexities or {}).items()
    }
    sweep = Sweep(TabulateConfig(axes=axes or {}, expanded_sweep=tuple(swept)), rows, phases)
    return Tables.model_validate_json(build_tables(sweep).to_json())


def sweep_of(
    table: str,
    runs: Mapping[str, Mapping[str, list[float]]],
    *,
    perplexities: Mapping[str, float] | None = None,
    baseline: float | None = None,
    **model: Any,
) -> Tables:
    """Tabulate a sweep of one axis, given the restarts by variant and task.

    Args:
        table: Table of the axis.
        runs: Restarts by variant and task.
        perplexities: Held-out perplexity by variant.
        baseline: Score of the majority class.
        **model: Changes to the fine-tuned models.
    """
    axes = {"axis": ExpandedAxis(table=table, variants=tuple(runs))}
    swept = [entry(task, variant, axis=variant) for variant in runs for task in runs[variant]]
    entries = [
        written(
            one.entry, one.of, runs[one.phase][one.of], model={**BASE, **model}, baseline=baseline
        )
        for one in swept
    ]
    return source(*entries, axes=axes, swept=swept, perplexities=perplexities)


def steps_sweep(runs: Mapping[str, Mapping[str, list[float]]]) -> Tables:
    """Tabulate a sweep of MNLI over objectives and steps, given the restarts by both."""
    steps = next(iter(runs.values()))
    axes = {
        "objective": ExpandedAxis(table="figure-5", variants=tuple(runs)),
        "steps": ExpandedAxis(table="figure-5", variants=tuple(steps)),
    }
    swept = [
        entry("mnli", name, objective=name, steps=step) for name, at in runs.items() for step in at
    ]
    entries = [written(one.entry, "mnli", runs[one.phase][one.variants["steps"]]) for one in swept]
    return source(*entries, axes=axes, swept=swept)
