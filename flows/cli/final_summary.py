"""Summary of a finished run: steps, warnings, verdicts, the lineage of one number, the report.

The most important result and the address of the report come last, where a terminal shows them.
"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from flows.cli.options import relative, store_option
from flows.cli.tables import table
from flows.formatting import format_bytes, format_count, format_duration
from flows.lineage.graph import upstream_graph
from flows.report.headline import find_headline
from flows.report.results import read_tables
from flows.report.run_steps import Built, Steps, collect_warnings
from flows.run.stages import STAGES, get_stage
from flows.run.step_execution import StepResult
from flows.store.artifacts import ArtifactStore
from model.tables.render import Tables
from schemas.manifest import Manifest
from schemas.trial_names import entry_label

MAX_MESSAGES = 5

_SAMPLES = ("sample", "sample-full")
_SAMPLE_COMMANDS = {
    "pretrain.phase-2": "fill 'Soup was [MASK] and tasty.' --model {step}",
    "evaluate.sst-2": "lineage {step}",
    "build-instances.length-32": "trace {step}:0",
}
"""Commands to try after a run of the sample, by the step that they need."""


def summary_parts(
    results: Sequence[StepResult], *, store: ArtifactStore, recipe: str, report: str, seconds: float
) -> list[str | Table]:
    """Return the lines and tables that end a run.

    Args:
        results: Results of all steps, in their order.
        store: Store with the artifacts.
        recipe: Name of the recipe.
        report: URL of the run's report; "" if it was not written.
        seconds: Wall time of the run.
    """
    steps = Steps((), tuple(Built(result.label, result.manifest) for result in results))
    built_tables = steps.last_of_type("tables")
    tables = read_tables(store, built_tables.manifest) if built_tables else None
    headline = find_headline(steps, tables)
    messages = warning_lines(results)
    verdicts = tables.verdicts if tables else ()
    messages += [verdict.sentence for verdict in verdicts if verdict.sentence != headline]
    messages += dict.fromkeys(
        f"note: {entry_label(built.label)}: {note}"
        for built in steps.built
        for note in built.manifest.notes
    )
    if rest := len(messages[MAX_MESSAGES:]):
        messages[MAX_MESSAGES:] = [f"... and {rest:,} more: see the report"]
    notes: list[str | Table] = [_wrapped(messages), ""] if messages else []
    source = _find_evaluation(steps, tables) or steps.built[-1]
    return [
        f"\n{count_line(results, recipe=recipe, seconds=seconds)}\n",
        table(("step", "time", "contents"), _step_rows(results), right=(1,), wrap=False),
        "",
        *notes,
        f"lineage of {source.label}:",
        table(("", "", ""), _lineage_rows(source.manifest, store=store), wrap=False),
        "",
        *_sample_commands(results, store=store, recipe=recipe),
        f"store: {relative(store.root)}",
        _wrapped([headline]),
        report_line(report),
    ]


def report_line(report: str) -> str:
    """Return the line that names the report of a run; "" if it was not written."""
    return f"report: {relative(report) if report else 'not written, see the warning above'}"


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


def _sample_commands(
    results: Sequence[StepResult], *, store: ArtifactStore, recipe: str
) -> list[str]:
    """Return commands to try after a run of a packaged sample."""
    commands = [
        f"  bertloom {command.format(step=f'{recipe}/{label}')}{store_option(store.root)}"
        for label, command in _SAMPLE_COMMANDS.items()
        if recipe in _SAMPLES and any(result.label == label for result in results)
    ]
    return [f"try next{_activation()}:", *commands, ""] if commands else []


def _activation() -> str:
    """Return how to make `bertloom` a command if the shell does not know it."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("bertloom") or not script.is_file():
        return ""
    return f" (after: source {relative(str(script))})"


def _find_evaluation(steps: Steps, tables: Tables | None) -> Built | None:
    """Return the evaluation of the first verdict about one. Default: the last evaluation."""
    evaluations = {built.name: built for built in steps.of_type("evaluation")}
    named = [verdict.test.first for verdict in tables.verdicts] if tables else []
    return next(
        (evaluations[name] for name in [*named, *reversed(evaluations)] if name in evaluations),
        None,
    )


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
        if len(group) == 1:
            contents = stage.summary(manifests[0])
        elif stage.summarize_many:
            contents = stage.summary_of(manifests)
        else:
            names = ", ".join(entry.partition(".")[2] for entry in entries)
            contents = f"{format_count(len(group), 'step')}: {names}"
        label = entries[0] if len(entries) == 1 else name
        rows.append((label, format_duration(sum(seconds)) if seconds else "cached", contents))
    return rows


def _lineage_rows(manifest: Manifest, *, store: ArtifactStore) -> list[tuple[str, ...]]:
    """Return stage, artifact and contents of each upstream stage, then the raw files."""
    nodes = upstream_graph([manifest], store=store).nodes.values()
    rows: list[tuple[str, ...]] = []
    for stage in reversed(list(STAGES)):
        matches = [node for node in nodes if node.manifest and node.manifest.stage == stage]
        if matches:
            more = f", and {len(matches) - 1:,} more" if len(matches) > 1 else ""
            rows.append((f"  {stage}", matches[0].id, f"{matches[0].detail}{more}"))
    files = [node for node in nodes if node.kind == "file" or node.members == "files"]
    names = ", ".join(f"{node.title} ({node.detail})" for node in files)
    rows.append(("  raw files", format_bytes(sum(node.size for node in files)), names))
    return rows
