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
from flows.formats import byte_text, columns, counted
from flows.lineage.graph import Node, collapsed, upstream_graph
from flows.lineage.rendering import node_line
from flows.recipes.files import default_store
from flows.report.results import read_tables
from flows.store.artifacts import ArtifactStore
from model import evaluate, pretrain, tabulate
from model.tables.filled_tables import FilledTable
from model.tables.grids import Grid, comparisons_grid, to_text, variants_grid
from model.tables.variant_comparisons import MEAN
from model.tasks import find_task
from model.tasks.cut_data import MARK
from pipelines import build_instances
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.stage import Stage
from schemas.trial_names import entry_label

WIDTH, LINES = 110, 40
"""Characters of a line at most, but for names and paths that are longer, and lines in all, where
nobody says how large a terminal is."""


class _Limits(NamedTuple):
    """How much of each is shown."""

    width: int = WIDTH
    lines: int = LINES
    rows: int = 12
    phases: int = 2
    compared: int = 6
    marked: int = 1
    counted: int = 7
    files: int = 2
    swept: int = 2
    stages: int = 20
    gap: int = 1
    """Empty lines between blocks."""

    @classmethod
    def of(cls, width: int, lines: int) -> _Limits:
        """For a terminal: the prompt is to have a line, too."""
        if lines > LINES:
            return cls(width)
        return cls(
            width,
            lines - 1,
            rows=4,
            phases=1,
            compared=2,
            marked=0,
            counted=3,
            files=0,
            swept=1,
            stages=0,
            gap=0,
        )


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
    results: Sequence[StepResult],
    *,
    store: ArtifactStore,
    recipe: str,
    report: str,
    size: tuple[int, int] = (WIDTH, LINES + 1),
) -> list[str]:
    """Some 40 lines, however many steps there were, or those that a smaller terminal has.

    Args:
        results: of all steps, in their order.
        store: where the artifacts are.
        recipe: the recipe's name.
        report: URL of the run's page, which has all of it.
        size: columns and lines of the terminal.
    """
    limits = _Limits.of(*size)
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
        [
            f"{recipe}: {counted(len(results), 'step')}, {len(results) - cached:,} built, "
            f"{cached:,} cached"
        ],
        _result_rows(groups, limits, has_tables=tables is not None),
        _table_lines(groups, limits, tables, store=store) if tables else _counts(groups, limits),
        [
            f"lineage of {last.label}, {whole}",
            *(_lineage_lines(last.manifest, limits, store=store) if limits.stages else []),
        ],
        ["next:", *(f"  bertloom {line}{where}" for line in _next(results, last, recipe=recipe))],
        [
            f"store: {_near(store.root)}",
            *([f"tables: {_near(_text_url(tables, store))}"] if tables else []),
            f"report: {_near(report)}",
        ],
    ]
    height = sum(-(-len(line) // limits.width) or 1 for block in blocks for line in block)
    room = limits.lines - height - limits.gap * sum(map(bool, blocks))
    if room > 0 or limits.gap:
        blocks.insert(3, _notes(groups, limits.width, room=room - 1))
    spaced = [line for block in blocks if block for line in (*[""] * limits.gap, *block)]
    return spaced[limits.gap :]


def _is_of(manifest: Manifest, stage: Stage) -> bool:
    return manifest.stage == stage.name


def _near(url: str) -> str:
    """A path below the folder one is in, as one would type it; any other as it is."""
    return url.removeprefix(f"{Path.cwd()}/")


def _some(lines: Sequence[str], limit: int, what: str) -> list[str]:
    """The first lines, and how many there are besides."""
    left = len(lines) - limit
    return [*lines[:limit], f"... and {left:,} more {what}"] if left > 0 else list(lines)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def _result_rows(groups: Sequence[_Group], limits: _Limits, *, has_tables: bool) -> list[str]:
    """Steps with what they hold: beside tables only those of which the tables say nothing."""
    if has_tables:
        chosen = [group for group in groups if _is_of(group.first, pretrain.STAGE)]
    else:
        chosen = [group for group in groups if not _is_of(group.first, tabulate.STAGE)]
    limit = limits.phases if has_tables else limits.rows
    if not chosen:
        return []
    head: tuple[str, ...] = ("step", "artifact", "state", "holds", "size")
    rows = [group.row() for group in chosen[-limit:]]
    if limits.width < WIDTH:  # the step is a name of the artifact, too
        head, rows = (head[0], head[3], head[2]), [(row[0], row[3], row[2]) for row in rows]
    lines = [_cut(line, limits.width) for line in columns([head, *rows], right=(4,))]
    left = len(chosen) - limit
    return [*lines, f"... and {left:,} before: bertloom ls"] if left > 0 else lines


def _counts(groups: Sequence[_Group], limits: _Limits) -> list[str]:
    """What went in, was kept and dropped."""
    rows = [
        (group.label, *item.row)
        for group in groups
        for item in balances(group.first.counters)
        if not item.source
    ]
    titles = ("step", "things", "in", "kept", "dropped", "")
    lines = columns([titles, *rows], right=(2, 3, 4)) if rows else []
    shown = _some(lines, limits.counted, "counts: see the report")
    return [_cut(line, limits.width) for line in shown]


def _notes(groups: Sequence[_Group], width: int, *, room: int) -> list[str]:
    """Whole notes, as many as there is room for, but a line of the first at least."""
    results = [result for group in groups for result in group.results]
    noted = [f"warning, {result.label}: {result.warning}" for result in results if result.warning]
    for group in groups:
        notes = (note for result in group.results for note in result.manifest.notes)
        noted += [f"note, {group.label}: {note}" for note in dict.fromkeys(notes)]
    lines: list[str] = []
    for number, note in enumerate(noted):
        wrapped = textwrap.wrap(note, width, subsequent_indent="  ")
        if not lines and len(wrapped) > max(1, room):
            wrapped = [_cut(note, width)]
        is_last = number == len(noted) - 1
        if lines and len(lines) + len(wrapped) + (not is_last) > room:
            return [*lines, f"... and {len(noted) - number:,} more notes: see the report"]
        lines += wrapped
    return lines


# Tables


def _text_url(tables: Manifest, store: ArtifactStore) -> str:
    [entry] = [entry for entry in tables.files if entry.path == tabulate.TEXT_FILE]
    return store.url(f"{tables.data}/{entry.object}")


def _table_lines(
    groups: Sequence[_Group], limits: _Limits, tables: Manifest, *, store: ArtifactStore
) -> list[str]:
    """How the variants of a sweep compare, or the entries of each task; else what each scored."""
    found = read_tables(store, tables)
    comparisons = found.comparisons
    if swept := [table for table in found.tables if table.axis and table.comparisons]:
        return [line for table in swept[: limits.swept] for line in _variant_lines(table, limits)]
    if not comparisons:
        scored = [group.row() for group in groups if _is_of(group.first, evaluate.STAGE)]
        lines = columns((label, holds) for label, _, _, holds, _ in scored)
        lines = [_cut(line, limits.width) for line in lines]
        return _some(lines, limits.rows, "entries: see the tables")
    grid = _narrowed(comparisons_grid(comparisons), limits.width)
    title, _, header, rule, *below = to_text([grid]).splitlines()
    marked = [_cut(note, limits.width) for note in grid.notes if note.startswith(MARK)]
    return [
        title,
        header,
        rule,
        *_some(below[: len(comparisons)], limits.compared, "comparisons: see the tables"),
        *_some(marked, limits.marked, "on cut-down data: see the tables"),
    ]


def _narrowed(grid: Grid, width: int) -> Grid:
    """A table without the columns that it says least by, as far as it has to be."""
    has_all = True
    for name in _DROPPED:
        if max(map(len, to_text([grid]).splitlines()[2:4])) <= width:
            break
        if name in grid.header:
            at = grid.header.index(name)
            groups = tuple(
                tuple((*row[:at], *row[at + 1 :]) for row in rows) for rows in grid.groups
            )
            header = (*grid.header[:at], *grid.header[at + 1 :])
            texts = grid.texts - (at < grid.texts)
            grid = grid._replace(header=header, groups=groups, texts=texts)
            has_all = False
    return grid if has_all else grid._replace(title=f"{grid.title} (the tables have more columns)")


_DROPPED = ("runs", "task", "better mean", "other mean", "metric", "with", "column", "p")
"""Columns that a narrow terminal is not shown, in their order."""


def _variant_lines(table: FilledTable, limits: _Limits) -> list[str]:
    """Of a table's variants: on the mean of its columns, where there are several, else on each."""
    means = [item for item in table.comparisons if item.column == MEAN]
    shown = table.model_copy(update={"comparisons": tuple(means or table.comparisons)})
    title, _, header, rule, *below = to_text(
        [_narrowed(variants_grid(shown), limits.width)]
    ).splitlines()
    lines = _some(below[: len(shown.comparisons)], limits.compared, "comparisons: see the tables")
    return [_cut(line, limits.width) for line in (title, header, rule, *lines)]


# Lineage


def _lineage_lines(manifest: Manifest, limits: _Limits, *, store: ArtifactStore) -> list[str]:
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
    lines = [f"  {line}" for line in _some(shown, limits.files, "raw files")]
    return [_cut(line, limits.width) for line in (*columns(rows), *lines)]


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
