"""What a run ends with: its results, where they came from and what to do next, on one screen.

Each step has had its line while it ran, and all that is left out here is in the report.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from flows.engine.graph import stages
from flows.engine.steps import StepResult
from flows.formats import columns
from flows.lineage.graph import Node, collapsed, upstream_graph
from flows.lineage.rendering import node_line
from flows.recipes.files import default_store
from flows.show import balance_rows, grouped, note_lines, summary_rows
from flows.store.artifacts import ArtifactStore
from model.tasks.cut_data import MARK
from schemas.manifest import Manifest

WIDTH = 110
"""Characters of a line at most, but for names and paths that are longer."""

_LINES = 40
_ROWS, _PHASES, _COMPARED, _MARKED, _COUNTED, _FILES = 12, 2, 6, 1, 7, 2
_COMPARISONS = "Entries on the same task"
_TABLES_FILE = "tables.txt"


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
    cached = sum(result.was_cached for result in results)
    tables = _tables(results, store=store)
    where = "" if store.root == default_store() else f" --store {_near(store.root)}"
    last = last_number(results)
    whole = f"all of it: bertloom lineage {last.manifest.artifact_id}{where}"
    blocks = [
        [f"{recipe}: {len(results):,} steps, {len(results) - cached:,} built, {cached:,} cached"],
        _result_rows(results, has_tables=bool(tables)),
        tables or _counts(results),
        [f"lineage of {last.label}, {whole}", *lineage_summary(last.manifest, store=store)],
        ["next:", *(f"  bertloom {line}{where}" for line in _next(results, recipe=recipe))],
        [
            f"store: {_near(store.root)}",
            *_table_files(results, store=store),
            f"report: {_near(report)}",
        ],
    ]
    room = _LINES - sum(len(block) + 1 for block in blocks if block)
    blocks.insert(3, _notes(results, room=room - 1))
    return [line for block in blocks if block for line in ("", *block)][1:]


def last_number(results: Sequence[StepResult]) -> StepResult:
    """The result that the last number is of: tables only repeat it."""
    made = [result for result in results if result.manifest.stage != "tabulate"]
    return made[-1]


def _some(lines: Sequence[str], limit: int, what: str) -> list[str]:
    """The first lines, and how many there are besides."""
    left = len(lines) - limit
    return [*lines[:limit], f"... and {left:,} more {what}"] if left > 0 else list(lines)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3].rstrip()}..."


def _notes(results: Sequence[StepResult], *, room: int) -> list[str]:
    """Whole notes, as many as there is room for, but a line of the first at least."""
    noted = [textwrap.wrap(line, WIDTH, subsequent_indent="  ") for line in note_lines(results)]
    if noted and len(noted[0]) > max(1, room):
        noted[0] = [_cut(note_lines(results)[0])]
    lines: list[str] = []
    for number, wrapped in enumerate(noted):
        is_last = number == len(noted) - 1
        if lines and len(lines) + len(wrapped) + (not is_last) > room:
            return [*lines, f"... and {len(noted) - number:,} more notes: see the report"]
        lines += wrapped
    return lines


def _counts(results: Sequence[StepResult]) -> list[str]:
    """What went in, was kept and dropped."""
    rows = [
        (name, *row)
        for name, group in grouped(results)
        for row in balance_rows(group[0].manifest.counters)
    ]
    titles = ("step", "things", "in", "kept", "dropped", "")
    lines = columns([titles, *rows], right=(2, 3, 4)) if rows else []
    return [_cut(line) for line in _some(lines, _COUNTED, "counts: see the report")]


def _near(url: str) -> str:
    """A path below the folder one is in, as one would type it; any other as it is."""
    return url.removeprefix(f"{Path.cwd()}/")


def _result_rows(results: Sequence[StepResult], *, has_tables: bool) -> list[str]:
    """Steps with what they hold: beside tables only those of which the tables say nothing."""
    chosen = [group for group in grouped(results) if group[1][0].manifest.stage != "tabulate"]
    limit = _ROWS
    if has_tables:
        chosen = [group for group in chosen if group[1][0].manifest.stage == "pretrain"]
        limit = _PHASES
    if not chosen:
        return []
    lines = columns(
        [("step", "artifact", "state", "holds", "size"), *summary_rows(chosen[-limit:])],
        right=(4,),
    )
    left = len(chosen) - limit
    return [*lines, f"... and {left:,} before: bertloom ls"] if left > 0 else lines


# Tables


def _tabulated(results: Sequence[StepResult]) -> Manifest | None:
    last = results[-1].manifest
    return last if last.stage == "tabulate" else None


def _url(manifest: Manifest, name: str) -> str:
    (entry,) = [entry for entry in manifest.files if entry.path == name]
    return f"{manifest.data}/{entry.object}"


def _tables(results: Sequence[StepResult], *, store: ArtifactStore) -> list[str]:
    """How the entries of each task compare, else what each of them scored."""
    tabulated = _tabulated(results)
    if tabulated is None:
        return []
    text = store.backend.read(_url(tabulated, _TABLES_FILE)).decode().splitlines()
    if _COMPARISONS in text:
        start = text.index(_COMPARISONS)
        title, _, header, rule, *below = text[start:]
        rows = below[: below.index("")]
        marked = [line for line in _until_blank(below[len(rows) + 1 :]) if line.startswith(MARK)]
        return [
            title,
            header,
            rule,
            *_some(rows, _COMPARED, "comparisons: see the tables"),
            *_some([_cut(line) for line in marked], _MARKED, "on cut-down data: see the tables"),
        ]
    scored = [group for group in grouped(results) if group[1][0].manifest.stage == "evaluate"]
    lines = columns((name, holds) for name, _, _, holds, _ in summary_rows(scored))
    return _some(lines, _ROWS, "entries: see the tables")


def _until_blank(lines: Sequence[str]) -> Iterable[str]:
    return lines[: lines.index("")] if "" in lines else lines


def _table_files(results: Sequence[StepResult], *, store: ArtifactStore) -> list[str]:
    tabulated = _tabulated(results)
    if tabulated is None:
        return []
    return [f"tables: {_near(store.url(_url(tabulated, _TABLES_FILE)))}"]


# Lineage


def lineage_summary(manifest: Manifest, *, store: ArtifactStore) -> list[str]:
    """A line for each stage that an artifact came through, back to the raw files."""
    whole = upstream_graph([manifest], store=store, collapse=False)
    files = [node for node in whole.nodes.values() if node.raw_input is not None]
    by_stage: dict[str, list[Node]] = defaultdict(list)
    # Of a grid the cells that answer; files are counted before any are drawn as one.
    for node in collapsed(whole, keep={manifest.artifact_id}).nodes.values():
        if node.kind == "artifact":
            by_stage[node.manifest.stage if node.manifest else node.title].append(node)
    order = [stage for stage in reversed(stages()) if stage in by_stage]
    order += [stage for stage in by_stage if stage not in stages()]  # of another version
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


def _next(results: Sequence[StepResult], *, recipe: str) -> list[str]:
    """Commands on what was made, the newest kind of thing first; without their --store."""
    last: dict[str, StepResult] = {result.manifest.stage: result for result in results}
    lines = []
    if (evaluated := last.get("evaluate")) is not None:
        lines.append(f"predict {recipe}/{evaluated.label} {_question(evaluated.manifest)}")
    elif (trained := last.get("pretrain")) is not None:
        lines.append(f"finetune TASK --data FOLDER --checkpoint {recipe}/{trained.label}")
    if (instances := last.get("build-instances")) is not None:
        lines.append(f"head {recipe}/{instances.label} -n 1")
    return lines or [f"show {recipe}/{last_number(results).label}"]


def _question(manifest: Manifest) -> str:
    """What `predict` is to be given for the task of an evaluation."""
    from model.tasks import find_task  # Arrow takes a while to load
    from schemas.errors import ConfigError

    try:
        task = find_task(str(manifest.statistics.get("task")))
    except ConfigError:  # of a task that is no more
        return "TEXT"
    if task.kind == "span":
        return "TEXT --question QUESTION"
    if task.kind == "choice":
        return "TEXT" + " --choice TEXT" * task.choices
    return "TEXT --pair TEXT" if task.is_pair else "TEXT"
