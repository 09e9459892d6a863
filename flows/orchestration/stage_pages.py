"""An artifact in Markdown, for pages that draw it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flows.engine.running import StepRef
from flows.engine.stages import amount, find_stage
from flows.formats import balance_rows, byte_text, time_text
from flows.store.artifacts import ArtifactStore
from model.amounts import score_cut
from schemas.manifest import Manifest

_SHOWN_VALUES = 40


def stage_markdown(ref: StepRef, manifest: Manifest, *, store: ArtifactStore, run_id: str) -> str:
    """What a step made, what it dropped and why, and what it was made from."""
    from flows.lineage.graph import upstream_graph
    from flows.lineage.rendering import mermaid_text

    made = "found, made by another run" if ref.was_cached else f"built in {time_text(ref.seconds)}"
    lines = [
        f"**{ref.label}**: {amount(manifest)}, {byte_text(manifest.size)} in "
        f"{len(manifest.files):,} files, {made}.",
        "",
        *(f"> {_plain(note)}\n" for note in manifest.notes),
    ]
    if ref.warning:
        lines += [f"> **Warning**: {_plain(ref.warning)}", ""]
    if rows := balance_rows(manifest.counters):
        lines += _table(("things", "in", "kept", "dropped", "why"), rows)
    if values := _leaves(manifest.statistics):
        lines += _table(("statistic", "value"), [(name, _text(v)) for name, v in values])
    lines += ["```mermaid", mermaid_text(upstream_graph([manifest], store=store)), "```", ""]
    lines += [
        f"`bertloom show {manifest.artifact_id}` tells more, "
        f"`bertloom lineage {manifest.artifact_id}` what it was made from. "
        f"Run `{run_id}`, store `{store.root}`, folder `{manifest.location}`.",
    ]
    return "\n".join(lines)


def metric_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """The numbers that a stage is run for, a row each; none for stages that prepare data."""
    if not find_stage(manifest.stage).has_metrics:
        return []
    rows: list[dict[str, Any]] = []
    for name, value in _numbers(manifest.statistics):
        if name.startswith("model."):
            continue
        cut = "; ".join(score_cut(name, manifest.statistics))
        rows.append({"metric": name, "value": value, **({"not given": cut} if cut else {})})
    return rows


def _numbers(statistics: dict[str, Any]) -> Iterator[tuple[str, int | float]]:
    for name, value in _leaves(statistics):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, value


def _leaves(values: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """Single values by their dotted names, the first of them."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += _leaves(value, f"{path}{name}.")
        elif not isinstance(value, (list, tuple)):
            found.append((f"{path}{name}", value))
    return found[:_SHOWN_VALUES]


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
