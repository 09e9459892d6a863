"""The command `ls`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes
from flows.lineage.resolve import open_store
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ListedArtifact
from flows.store.leases import live_holders
from schemas.trial_names import entry_label

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
    if item.manifest is None or get_stage(item.pointer.stage).summarize_many is None:
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


def format_time(timestamp: str) -> str:
    """Return an ISO timestamp without fractions of a second: `2026-01-31 12:00:00`."""
    return timestamp[:19].replace("T", " ")
