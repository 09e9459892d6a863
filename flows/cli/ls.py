"""`bertloom ls` and `bertloom runs`: artifacts and runs of a store as rows of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeGuard

import typer

from flows.cli.completion import stage_names
from flows.cli.console import echo, print_json, print_lines
from flows.cli.options import JsonOption, StoreOption, open_store
from flows.cli.terminal import print_table
from flows.formatting import format_bytes, format_duration
from flows.lineage.openlineage import send_abort
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.leases import live_holders
from flows.store.listing import ListedArtifact, list_artifacts
from flows.store.runs import RunRecord, list_runs, reconcile_runs
from schemas.errors import ArtifactCorruptError, UsageError
from schemas.manifest import Manifest
from schemas.trial_names import entry_label

_MOST_REFS = 3
_CORRUPT = "see `bertloom verify`"


def ls(
    stage: Annotated[
        str | None, typer.Argument(help="Artifacts of this stage only.", autocompletion=stage_names)
    ] = None,
    refs: Annotated[bool, typer.Option("--refs", help="List refs, and where they lead.")] = False,
    pins: Annotated[bool, typer.Option("--pins", help="List pins, and their reasons.")] = False,
    trials: Annotated[
        bool, typer.Option("--trials", help="List each trial of a grid by itself.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what is in the store, the newest first."""
    if refs and pins:
        raise UsageError("expected one of --refs and --pins")
    opened = open_store(store)
    if refs:
        pointers = ((name, opened.ref(name)) for name in opened.refs())
        found = [{"ref": name, **to.model_dump()} for name, to in pointers if to is not None]
        moved = [(r["ref"], r["artifact_id"], r["stage"], r["committed"][:19]) for r in found]
        _print(found, ("ref", "artifact", "stage", "moved"), moved, as_json=as_json, less=(2, 3))
    elif pins:
        pinned = opened.pins()
        rows = [
            (artifact_id, pin.pointer.stage, pin.pinned[:19], pin.reason)
            for artifact_id, pin in pinned.items()
        ]
        head = ("artifact", "stage", "pinned", "reason")
        records = {artifact_id: pin.model_dump() for artifact_id, pin in pinned.items()}
        _print(records, head, rows, as_json=as_json, folds=(3,))
    else:
        artifacts = list_artifacts(opened, stage)
        found = [_artifact_json(item) for item in artifacts]
        titles = ("artifact", "stage", "committed", "holds", "size", "refs")
        shown = () if as_json else _rows(artifacts, all_trials=trials)
        _print(found, titles, shown, as_json=as_json, right=(3, 4), folds=(3, 5), less=(1, 2))
        if not as_json:
            print_lines(_being_built(opened, stage))


def _print(
    found: Any,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    as_json: bool,
    **layout: Collection[int],
) -> None:
    if as_json:
        print_json(found)
    else:
        print_table(head, rows, **layout)


def _being_built(store: ArtifactStore, wanted: str | None) -> list[str]:
    """Who is building what right now, and which job of an engine does it."""
    return [
        f"being built: {stage} {key[:12]} by {holder}"
        for (stage, key), holder in sorted(live_holders(store).items())
        if wanted in (None, stage)
    ]


def _artifact_json(item: ListedArtifact) -> dict[str, Any]:
    return {
        **item.pointer.model_dump(exclude={"parts"}),
        "holds": _holds(item),
        "size": item.size,
        "refs": list(item.refs),
        "is_pinned": item.is_pinned,
    }


def _holds(item: ListedArtifact) -> str:
    return summarize(item.manifest) if item.manifest else f"CORRUPT: {_CORRUPT}"


def _rows(found: Iterable[ListedArtifact], *, all_trials: bool) -> list[tuple[str, ...]]:
    """(artifact, stage, committed, holds, size, names) of each; trials of one grid as one row."""
    grouped: dict[str, list[ListedArtifact]] = defaultdict(list)
    for item in found:
        grouped[item.pointer.artifact_id if all_trials else _group(item)].append(item)
    return [_artifact_row(name, group) for name, group in grouped.items()]


