"""The command `show`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes, format_duration, format_metric, is_metric
from flows.lineage.resolve import open_artifact
from flows.nested_values import flatten
from flows.record_counts import list_sources, record_counts
from flows.run.stages import summarize
from schemas.manifest import Manifest

_MAX_FILES = 20


def show(
    artifact: options.Artifact,
    store: options.Store = None,
    as_json: options.Json = False,
    show_all: options.All = False,
) -> None:
    """Show an artifact: counts, files, inputs, configuration, environment."""
    opened = open_artifact(artifact, store)
    manifest = opened.manifest
    parts = _parts(manifest, opened.store.root, max_files=None if show_all else _MAX_FILES)
    print_result(manifest.model_dump(mode="json"), *parts, as_json=as_json)


def _parts(manifest: Manifest, root: str, *, max_files: int | None) -> Iterator[str | Table]:
    produced_by = manifest.produced_by
    dirty = ", with uncommitted changes" if produced_by.git_dirty else ""
    time = f"{produced_by.started_at}, {format_duration(produced_by.duration_seconds)}"
    facts = {
        "artifact": manifest.artifact_id,
        "stage": f"{manifest.stage} (version {manifest.stage_version})",
        "contents": f"{summarize(manifest)}, {format_bytes(manifest.size_bytes)}",
        "content digest": manifest.content_digest,
        "cache key": manifest.cache_key,
        "folder": f"{root}/{manifest.artifact_path}",
        "built": f"{time}, runner {produced_by.runner}",
        "run": produced_by.run_id,
        "code": f"{produced_by.git_commit}{dirty}" if produced_by.git_commit else "commit unknown",
    }
    yield table(("", ""), [(f"{name}:", value) for name, value in facts.items()])
    sections: dict[str, Sequence[str | Table]] = {
        "notes": list(manifest.notes),
        "counts": _counts(manifest.counters),
        "statistics": _values(manifest.statistics),
        "inputs": _inputs(manifest, max_files),
        "files": _files(manifest, max_files),
        "configuration": _values(manifest.config),
        "environment": _environment(manifest),
    }
    for title, parts in sections.items():
        if parts:
            yield f"\n{title}"
            yield from parts


def _counts(counters: Mapping[str, int]) -> list[str | Table]:
    counts, parts = record_counts(counters), list[str | Table]()
    for source in ("", *list_sources(counters)):
        if rows := [item.row for item in counts if item.source == source]:
            title = f"source {source}" if source else "records"
            header = (title, "in", "kept", "dropped", "reason")
            parts.append(table(header, rows, right=(1, 2, 3)))
    others = [
        (name, f"{value:,}")
        for name, value in counters.items()
        if "@" not in name and not name.endswith(("-in", "-kept")) and "-dropped-" not in name
    ]
    return [*parts, table(("", ""), others, right=(1,))] if others else parts


def _inputs(manifest: Manifest, max_files: int | None) -> list[str | Table]:
    rows: list[tuple[str, ...]] = [
        (ref.name, ref.artifact_id, ref.content_digest[:19], ref.stage) for ref in manifest.inputs
    ]
    files = manifest.raw_inputs[:max_files]
    rows += [
        (
            item.name,
            format_bytes(item.size_bytes),
            f"sha256:{item.sha256[:12]}",
            "believed" if item.trusted_checksum_file else item.checksum,
            item.uri,
        )
        for item in files
    ]
    rest = len(manifest.raw_inputs) - len(files)
    more = [f"and {rest:,} more raw files (--all)"] if rest else []
    return [table(("",) * 5, rows), *more] if rows else []


def _files(manifest: Manifest, max_files: int | None) -> list[str | Table]:
    files = manifest.files[:max_files]
    rows = [
        (
            entry.path,
            f"{entry.rows:,} rows" if entry.rows is not None else "",
            format_bytes(entry.size_bytes),
            f"sha256:{entry.sha256[:12]}",
        )
        for entry in files
    ]
    rest = len(manifest.files) - len(files)
    more = [f"and {rest:,} more (--all)"] if rest else []
    return [table(("", "", "", ""), rows, right=(1, 2)), *more]


def _environment(manifest: Manifest) -> list[str | Table]:
    environment = manifest.environment
    in_key = manifest.cache_key_inputs.get("environment", {})
    versions = {"python": environment.python, "platform": environment.platform, **in_key}
    rest = len(environment.packages) - len(versions) + 2
    return [table(("", ""), versions.items()), f"and {rest} more packages (--json)"]


def _values(values: Mapping[str, Any]) -> list[str | Table]:
    return [
        f"{name}: {format_metric(name, value)}"
        if is_metric(name) and isinstance(value, float)
        else f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in flatten(values).items()
    ]
