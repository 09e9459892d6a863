"""Commands that show and export artifacts."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from flows.cards.cards import card_of, recorded_cards_config
from flows.cli import options
from flows.cli.console import echo, echo_raw, write_file
from flows.cli.tables import console_for, print_result, table
from flows.export.export import Format
from flows.export.export import export as export_artifact
from flows.export.push import push as push_artifact
from flows.formatting import format_bytes, format_duration, format_metric, format_time, is_metric
from flows.lineage import preview
from flows.lineage.resolve import open_artifact, open_store
from flows.lineage.shards import find_shard
from flows.nested_values import flatten
from flows.recipes.loader import load_recipe
from flows.record_counts import list_sources, record_counts
from flows.run.stages import get_stage, summarize
from flows.store.artifact import StoredArtifact
from flows.store.artifacts import ListedArtifact
from flows.store.leases import live_holders
from schemas.errors import UsageError
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig
from schemas.trial_names import entry_label

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
            item.checksum,
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


def head(
    shard: Annotated[str, typer.Argument(help="Path or URL of a shard, or ARTIFACT[:PART].")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 3,
    start: Annotated[int, typer.Option(min=0, help="Number of the first row.")] = 0,
    vocab: Annotated[str | None, typer.Option(help="vocab.txt. Default: the artifact's.")] = None,
    store: options.Store = None,
) -> None:
    """Print the first rows of a shard: instances decoded, with masks and segments visible."""
    location = find_shard(shard, open_store=lambda: open_store(store))
    console = console_for(sys.stdout)
    for line in preview.head(location, rows=rows, start=start, vocab=vocab):
        if console.is_terminal:
            console.print(line, soft_wrap=True)
        else:
            echo_raw(line.plain)


_MAX_REFS = 3


def ls(
    stage: Annotated[str | None, typer.Argument(help="Stage. Default: all.")] = None,
    trials: Annotated[bool, typer.Option("--trials", help="List every trial of a grid.")] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """List the artifacts of a store, newest first."""
    opened = open_store(store)
    artifacts = opened.list_artifacts(stage)
    groups: dict[str, list[ListedArtifact]] = defaultdict(list)
    for item in artifacts:
        groups[item.pointer.artifact_id if trials else _group_name(item)].append(item)
    header = ("artifact", "stage", "created", "contents", "size", "refs")
    in_progress = [
        f"being built: {stage_name} {key[:12]} by {holder}"
        for (stage_name, key), holder in sorted(live_holders(opened).items())
        if stage in (None, stage_name)
    ]
    rows = [_row(name, group) for name, group in groups.items()]
    data = [_as_json(item) for item in artifacts]
    artifacts_table = table(header, rows, right=(4,), optional=(1, 2))
    print_result(data, artifacts_table, *in_progress, as_json=as_json)


def _as_json(item: ListedArtifact) -> dict[str, Any]:
    return {
        **item.pointer.model_dump(exclude={"parts"}),
        "contents": _contents(item),
        "size": item.size,
        "refs": list(item.refs),
    }


def _contents(item: ListedArtifact) -> str:
    return summarize(item.manifest) if item.manifest else "CORRUPT: see `bertloom verify`"


def _group_name(item: ListedArtifact) -> str:
    """Return the recipe entry of a trial, or the id of another artifact."""
    if item.manifest is None or not get_stage(item.pointer.stage).summarize_many:
        return item.pointer.artifact_id
    for name in item.refs:
        recipe, _, label = name.partition("/")
        if entry_label(label) != label:
            return f"{recipe}/{entry_label(label)}"
    return f"run {item.manifest.produced_by.run_id}"


def _row(name: str, group: Sequence[ListedArtifact]) -> tuple[str, ...]:
    first, size = group[0], format_bytes(sum(item.size for item in group))
    stage, created = first.pointer.stage, format_time(first.pointer.committed)
    if len(group) > 1:
        manifests = [item.manifest for item in group if item.manifest]
        contents = get_stage(stage).summary_of(manifests)
        return "", stage, created, contents, size, name if first.refs else "(no ref)"
    refs = [*first.refs[:_MAX_REFS], *(["..."] if len(first.refs) > _MAX_REFS else [])]
    return first.pointer.artifact_id, stage, created, _contents(first), size, " ".join(refs)


def export(
    artifact: options.Artifact,
    folder: Annotated[
        str | None, typer.Argument(help="New or empty folder, local or a URL.")
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="ORG/NAME",
            help="Commit it to this repository of the Hugging Face Hub instead of a folder. A new "
            "repository is private. Requires HF_TOKEN.",
        ),
    ] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="hf (Parquet, or a model in the layout of Hugging Face), parquet, or arrow-stream "
            "(for datasets.Dataset.from_file)."
        ),
    ] = "hf",
    recipe: options.CardsRecipe = None,
    store: options.Store = None,
) -> None:
    """Write an artifact in a format that datasets, transformers and pandas open."""
    if (folder is None) == (push is None):
        raise UsageError("expected one of FOLDER and --push ORG/NAME")
    opened = open_artifact(artifact, store)
    write = export_artifact if push is None else push_artifact
    summary = write(
        opened.manifest,
        str(folder if push is None else push),
        store=opened.store,
        format=format,
        cards=read_cards_config(opened, recipe),
    )
    echo(summary if folder is None else f"{folder}: {summary}")


def card(
    artifact: options.Artifact,
    recipe: options.CardsRecipe = None,
    store: options.Store = None,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
) -> None:
    """Print the card of an artifact: sources, licenses, scores, how to load it."""
    opened = open_artifact(artifact, store)
    cards = read_cards_config(opened, recipe)
    text = card_of(opened.manifest, store=opened.store, cards=cards).rstrip("\n")
    if out is None:
        echo_raw(text)
    else:
        write_file(out, f"{text}\n")
        echo(options.relative(str(out)))


def read_cards_config(artifact: StoredArtifact, recipe: str | None) -> CardsConfig:
    """Return the `cards` section of a recipe. None: the one recorded with the artifact."""
    if recipe is not None:
        return load_recipe(recipe).cards
    return recorded_cards_config(artifact.manifest, store=artifact.store)
