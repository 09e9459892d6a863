"""An artifact in Markdown, for pages that draw it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from flows.balances import balances
from flows.engine.stages import amount, find_stage
from flows.engine.steps import StepResult
from flows.formats import byte_text, time_text
from flows.lineage.graph import upstream_graph
from flows.lineage.rendering import mermaid_text
from flows.nested import leaves, numbers
from flows.orchestration.run import Run
from flows.store.artifacts import ArtifactStore
from model.telling.amounts import score_cut
from schemas.manifest import Manifest
from schemas.trial_names import entry_label

_SHOWN_VALUES = 40


def stage_markdown(result: StepResult, *, store: ArtifactStore, run_id: str) -> str:
    """What a step made, what it dropped and why, and what it was made from."""
    manifest, made = result.manifest, "found, made by another run"
    if not result.was_cached:
        made = f"built in {time_text(result.seconds)}"
    lines = [
        f"**{result.label}**: {amount(manifest)}, {byte_text(manifest.size)} in "
        f"{len(manifest.files):,} files, {made}.",
        "",
        *(f"> {_plain(note)}\n" for note in manifest.notes),
    ]
    for warning in result.warnings:
        lines += [f"> **Warning**: {_plain(warning)}", ""]
    if rows := [item.row for item in balances(manifest.counters) if not item.source]:
        lines += _table(("things", "in", "kept", "dropped", "why"), rows)
    if values := _shown_values(manifest.statistics):
        lines += _table(("statistic", "value"), [(name, _text(v)) for name, v in values])
    lines += ["```mermaid", mermaid_text(upstream_graph([manifest], store=store)), "```", ""]
    lines += [
        f"`bertloom show {manifest.artifact_id}` tells more, "
        f"`bertloom lineage {manifest.artifact_id}` what it was made from. "
        f"Run `{run_id}`, store `{store.root}`, folder `{manifest.location}`.",
    ]
    return "\n".join(lines)


def run_markdown(run: Run, *, title: str) -> str:
    """What failed, where the run's report is, its results, and what it built."""
    place = run.store.url(f"runs/{run.run_id}/report.html")
    # No browser opens a link into a bucket.
    report = f"Report: `{place}`" if "://" in place else f"[Report](file://{quote(place)})"
    built = [result for result in run.results() if not result.was_cached]
    rows = []
    for entry, group in itertools.groupby(built, key=lambda result: entry_label(result.label)):
        made = [result.manifest for result in group]
        holds = amount(made[0]) if len(made) == 1 else find_stage(made[0].stage).amounts(made)
        rows.append((entry, holds, byte_text(sum(manifest.size for manifest in made))))
    lines = [f"**{_plain(label)}** failed: {_plain(str(e))}\n" for label, e in run.failures.items()]
    lines += [f"**{_plain(title)}**. {report}", ""]
    if results := _results(run):
        lines += _table(("result of", "is", "artifact"), results)
    if rows:
        lines += _table(("built", "holds", "size"), rows)
    lines += [f"`bertloom report {run.run_id} --store {run.store.root}` writes it anew."]
    return "\n".join(lines)


def _results(run: Run) -> list[tuple[str, str, str]]:
    """What a run is made for: each model, and each score of a grid; not its single trials."""
    return [
        (result.label, amount(result.manifest), result.manifest.artifact_id)
        for result in run.results()
        if find_stage(result.manifest.stage).has_metrics
        and entry_label(result.label) == result.label
    ]


def metric_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """The numbers that a stage is run for, a row each; none for stages that prepare data."""
    if not find_stage(manifest.stage).has_metrics:
        return []
    rows: list[dict[str, Any]] = []
    for name, value in numbers(manifest.statistics).items():
        if name.startswith("model."):
            continue
        cut = "; ".join(score_cut(name, manifest.statistics))
        rows.append({"metric": name, "value": value, **({"not given": cut} if cut else {})})
    return rows


def _shown_values(statistics: dict[str, Any]) -> list[tuple[str, Any]]:
    """Single values by their dotted names, the first of them."""
    single = [item for item in leaves(statistics).items() if not isinstance(item[1], list)]
    return single[:_SHOWN_VALUES]


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [*("| " + " | ".join(_plain(cell) for cell in row) + " |" for row in lines), ""]


def _plain(text: str) -> str:
    """A text that stays in its cell, and is no markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