def _group(item: ListedArtifact) -> str:
    """The entry of a recipe that an artifact is a trial of; else its own id."""
    if item.manifest is None or get_stage(item.pointer.stage).summarize_many is None:
        return item.pointer.artifact_id
    for name in item.refs:
        recipe, _, label = name.partition("/")
        if entry_label(label) != label:
            return f"{recipe}/{entry_label(label)}"
    return f"run {item.manifest.produced_by.run_id}"


def _artifact_row(name: str, group: Sequence[ListedArtifact]) -> tuple[str, ...]:
    first = group[0]
    stage, committed = first.pointer.stage, first.pointer.committed[:19].replace("T", " ")
    size = format_bytes(sum(item.size for item in group))
    if len(group) > 1:
        holds = get_stage(stage).summary_of([item.manifest for item in group if item.manifest])
        return "", stage, committed, holds, size, name if first.refs else "(no ref)"
    names = [*first.refs[:_MOST_REFS], *(["..."] if len(first.refs) > _MOST_REFS else [])]
    names += ["(pinned)"] if first.is_pinned else []
    return first.pointer.artifact_id, stage, committed, _holds(first), size, " ".join(names)


def runs(
    mark_crashed: Annotated[
        bool,
        typer.Option("--mark-crashed", help="First mark runs whose process is gone as crashed."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that the store has records of, the newest first."""
    opened = open_store(store)
    if mark_crashed:
        for run_id, liveness in reconcile_runs(opened, close=send_abort).items():
            state = "marked as crashed" if liveness.is_over else "left as running"
            echo(f"{run_id}: {state}: {liveness.reason}", err=True)
    records = list_runs(opened)
    found = [
        record.model_dump(mode="json")
        if isinstance(record, RunRecord)
        else {"run_id": run_id, "state": "corrupt"}
        for run_id, record in records.items()
    ]
    head = ("run", "state", "recipe", "engine", "started", "took", "steps", "cached", "result")
    rows = () if as_json else _run_rows(opened, records)
    _print(found, head, rows, as_json=as_json, right=(5, 6, 7), folds=(8,), less=(3, 4, 6, 7))


def _run_rows(
    store: ArtifactStore, records: Mapping[str, RunRecord | ArtifactCorruptError]
) -> Iterator[tuple[str, ...]]:
    last = [item.steps[-1].manifest for item in records.values() if _has_steps(item)]
    manifests = store.manifests(last)
    for run_id, record in records.items():
        if isinstance(record, ArtifactCorruptError):
            yield run_id, "corrupt", "", "", "", "", "", "", str(record)
            continue
        yield (
            run_id,
            record.state,
            record.recipe_name,
            record.engine,
            record.started[:19].replace("T", " "),
            _duration(record),
            f"{len(record.steps)}/{len(record.planned) or len(record.steps)}",
            str(sum(step.was_cached for step in record.steps)),
            _result(record, manifests),
        )


def _has_steps(record: RunRecord | ArtifactCorruptError) -> TypeGuard[RunRecord]:
    return isinstance(record, RunRecord) and bool(record.steps)


def _result(record: RunRecord, manifests: Mapping[str, Manifest | ArtifactCorruptError]) -> str:
    """Return the failed steps of a run or why it ended early, or the summary of its last step."""
    failures = record.failures.items()
    failed = ", ".join(f"{label} failed" if label else text for label, text in failures)
    manifest = manifests.get(record.steps[-1].manifest) if record.steps else None
    if failed or manifest is None:
        return failed
    return summarize(manifest) if isinstance(manifest, Manifest) else f"CORRUPT: {_CORRUPT}"


def _duration(record: RunRecord) -> str:
    """Return how long a run took or has taken; of a crashed one, until its last record."""
    started, updated = map(datetime.fromisoformat, (record.started, record.updated_at))
    ended = datetime.now(UTC) if record.state == "running" else updated
    return format_duration(max(0.0, (ended - started).total_seconds()))
