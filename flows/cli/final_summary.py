"""Summary of a finished run: steps, verdicts and warnings, one lineage, commands to try next.

The most important result and the address of the report come last, where a terminal shows them.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from flows.bert import stages
from flows.cli.options import relative, store_option
from flows.cli.tables import table
from flows.formatting import format_bytes, format_count, format_duration
from flows.lineage.graph import upstream_graph
from flows.quickstart.mask_prompts import held_out_prompts
from flows.report.results import read_tables
from flows.report.run_steps import Built, Steps, collect_warnings
from flows.report.run_summary import find_headline
from flows.run.stages import get_stage
from flows.run.step_execution import StepResult
from flows.store.artifacts import ArtifactStore
from model.tables.document import Tables
from schemas.manifest import Manifest
from schemas.trial_names import entry_label

MAX_MESSAGES = 5
_MAX_COMMANDS = 3


def summary_parts(
    results: Sequence[StepResult], *, store: ArtifactStore, recipe: str, report: str, seconds: float
) -> list[str | Table]:
    """Return the lines and tables that end a run.

    Args:
        results: Results of all steps, in their order.
        store: Store with the artifacts.
        recipe: Name of the recipe.
        report: URL of the run's report.
        seconds: Wall time of the run.
    """
    steps = Steps((), tuple(Built(result.label, result.manifest) for result in results))
    built_tables = steps.last_of_type("tables")
    tables = read_tables(store, built_tables.manifest) if built_tables else None
    source = _find_evaluation(steps, tables) or steps.built[-1]
    headline = find_headline(steps, tables)
    messages = warning_lines(results)
    sentences = [verdict.sentence for verdict in tables.verdicts] if tables else []
    messages += [sentence for sentence in sentences if sentence != headline]
    messages += dict.fromkeys(
        f"note: {entry_label(built.label)}: {note}"
        for built in steps.built
        for note in built.manifest.notes
    )
    if rest := len(messages[MAX_MESSAGES:]):
        messages[MAX_MESSAGES:] = [f"... and {rest:,} more: see the report"]
    notes: list[str | Table] = [_wrapped(messages), ""] if messages else []
    return [
        f"\n{count_line(results, recipe=recipe, seconds=seconds)}\n",
        table(("step", "time", "contents"), _step_rows(results), right=(1,), wrap=False),
        "",
        *notes,
        f"lineage of {source.label}:",
        table(("", "", ""), _lineage_rows(source.manifest, store=store), wrap=False),
        f"\ntry next{_activation()}:",
        *(f"  {command}" for command in _next_commands(steps, source, store, recipe)),
        f"\nstore: {relative(store.root)}",
        _wrapped([headline]),
        f"report: {relative(report)}",
    ]


def count_line(results: Sequence[StepResult], *, recipe: str, seconds: float) -> str:
    """Return the numbers of steps of a run that took `seconds` of wall time."""
    cached = sum(result.was_cached for result in results)
    return (
        f"{recipe}: {format_count(len(results), 'step')}, {len(results) - cached:,} built, "
        f"{cached:,} cached, in {format_duration(seconds)}"
    )


def _wrapped(lines: Sequence[str]) -> Table:
    """Return lines that a terminal breaks between words."""
    return table(("",), [(line,) for line in lines], wrap=True)


def warning_lines(results: Sequence[StepResult]) -> list[str]:
    """Return a line for each warning of a step and for each problem of a training."""
    warnings = [(result.label, result.warning) for result in results if result.warning]
    built = [Built(result.label, result.manifest) for result in results]
    warnings += [(item.label, item.text) for item in collect_warnings(built)]
    return [f"warning: {label}: {text}" for label, text in dict.fromkeys(warnings)]


def _activation() -> str:
    """Return how to make `bertloom` a command if the shell does not know it."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("bertloom") or not script.is_file():
        return ""
    return f" (after: source {relative(str(script))})"


def _next_commands(steps: Steps, source: Built, store: ArtifactStore, recipe: str) -> list[str]:
    """Return commands about the artifacts of a run, most interesting first."""
    commands = [f"lineage {recipe}/{source.label}"]
    phase = steps.last_of_type("checkpoint")
    if phase and (prompts := held_out_prompts(store.artifact(phase.manifest), limit=1)):
        text = shlex.quote(prompts[0].text)
        commands.insert(0, f"fill {text} --model {recipe}/{phase.label}")
    rows = (steps.last_of_type(name) for name in ("instances", "tokens", "documents"))
    if built := next(filter(None, rows), None):
        commands += [f"trace {recipe}/{built.label}:0", f"head {recipe}/{built.label} -n 1"]
    commands.append(f"show {recipe}/{source.label}")
    return [f"bertloom {command}{store_option(store.root)}" for command in commands[:_MAX_COMMANDS]]


def _find_evaluation(steps: Steps, tables: Tables | None) -> Built | None:
    """Return the evaluation of the best verdict. Default: the last evaluation."""
    evaluations = {built.name: built for built in steps.of_type("evaluation")}
    verdicts = sorted(tables.verdicts if tables else (), key=lambda item: item.outcome != "better")
    first = next((evaluations[v.first] for v in verdicts if v.first in evaluations), None)
    return first or next(reversed(evaluations.values()), None)


def _step_rows(results: Sequence[StepResult]) -> list[tuple[str, ...]]:
    """Return label, time and contents of each stage."""
    groups: dict[str, list[StepResult]] = defaultdict(list)
    for result in results:
        groups[result.manifest.stage].append(result)
    rows: list[tuple[str, ...]] = []
    for name, group in groups.items():
        stage, manifests = get_stage(name), [result.manifest for result in group]
        entries = list(dict.fromkeys(entry_label(result.label) for result in group))
        seconds = [result.seconds for result in group if not result.was_cached]
        if len(entries) > 1:
            names = ", ".join(entry.partition(".")[2] for entry in entries)
            contents = f"{format_count(len(group), 'step')}: {names}"
        else:
            is_single = len(group) == 1
            contents = stage.summary(manifests[0]) if is_single else stage.summary_of(manifests)
        label = entries[0] if len(entries) == 1 else name
        rows.append((label, format_duration(sum(seconds)) if seconds else "cached", contents))
    return rows


def _lineage_rows(manifest: Manifest, *, store: ArtifactStore) -> list[tuple[str, ...]]:
    """Return stage, artifact and contents of each upstream stage, then the raw files."""
    nodes = upstream_graph([manifest], store=store).nodes.values()
    rows: list[tuple[str, ...]] = []
    for stage in reversed(list(stages())):
        matches = [node for node in nodes if node.manifest and node.manifest.stage == stage]
        if matches:
            more = f", and {len(matches) - 1:,} more" if len(matches) > 1 else ""
            rows.append((f"  {stage}", matches[0].id, f"{matches[0].detail}{more}"))
    files = [node for node in nodes if node.kind == "file"]
    names = ", ".join(f"{node.title} ({node.detail})" for node in files)
    rows.append(("  raw files", format_bytes(sum(node.size for node in files)), names))
    return rows
