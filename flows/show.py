"""Manifests and results as lines of plain text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flows.engine.stages import amount, find_stage
from flows.formats import byte_text, columns, time_text
from schemas.manifest import FileEntry, Manifest
from schemas.stage import entry_label

if TYPE_CHECKING:
    from flows.engine.steps import StepResult

_SHOWN_FILES = 20


def shards(manifest: Manifest) -> list[FileEntry]:
    """The files that hold the artifact's own table, in order."""
    return [entry for entry in manifest.files if entry.path.startswith("part-")]


def step_line(result: StepResult) -> str:
    """What became of a step, in one line."""
    took = time_text(result.seconds)
    state = "cached" if result.was_cached else f"built in {took}"
    manifest = result.manifest
    reuse = manifest.produced_by.reuse
    taken = ""
    if reuse is not None and reuse.pieces_reused and not result.was_cached:
        share = reuse.work_reused / reuse.work if reuse.work else 1.0
        taken = f", {reuse.pieces_reused:,} of {reuse.pieces:,} pieces reused ({share:.0%} of work)"
    return f"{result.label:<28}  {state:<20}  {manifest.artifact_id}  {amount(manifest)}{taken}"


def grouped(results: Sequence[StepResult]) -> Iterator[tuple[str, list[StepResult]]]:
    """Results by what a summary shows as one: the cells of a grid together, others alone."""
    for name, group in itertools.groupby(results, key=lambda result: entry_label(result.label)):
        yield name, list(group)


def summary_rows(groups: Iterable[tuple[str, Sequence[StepResult]]]) -> list[tuple[str, ...]]:
    """(step, artifact, state, what it holds, size) of each group of `grouped`."""
    return [_summary_row(name, group) for name, group in groups]


def _summary_row(name: str, group: Sequence[StepResult]) -> tuple[str, ...]:
    first = group[0].manifest
    built = sum(not result.was_cached for result in group)
    state = "built" if built == len(group) else f"{built} built" if built else "cached"
    size = byte_text(sum(result.manifest.size for result in group))
    if len(group) == 1:
        return name, first.artifact_id, state, amount(first), size
    return name, "", state, find_stage(first.stage).amounts([r.manifest for r in group]), size


def note_lines(results: Sequence[StepResult]) -> list[str]:
    """What the steps of a run have to say besides, warnings first."""
    warnings = [f"warning, {r.label}: {r.warning}" for r in results if r.warning]
    notes = [
        f"note, {name}: {note}"
        for name, group in grouped(results)
        for note in dict.fromkeys(note for result in group for note in result.manifest.notes)
    ]
    return warnings + notes


def balance_rows(counters: Mapping[str, int], *, suffix: str = "") -> list[tuple[str, ...]]:
    """(things, in, kept, dropped, reasons) for all things that `counters` has both ends of.

    Args:
        counters: by name, see `pipelines.counters`.
        suffix: `@SOURCE` for the counts of one source; without it those of all are taken.
    """
    own = {
        name.removesuffix(suffix): value
        for name, value in counters.items()
        if (name.endswith(suffix) if suffix else "@" not in name)
    }
    rows: list[tuple[str, ...]] = []
    for name, went_in in own.items():
        things = name.removesuffix("-in")
        if things == name or f"{things}-kept" not in own:
            continue
        prefix = f"{things}-dropped-"
        reasons = {key.removeprefix(prefix): n for key, n in own.items() if key.startswith(prefix)}
        listed = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        why = ", ".join(f"{reason} {number:,}" for reason, number in listed if number)
        kept, dropped = own[f"{things}-kept"], sum(reasons.values())
        rows.append((things, f"{went_in:,}", f"{kept:,}", f"{dropped:,}", why))
    return rows


