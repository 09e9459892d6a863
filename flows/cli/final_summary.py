"""The last lines of a run: what was built, what it shows, where that comes from, what to try next.

The most important result and the report's address come last, where a terminal shows them.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from flows.bert import stages
from flows.cli.next_commands import next_commands
from flows.formatting import align_columns, format_bytes, format_count, format_duration
from flows.lineage.graph import Node, collapsed, upstream_graph
from flows.recipes.loader import default_store
from flows.report.results import read_tables
from flows.report.run_steps import Built, Steps, collect_warnings
from flows.report.run_summary import find_headline
from flows.run.stages import get_stage
from flows.run.step_execution import StepResult
from flows.store.artifacts import ArtifactStore
from model.tables.document import Tables
from schemas.manifest import Manifest
from schemas.trial_names import entry_label

WIDTH = 110
"""Maximum number of characters of a line, except in names, paths and commands that are longer."""

LINES = 40
"""Maximum number of lines."""

_MAX_STEP_ROWS = 11
_MAX_LINEAGE_ROWS = 7
_MAX_WARNINGS = 3


def summary_lines(
    results: Sequence[StepResult],
    *,
    store: ArtifactStore,
    recipe: str,
    report: str,
    width: int = WIDTH,
) -> list[str]:
    """Return the last lines of a run.

    Args:
        results: Results of all steps, in their order.
        store: Store with the artifacts.
        recipe: Name of the recipe.
        report: URL of the run's report.
        width: Columns of the terminal.
    """
    width = min(width, WIDTH)
    steps = Steps((), tuple(Built(result.label, result.manifest) for result in results))
    tables = steps.last_of_type("tables")
    values = read_tables(store, tables.manifest) if tables else None
    evaluation = _find_evaluation(steps, values)
    source = evaluation or steps.built[-1]
    options = "" if store.root == default_store() else f"--store {_near(store.root)}"
    commands = next_commands(steps, evaluation, store=store, recipe=recipe, options=options)
    cached = sum(result.was_cached for result in results)
    count = format_count(len(results), "step")
    before = [
        f"{recipe}: {count}, {len(results) - cached:,} built, {cached:,} cached",
        "",
        *_step_rows(results, width),
        "",
    ]
    after = [
        f"lineage of {source.label}:",
        *_lineage_lines(source.manifest, store=store, width=width),
        "",
        f"try next{_activation()}:",
        *(f"  {command}" for command in commands),
        "",
        f"store: {_near(store.root)}",
        *_wrap(find_headline(steps, values), width),
        f"report: {_near(report)}",
    ]
    height = sum(-(-len(line) // width) or 1 for line in (*before, *after))
    messages = _message_lines(results, steps, values, width=width, max_lines=LINES - height - 1)
    return [*before, *messages, *([""] if messages else []), *after]


def _near(url: str) -> str:
    """Return a path relative to the working directory if it is below it."""
    return url.removeprefix(f"{Path.cwd()}/")


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3].rstrip(' ,')}..."


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False)


def _limit(lines: Sequence[str], max_lines: int, noun: str) -> list[str]:
    """Return the first lines, the last of which says how many are missing."""
    if len(lines) <= max_lines:
        return list(lines)
    shown = max(0, max_lines - 1)
    return [*lines[:shown], f"... and {len(lines) - shown:,} more {noun}: see the report"]


def _activation() -> str:
    """Return how to make `bertloom` a command, where the shell does not know it yet."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("bertloom") or not script.is_file():
        return ""
    return f" (after: source {_near(str(script))})"


def _find_evaluation(steps: Steps, tables: Tables | None) -> Built | None:
    """Return the evaluation of the first verdict, better ones first; by default the last one."""
    evaluations = {built.name: built for built in steps.of_type("evaluation")}
    verdicts = sorted(tables.verdicts if tables else (), key=lambda item: item.outcome != "better")
    named = (evaluations[item.first] for item in verdicts if item.first in evaluations)
    return next(named, None) or next(reversed(evaluations.values()), None)


# What was built


