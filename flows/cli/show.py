"""`bertloom show`: what an artifact says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from flows.cli.console import print_result
from flows.cli.options import ArtifactArgument, StoreOption, open_store
from flows.formatting import align_columns, format_bytes, format_duration, format_metric, is_metric
from flows.lineage.resolve import artifact_of_path, resolve
from flows.nested_values import flatten
from flows.record_counts import list_sources, record_counts
from flows.run.stages import summarize
from flows.store.artifact import Artifact
from schemas.manifest import Manifest, RawInput

_SHOWN_FILES = 20


def show(
    artifact: ArtifactArgument,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole manifest.")] = False,
    all_files: Annotated[bool, typer.Option("--all", help="List every file.")] = False,
) -> None:
    """Show an artifact: counts, files, inputs, configuration, environment."""
    found = find_artifact(artifact, store=store)
    manifest = found.manifest
    lines = artifact_lines(manifest, root=found.store.root, all_files=all_files)
    print_result(manifest.model_dump(mode="json"), lines, as_json=as_json)


def find_artifact(name: str, *, store: str | None) -> Artifact:
    """Return the artifact that a name, path or URL names."""
    if (artifact := artifact_of_path(name)) is not None:
        return artifact
    opened = open_store(store)
    return opened.artifact(resolve(name, store=opened))


def artifact_lines(manifest: Manifest, *, root: str, all_files: bool) -> Iterator[str]:
    """What a person asks for first."""
    made = manifest.produced_by
    dirty = ", with uncommitted changes" if made.git_dirty else ""
    facts = [
        ("artifact", manifest.artifact_id),
        ("stage", f"{manifest.stage} (version {manifest.stage_version})"),
        ("holds", f"{summarize(manifest)}, {format_bytes(manifest.size)}"),
        ("content", manifest.content),
        ("rows", manifest.logical_content or "(no table)"),
        ("cache key", manifest.cache_key),
        ("folder", f"{root}/{manifest.location}"),
        ("built", f"{made.started}, {format_duration(made.seconds)}, runner {made.runner}"),
        ("run", made.run_id),
        ("code", f"{made.git_commit}{dirty}" if made.git_commit else "commit unknown"),
    ]
    yield from align_columns([(f"{name}:", value) for name, value in facts])
    sections = {
        "notes": list(manifest.notes),
        "counts": _count_lines(manifest.counters),
        "statistics": _statistics_lines(manifest.statistics),
        "made from": _input_lines(manifest),
        "files": _file_lines(manifest, all_files=all_files),
        "configuration": _leaf_lines(manifest.config),
        "environment": _environment_lines(manifest),
    }
    for title, lines in sections.items():
        yield from ("", title, *(f"  {line}" for line in lines)) if lines else ()


def _count_lines(counters: Mapping[str, int]) -> list[str]:
    lines, found = list[str](), record_counts(counters)
    for source in ("", *list_sources(counters)):
        if rows := [item.row for item in found if item.source == source]:
            title = f"of source {source}" if source else "things"
            lines += align_columns([(title, "in", "kept", "dropped", ""), *rows], right=(1, 2, 3))
    plain = [
        (name, f"{value:,}")
        for name, value in counters.items()
        if "@" not in name and not name.endswith(("-in", "-kept")) and "-dropped-" not in name
    ]
    return [*lines, *align_columns(plain, right=(1,))]


def _input_lines(manifest: Manifest) -> list[str]:
    inputs = [(ref.name, ref.artifact_id, ref.stage, ref.content[:19]) for ref in manifest.inputs]
    raw = [
        (item.name, format_bytes(item.size), f"sha256:{item.sha256[:12]}", _told(item), item.uri)
        for item in manifest.raw_inputs[:_SHOWN_FILES]
    ]
    more = len(manifest.raw_inputs) - len(raw)
    rest = [f"and {more:,} raw files more (--all)"] if more else []
    return [*align_columns(inputs), *align_columns(raw, right=(1,)), *rest]


def _told(item: RawInput) -> str:
    """What a raw file was compared with."""
    return "believed" if item.believed else item.checksum


def _file_lines(manifest: Manifest, *, all_files: bool) -> list[str]:
    shown = manifest.files if all_files else manifest.files[:_SHOWN_FILES]
    rows = [
        (
            entry.path,
            f"{entry.rows:,} rows" if entry.rows is not None else "",
            format_bytes(entry.size),
            f"sha256:{entry.sha256[:12]}",
        )
        for entry in shown
    ]
    more = len(manifest.files) - len(shown)
    return [*align_columns(rows, right=(1, 2)), *([f"and {more:,} more (--all)"] if more else [])]


def _environment_lines(manifest: Manifest) -> list[str]:
    used = manifest.environment
    keyed = manifest.key_spec.get("environment", {})
    rows = [("python", used.python), ("platform", used.platform)]
    rows += [(name, version) for name, version in keyed.items() if name != "python"]
    others = len(used.packages) - len(rows) + 2
    return [*align_columns(rows), f"and {others} packages more (--json lists them all)"]


def _statistics_lines(statistics: Mapping[str, object]) -> list[str]:
    values = flatten(statistics)
    return [
        f"{name}: {format_metric(name, value)}"
        if is_metric(name) and isinstance(value, float)
        else f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
    ]


def _leaf_lines(value: Mapping[str, object]) -> list[str]:
    return [
        f"{name}: {json.dumps(item, ensure_ascii=False)}" for name, item in flatten(value).items()
    ]
