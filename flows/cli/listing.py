"""Artifacts and runs of a store as rows of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from flows.engine.stages import amount, find_stage
from flows.formats import byte_text, time_text
from flows.store.artifacts import ArtifactStore, parse_manifest
from flows.store.listing import Listed
from schemas.errors import ArtifactCorruptError
from schemas.trial_names import entry_label

_MOST_REFS = 3
_DAMAGED = "see `bertloom verify`"


def artifact_json(item: Listed) -> dict[str, Any]:
    """What a script wants to know of an artifact."""
    return {
        **item.pointer.model_dump(exclude={"parts"}),
        "holds": _holds(item),
        "size": item.size,
        "refs": list(item.refs),
        "is_pinned": item.is_pinned,
    }


def _holds(item: Listed) -> str:
    return amount(item.manifest) if item.manifest else f"DAMAGED: {_DAMAGED}"


def artifact_rows(found: Iterable[Listed], *, all_trials: bool) -> list[tuple[str, ...]]:
    """(artifact, stage, committed, holds, size, names) of each; trials of one grid as one row."""
    grouped: dict[str, list[Listed]] = defaultdict(list)
    for item in found:
        grouped[item.pointer.artifact_id if all_trials else _group(item)].append(item)
    return [_row(name, group) for name, group in grouped.items()]


def _group(item: Listed) -> str:
    """The entry of a recipe that an artifact is a trial of; else its own id."""
    if item.manifest is None or find_stage(item.pointer.stage).describe_many is None:
        return item.pointer.artifact_id
    for name in item.refs:
        recipe, _, label = name.partition("/")
        if entry_label(label) != label:
            return f"{recipe}/{entry_label(label)}"
    return f"run {item.manifest.produced_by.run_id}"


def _row(name: str, group: Sequence[Listed]) -> tuple[str, ...]:
    first = group[0]
    stage, committed = first.pointer.stage, first.pointer.committed[:19].replace("T", " ")
    size = byte_text(sum(item.size for item in group))
    if len(group) > 1:
        holds = find_stage(stage).amounts([item.manifest for item in group if item.manifest])
        return "", stage, committed, holds, size, name if first.refs else "(no ref)"
    names = [*first.refs[:_MOST_REFS], *(["..."] if len(first.refs) > _MOST_REFS else [])]
    names += ["(pinned)"] if first.is_pinned else []
    return first.pointer.artifact_id, stage, committed, _holds(first), size, " ".join(names)


def ref_records(store: ArtifactStore) -> list[dict[str, Any]]:
    """Every ref with what it leads to, by name."""
    found = ((name, store.ref(name)) for name in store.refs())
    return [{"ref": name, **pointer.model_dump()} for name, pointer in found if pointer is not None]


def run_results(store: ArtifactStore, records: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The result of each run, by its id: the steps that failed, or what its last step holds."""
    last = {record["run_id"]: _last_manifest(record) for record in records}
    stored = store.backend.read_many({path for path in last.values() if path})
    results = {}
    for record in records:
        run_id = record["run_id"]
        result = ", ".join(f"{label or 'run'} failed" for label in record.get("failures", {}))
        if not result and (data := stored.get(last[run_id])) is not None:
            try:
                result = amount(parse_manifest(data, where=last[run_id]))
            except ArtifactCorruptError:
                result = f"damaged: {_DAMAGED}"
        results[run_id] = result
    return results


def _last_manifest(record: dict[str, Any]) -> str:
    steps = record.get("steps", ())
    return str(steps[-1].get("manifest", "")) if steps else ""


def run_row(record: dict[str, Any], *, result: str) -> tuple[str, ...]:
    """(run, state, recipe, engine, started, took, steps, cached, result) as texts."""
    steps = record.get("steps", ())
    return (
        record["run_id"],
        record["state"],
        str(record.get("recipe", {}).get("name", "")),
        record.get("engine", ""),
        str(record.get("started", ""))[:19].replace("T", " "),
        _took(record),
        f"{len(steps)}/{len(record.get('planned', ())) or len(steps)}",
        str(sum(bool(step.get("was_cached")) for step in steps)),
        result,
    )


def _took(record: dict[str, Any]) -> str:
    """How long a run took, or has taken yet; of one that died, until it was last recorded."""
    try:
        began, written = (datetime.fromisoformat(record[name]) for name in ("started", "written"))
    except (KeyError, TypeError, ValueError):
        return ""
    ended = datetime.now(UTC) if record["state"] == "running" else written
    return time_text(max(0.0, (ended - began).total_seconds()))