def artifact_lines(manifest: Manifest, *, root: str, all_files: bool = False) -> list[str]:
    """Everything about an artifact that a person asks for first."""
    made = manifest.produced_by
    dirty = ", with uncommitted changes" if made.git_dirty else ""
    facts = [
        ("artifact", manifest.artifact_id),
        ("stage", f"{manifest.stage} (version {manifest.stage_version})"),
        ("holds", f"{amount(manifest)}, {byte_text(manifest.size)}"),
        ("content", manifest.content),
        ("rows", manifest.logical_content or "(no table)"),
        ("cache key", manifest.cache_key),
        ("folder", f"{root}/{manifest.location}"),
        ("built", f"{made.started}, {time_text(made.seconds)}, runner {made.runner}"),
        ("run", made.run_id),
        (
            "code",
            (f"{made.git_commit}{dirty}" if made.git_commit else str(manifest.key_spec["code"])),
        ),
    ]
    return [
        *columns([(f"{name}:", value) for name, value in facts]),
        *_section("notes", list(manifest.notes)),
        *_section("counts", _count_lines(manifest.counters)),
        *_section("statistics", _leaf_lines(manifest.statistics)),
        *_section("made from", _input_lines(manifest)),
        *_section("files", _file_lines(manifest, all_files=all_files)),
        *_section("configuration", _leaf_lines(manifest.config)),
        *_section("environment", _environment_lines(manifest)),
    ]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _count_lines(counters: Mapping[str, int]) -> list[str]:
    lines = []
    sources = sorted({name.partition("@")[2] for name in counters if "@" in name})
    for source in ("", *sources):
        suffix = f"@{source}" if source else ""
        rows = balance_rows(counters, suffix=suffix)
        if rows:
            title = f"of source {source}" if source else "things"
            lines += columns([(title, "in", "kept", "dropped", ""), *rows], right=(1, 2, 3))
    plain = [
        (name, f"{value:,}")
        for name, value in counters.items()
        if "@" not in name and not name.endswith(("-in", "-kept")) and "-dropped-" not in name
    ]
    return [*lines, *columns(plain, right=(1,))]


def _input_lines(manifest: Manifest) -> list[str]:
    inputs = [(ref.name, ref.artifact_id, ref.stage, ref.content[:19]) for ref in manifest.inputs]
    raw = [
        (item.name, byte_text(item.size), f"sha256:{item.sha256[:12]}", item.checksum, item.uri)
        for item in manifest.raw_inputs[:_SHOWN_FILES]
    ]
    more = len(manifest.raw_inputs) - len(raw)
    rest = [f"and {more:,} raw files more (--all)"] if more else []
    return [*columns(inputs), *columns(raw, right=(1,)), *rest]


def _file_lines(manifest: Manifest, *, all_files: bool) -> list[str]:
    shown = manifest.files if all_files else manifest.files[:_SHOWN_FILES]
    rows = [
        (
            entry.path,
            f"{entry.rows:,} rows" if entry.rows is not None else "",
            byte_text(entry.size),
            f"sha256:{entry.sha256[:12]}",
        )
        for entry in shown
    ]
    more = len(manifest.files) - len(shown)
    return [*columns(rows, right=(1, 2)), *([f"and {more:,} more (--all)"] if more else [])]


def _environment_lines(manifest: Manifest) -> list[str]:
    used = manifest.environment
    keyed = manifest.key_spec.get("environment", {})
    rows = [("python", used.python), ("platform", used.platform)]
    rows += [(name, version) for name, version in keyed.items() if name != "python"]
    others = len(used.packages) - len(rows) + 2
    return [*columns(rows), f"and {others} packages more (--json lists them all)"]


def _leaf_lines(value: Mapping[str, object], path: str = "") -> list[str]:
    lines = []
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if isinstance(item, Mapping) and item:
            lines += _leaf_lines(item, where)
        elif isinstance(item, list) and any(isinstance(entry, dict) for entry in item):
            lines += _leaf_lines({str(index): entry for index, entry in enumerate(item)}, where)
        else:
            lines.append(f"{where}: {json.dumps(item, ensure_ascii=False)}")
    return lines
