"""What a run ends with: its results, where they came from and what to do next, on one screen.

Each step has had its line while it ran, and all that is left out here is in the report.
"""

from __future__ import annotations

import itertools
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flows.balances import balances
from flows.bert import stages
from flows.engine.stages import find_stage
from flows.engine.steps import StepResult
from flows.formats import byte_text, columns
from flows.lineage.graph import Node, collapsed, upstream_graph
from flows.lineage.rendering import node_line
from flows.recipes.files import default_store
from flows.report.results import read_tables
from flows.store.artifacts import ArtifactStore
from model import evaluate, pretrain, tabulate
from model.tables.filled_tables import FilledTable
from model.tables.grids import comparisons_grid, to_text, variants_grid
from model.tables.variant_comparisons import MEAN
from model.tasks import find_task
from model.tasks.cut_data import MARK
from pipelines import build_instances
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.stage import Stage
from schemas.trial_names import entry_label

WIDTH = 110
"""Characters of a line at most, but for names and paths that are longer."""

_LINES = 40
_ROWS, _PHASES, _COMPARED, _MARKED, _COUNTED, _FILES, _SWEPT = 12, 2, 6, 1, 7, 2, 2


class _Group(NamedTuple):
    """What is shown as one: the trials of a grid together, other steps alone."""

    label: str
    results: list[StepResult]

    @property
    def first(self) -> Manifest:
        return self.results[0].manifest

    def row(self) -> tuple[str, ...]:
        """(step, artifact, state, what it holds, size)."""
        built = sum(not result.was_cached for result in self.results)
        state = "built" if built == len(self.results) else f"{built} built" if built else "cached"
        manifests = [result.manifest for result in self.results]
        size = byte_text(sum(manifest.size for manifest in manifests))
        stage = find_stage(self.first.stage)
        if len(manifests) == 1:
            return self.label, self.first.artifact_id, state, stage.amount(self.first), size
        return self.label, "", state, stage.amounts(manifests), size


def screen_lines(
    results: Sequence[StepResult], *, store: ArtifactStore, recipe: str, report: str
) -> list[str]:
    """Some 40 lines, however many steps there were.

    Args:
        results: of all steps, in their order.
        store: where the artifacts are.
        recipe: the recipe's name.
        report: URL of the run's page, which has all of it.
    """
    groups = [
        _Group(label, list(found))
        for label, found in itertools.groupby(results, key=lambda one: entry_label(one.label))
    ]
    cached = sum(result.was_cached for result in results)
    tables = results[-1].manifest if _is_of(results[-1].manifest, tabulate.STAGE) else None
    # Tables only repeat the last number.
    last = [result for result in results if not _is_of(result.manifest, tabulate.STAGE)][-1]
    where = "" if store.root == default_store() else f" --store {_near(store.root)}"
    whole = f"all of it: bertloom lineage {last.manifest.artifact_id}{where}"
    blocks = [
        [f"{recipe}: {len(results):,} steps, {len(results) - cached:,} built, {cached:,} cached"],
        _result_rows(groups, has_tables=tables is not None),
        _table_lines(groups, tables, store=store) if tables else _counts(groups),
        [f"lineage of {last.label}, {whole}", *lineage_summary(last.manifest, store=store)],
        ["next:", *(f"  bertloom {line}{where}" for line in _next(results, last, recipe=recipe))],
        [
            f"store: {_near(store.root)}",
            *([f"tables: {_near(_text_url(tables, store))}"] if tables else []),
            f"report: {_near(report)}",
        ],
    ]
    room = _LINES - sum(len(block) + 1 for block in blocks if block)
    blocks.insert(3, _notes(groups, room=room - 1))
    return [line for block in blocks if block for line in ("", *block)][1:]


def _is_of(manifest: Manifest, stage: Stage) -> bool:
    return manifest.stage == stage.name


def _near(url: str) -> str:
    """A path below the folder one is in, as one would type it; any other as it is."""
    return url.removeprefix(f"{Path.cwd()}/")


def _some(lines: Sequence[str], limit: int, what: str) -> list[str]:
    """The first lines, and how many there are besides."""
    left = len(lines) - limit
    return [*lines[:limit], f"... and {left:,} more {what}"] if left > 0 else list(lines)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3].rstrip()}..."


def _result_rows(groups: Sequence[_Group], *, has_tables: bool) -> list[str]:
    """Steps with what they hold: beside tables only those of which the tables say nothing."""
    if has_tables:
        chosen = [group for group in groups if _is_of(group.first, pretrain.STAGE)]
    else:
        chosen = [group for group in groups if not _is_of(group.first, tabulate.STAGE)]
    limit = _PHASES if has_tables else _ROWS
    if not chosen:
        return []
    head = ("step", "artifact", "state", "holds", "size")
    lines = columns([head, *(group.row() for group in chosen[-limit:])], right=(4,))
    left = len(chosen) - limit
    return [*lines, f"... and {left:,} before: bertloom ls"] if left > 0 else lines


def _counts(groups: Sequence[_Group]) -> list[str]:
    """What went in, was kept and dropped."""
    rows = [
        (group.label, *item.row)
        for group in groups
        for item in balances(group.first.counters)
        if not item.source
    ]
    titles = ("step", "things", "in", "kept", "dropped", "")
    lines = columns([titles, *rows], right=(2, 3, 4)) if rows else []
    return [_cut(line) for line in _some(lines, _COUNTED, "counts: see the report")]