def _step_rows(results: Sequence[StepResult], width: int) -> list[str]:
    """Return a table of steps; trials of a grid, and stages with many steps, are one row each."""
    groups = {entry_label(result.label): list[StepResult]() for result in results}
    for result in results:
        groups[entry_label(result.label)].append(result)
    while len(groups) > _MAX_STEP_ROWS:
        by_stage: dict[str, list[str]] = defaultdict(list)
        for label in groups:
            by_stage[label.partition(".")[0]].append(label)
        stage = max(by_stage, key=lambda name: len(by_stage[name]))
        if len(by_stage[stage]) == 1:
            break
        merged = [result for label in by_stage[stage] for result in groups[label]]
        first = by_stage[stage][0]
        groups = {
            stage if label == first else label: merged if label == first else members
            for label, members in groups.items()
            if label == first or label not in by_stage[stage]
        }
    rows = [(label, _group_time(group), _group_summary(group)) for label, group in groups.items()]
    return [
        _cut(line, width) for line in align_columns([("step", "time", "holds"), *rows], right=(1,))
    ]


def _group_summary(group: Sequence[StepResult]) -> str:
    manifests = [result.manifest for result in group]
    entries = list(dict.fromkeys(entry_label(result.label) for result in group))
    stage = get_stage(manifests[0].stage)
    if len(entries) > 1:
        names = ", ".join(entry.partition(".")[2] for entry in entries)
        return f"{format_count(len(group), 'step')}: {names}"
    return stage.summary(manifests[0]) if len(group) == 1 else stage.summary_of(manifests)


def _group_time(group: Sequence[StepResult]) -> str:
    built = [result.seconds for result in group if not result.was_cached]
    return format_duration(sum(built)) if built else "cached"


# What it shows


def warning_lines(results: Sequence[StepResult]) -> list[str]:
    """Return a line for each warning of a step and for each problem of a training."""
    problems = [(result.label, result.warning) for result in results if result.warning]
    built = [Built(result.label, result.manifest) for result in results]
    problems += [(item.label, item.text) for item in collect_warnings(built)]
    return [f"warning: {label}: {text}" for label, text in dict.fromkeys(problems)]


def _message_lines(
    results: Sequence[StepResult],
    steps: Steps,
    tables: Tables | None,
    *,
    width: int,
    max_lines: int,
) -> list[str]:
    """Return verdicts, warnings and notes, as many as there is room for."""
    verdicts = [
        line for item in (tables.verdicts if tables else ()) for line in _wrap(item.sentence, width)
    ]
    notes = dict.fromkeys(
        f"note: {entry_label(built.label)}: {note}"
        for built in steps.built
        for note in built.manifest.notes
    )
    shown = [_cut(line, width) for line in warning_lines(results)]
    warnings = _limit(shown, _MAX_WARNINGS, "warnings")
    lines = _limit(verdicts, max_lines - len(warnings), "verdicts") + warnings
    if (room := max_lines - len(lines)) > 0:
        lines += _limit([_cut(note, width) for note in notes], room, "notes")
    return lines


# Where it comes from


def _lineage_lines(manifest: Manifest, *, store: ArtifactStore, width: int) -> list[str]:
    """Return one line per stage that an artifact was made by, and one for the raw files."""
    graph = upstream_graph([manifest], store=store, collapse=False)
    files = [node for node in graph.nodes.values() if node.raw_input is not None]
    by_stage: dict[str, list[Node]] = defaultdict(list)
    for node in collapsed(graph, keep={manifest.artifact_id}).nodes.values():
        if node.kind == "artifact":
            by_stage[node.manifest.stage if node.manifest else node.title].append(node)
    order = {stage: number for number, stage in enumerate(stages())}
    ordered = sorted(by_stage, key=lambda stage: -order.get(stage, -1))
    rows = [(stage, by_stage[stage][0].id, _nodes_text(by_stage[stage])) for stage in ordered]
    if len(rows) >= _MAX_LINEAGE_ROWS:
        rows, rest = rows[: _MAX_LINEAGE_ROWS - 2], rows[_MAX_LINEAGE_ROWS - 2 :]
        rows.append(("the corpus", rest[0][1], ", ".join(text for _, _, text in rest)))
    files.sort(key=lambda node: -node.size)
    names = ", ".join(f"{node.title} ({node.detail})" for node in files)
    rows.append(("raw files", format_bytes(sum(node.size for node in files)), names))
    return [_cut(f"  {line}", width) for line in align_columns(rows)]


def _nodes_text(nodes: Sequence[Node]) -> str:
    more = f", and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
    return f"{nodes[0].detail}{more}"
