"""Stages and runs in Markdown, for Prefect's pages."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from flows.formatting import format_bytes, format_duration, format_statistic
from flows.lineage.graph import upstream_graph
from flows.lineage.text_formats import mermaid_text
from flows.nested_values import numeric_leaves
from flows.record_counts import record_counts
from flows.run.run import Run
from flows.run.stages import get_stage, summarize
from flows.run.step_execution import StepResult
from flows.store.artifacts import ArtifactStore
from flows.store.runs import report_path
from model.monitoring.summaries import score_cut
from schemas.manifest import Manifest
from schemas.trial_names import entry_label


def stage_title(results: Sequence[StepResult]) -> str:
    """Return a line on what the steps of a stage hold: `build-tokens: 1,234 documents`."""
    stage, manifests = results[0].manifest.stage, [result.manifest for result in results]
    if len(manifests) == 1:
        return f"{results[0].label}: {summarize(manifests[0])}"
    return f"{stage}: {get_stage(stage).summary_of(manifests)}"


def stage_markdown(results: Sequence[StepResult], *, store: ArtifactStore, run_id: str) -> str:
    """Return what the steps of a stage built, what they dropped, and what they were built from.

    Args:
        results: Results of all steps of the stage, at least one.
        store: Artifact store.
        run_id: Run that they belong to.
    """
    rows = [
        (
            result.label,
            summarize(result.manifest),
            format_bytes(result.manifest.size_bytes),
            "cached" if result.was_cached else format_duration(result.seconds),
            result.manifest.artifact_id,
        )
        for result in results
    ]
    lines = _table(("step", "contents", "size", "time", "artifact"), rows)
    for result in results:
        lines += [f"> {result.label}: {_plain(note)}\n" for note in result.manifest.notes]
        lines += [f"> **Warning**, {result.label}: {_plain(w)}\n" for w in result.warnings]
    if len(results) == 1:
        lines += _details(results[0].manifest, store=store)
    metrics = [(result.label, *row) for result in results for row in metric_rows(result.manifest)]
    if metrics:
        lines += _table(("step", "metric", "value"), metrics)
    lines.append(f"Run `{run_id}`, store `{store.root}`; `bertloom lineage ARTIFACT` shows more.")
    return "\n".join(lines)


def _details(manifest: Manifest, *, store: ArtifactStore) -> list[str]:
    """Return the record counts and the lineage of one artifact."""
    lines: list[str] = []
    if rows := [counts.row for counts in record_counts(manifest.counters) if not counts.source]:
        lines += _table(("records", "in", "kept", "dropped", "reasons"), rows)
    graph = mermaid_text(upstream_graph([manifest], store=store))
    return [*lines, "```mermaid", graph, "```", ""]


def run_markdown(run: Run, *, title: str) -> str:
    """Return what failed, where the run's report is, and its results."""
    url = run.store.url(report_path(run.run_id))
    # No browser opens a link into a bucket.
    report = f"Report: `{url}`" if "://" in url else f"[Report](file://{quote(url)})"
    lines = [f"**{_plain(label)}** failed: {_plain(str(e))}\n" for label, e in run.failures.items()]
    lines += [f"**{_plain(title)}**. {report}", ""]
    results = [
        (result.label, summarize(result.manifest), result.manifest.artifact_id)
        for result in run.results()
        if get_stage(result.manifest.stage).has_metrics
        and entry_label(result.label) == result.label
    ]
    if results:
        lines += _table(("step", "result", "artifact"), results)
    lines += [f"`bertloom report {run.run_id} --store {run.store.root}` writes it again."]
    return "\n".join(lines)


def metric_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """Return name and value of each metric of an evaluation or training; none for other stages.

    The value names limits of the data, such as a part of the training examples.
    """
    if not get_stage(manifest.stage).has_metrics:
        return []
    return [
        (name, "; ".join([format_statistic(name, value), *score_cut(name, manifest.statistics)]))
        for name, value in numeric_leaves(manifest.statistics).items()
        if not name.startswith("model.")
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(_plain(cell) for cell in row) + " |" for row in lines), ""]


def _plain(text: str) -> str:
    """Return a text that stays in its table cell and is not read as markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