def _notes(groups: Sequence[_Group], *, room: int) -> list[str]:
    """Whole notes, as many as there is room for, but a line of the first at least."""
    results = [result for group in groups for result in group.results]
    noted = [f"warning, {result.label}: {result.warning}" for result in results if result.warning]
    for group in groups:
        notes = (note for result in group.results for note in result.manifest.notes)
        noted += [f"note, {group.label}: {note}" for note in dict.fromkeys(notes)]
    lines: list[str] = []
    for number, note in enumerate(noted):
        wrapped = textwrap.wrap(note, WIDTH, subsequent_indent="  ")
        if not lines and len(wrapped) > max(1, room):
            wrapped = [_cut(note)]
        is_last = number == len(noted) - 1
        if lines and len(lines) + len(wrapped) + (not is_last) > room:
            return [*lines, f"... and {len(noted) - number:,} more notes: see the report"]
        lines += wrapped
    return lines


# Tables


def _text_url(tables: Manifest, store: ArtifactStore) -> str:
    [entry] = [entry for entry in tables.files if entry.path == tabulate.TEXT_FILE]
    return store.url(f"{tables.data}/{entry.object}")


def _table_lines(groups: Sequence[_Group], tables: Manifest, *, store: ArtifactStore) -> list[str]:
    """How the variants of a sweep compare, or the entries of each task; else what each scored."""
    found = read_tables(store, tables)
    comparisons = found.comparisons
    if swept := [table for table in found.tables if table.axis and table.comparisons]:
        return [line for table in swept[:_SWEPT] for line in _variant_lines(table)]
    if not comparisons:
        scored = [group.row() for group in groups if _is_of(group.first, evaluate.STAGE)]
        lines = columns((label, holds) for label, _, _, holds, _ in scored)
        return _some(lines, _ROWS, "entries: see the tables")
    grid = comparisons_grid(comparisons)
    title, _, header, rule, *below = to_text([grid]).splitlines()
    marked = [_cut(note) for note in grid.notes if note.startswith(MARK)]
    return [
        title,
        header,
        rule,
        *_some(below[: len(comparisons)], _COMPARED, "comparisons: see the tables"),
        *_some(marked, _MARKED, "on cut-down data: see the tables"),
    ]


def _variant_lines(table: FilledTable) -> list[str]:
    """Of a table's variants: on the mean of its columns, where there are several, else on each."""
    means = [item for item in table.comparisons if item.column == MEAN]
    shown = table.model_copy(update={"comparisons": tuple(means or table.comparisons)})
    title, _, header, rule, *below = to_text([variants_grid(shown)]).splitlines()
    lines = _some(below[: len(shown.comparisons)], _COMPARED, "comparisons: see the tables")
    return [_cut(line) for line in (title, header, rule, *lines)]


# Lineage


def lineage_summary(manifest: Manifest, *, store: ArtifactStore) -> list[str]:
    """A line for each stage that an artifact came through, back to the raw files."""
    whole = upstream_graph([manifest], store=store, collapse=False)
    files = [node for node in whole.nodes.values() if node.raw_input is not None]
    by_stage: dict[str, list[Node]] = defaultdict(list)
    # Of a grid the trials that answer; files are counted before any are drawn as one.
    for node in collapsed(whole, keep={manifest.artifact_id}).nodes.values():
        if node.kind == "artifact":
            by_stage[node.manifest.stage if node.manifest else node.title].append(node)
    known = stages()
    order = [stage for stage in reversed(known) if stage in by_stage]
    order += [stage for stage in by_stage if stage not in known]  # of another version
    rows = [(f"  {stage}", _node_texts(by_stage[stage])) for stage in order]
    files.sort(key=lambda node: -(node.raw_input.size if node.raw_input else 0))
    shown = [_without_checksum(node_line(node)) for node in files]
    lines = [f"  {line}" for line in _some(shown, _FILES, "raw files")]
    return [_cut(line) for line in (*columns(rows), *lines)]


def _without_checksum(line: str) -> str:
    """A raw file's line with the kind of the checksum it was verified by, without the digits."""
    return f"{line.rpartition(' ')[0]})" if ", verified " in line else line


def _node_texts(nodes: Sequence[Node]) -> str:
    first, more = nodes[0], len(nodes) - 1
    return f"{first.id}  {first.detail}" + (f", and {more:,} more" if more else "")


# What to try next


def _next(results: Sequence[StepResult], last: StepResult, *, recipe: str) -> list[str]:
    """Commands on what was made, the newest kind of thing first; without their --store."""
    newest = {result.manifest.stage: result for result in results}
    lines = []
    if (evaluated := newest.get(evaluate.STAGE.name)) is not None:
        lines.append(f"predict {recipe}/{evaluated.label} {_question(evaluated.manifest)}")
    elif (trained := newest.get(pretrain.STAGE.name)) is not None:
        lines.append(f"finetune TASK --data FOLDER --checkpoint {recipe}/{trained.label}")
    if (instances := newest.get(build_instances.STAGE.name)) is not None:
        lines.append(f"head {recipe}/{instances.label} -n 1")
    return lines or [f"show {recipe}/{last.label}"]


def _question(manifest: Manifest) -> str:
    """What `predict` is to be given for the task of an evaluation."""
    try:
        task = find_task(str(manifest.statistics.get("task")))
    except ConfigError:  # of a task that is no more
        return "TEXT"
    if task.type == "span":
        return "TEXT --question QUESTION"
    if task.type == "choice":
        return "TEXT" + " --choice TEXT" * task.choices
    return "TEXT --pair TEXT" if task.is_pair else "TEXT"
