"""What a store holds, as rows: artifacts, refs, pins and runs, the newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from flows.engine.stages import amount, find_stage
from flows.formats import byte_text, time_text
from flows.store.artifacts import ArtifactStore, parse_manifest
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest
from schemas.stage import entry_label

CELL_STAGE = "finetune"
_MOST_REFS = 3


class Listed(NamedTuple):
    """A published artifact."""

    pointer: Pointer
    manifest: Manifest | None
    """None where it cannot be read."""

    refs: tuple[str, ...]
    is_pinned: bool

    @property
    def holds(self) -> str:
        """How much it holds."""
        return amount(self.manifest) if self.manifest else "DAMAGED: see `bertloom verify`"

    @property
    def size(self) -> int:
        """Bytes."""
        return self.manifest.size if self.manifest else 0

    def as_json(self) -> dict[str, Any]:
        """What a script wants to know."""
        pointer = self.pointer
        return {
            "artifact_id": pointer.artifact_id,
            "stage": pointer.stage,
            "cache_key": pointer.cache_key,
            "content": pointer.content,
            "committed": pointer.committed,
            "holds": self.holds,
            "size": self.size,
            "refs": list(self.refs),
            "is_pinned": self.is_pinned,
            "manifest": pointer.manifest,
        }


def listed(store: ArtifactStore, stage: str | None = None) -> list[Listed]:
    """Every published artifact, or those of a stage, the newest first."""
    names = defaultdict(list)
    for name in store.refs():
        pointer = store.ref(name)
        if pointer is not None:
            names[pointer.manifest].append(name)
    pinned = set(store.pins())
    found = sorted(store.pointers(stage), key=lambda item: item.committed, reverse=True)
    stored = store.backend.read_many(pointer.manifest for pointer in found)
    return [
        Listed(
            pointer,
            _manifest(store, pointer, stored.get(pointer.manifest)),
            tuple(names[pointer.manifest]),
            pointer.artifact_id in pinned,
        )
        for pointer in found
    ]


def _manifest(store: ArtifactStore, pointer: Pointer, stored: bytes | None) -> Manifest | None:
    try:
        found = parse_manifest(stored, where=store.url(pointer.manifest)) if stored else None
    except ArtifactCorruptError:
        return None  # shown as damaged
    return found


def artifact_rows(found: Iterable[Listed], *, all_cells: bool) -> list[tuple[str, ...]]:
    """(artifact, stage, committed, holds, size, names) of each; cells of one grid as one row."""
    grouped: dict[str, list[Listed]] = defaultdict(list)
    for item in found:
        grouped[item.pointer.artifact_id if all_cells else _group(item)].append(item)
    return [_row(group) for group in grouped.values()]


def _group(item: Listed) -> str:
    if item.pointer.stage != CELL_STAGE or item.manifest is None:
        return item.pointer.artifact_id
    for name in item.refs:
        recipe, _, label = name.partition("/")
        if entry_label(label) != label:
            return f"{recipe}/{entry_label(label)}"
    return f"run {item.manifest.produced_by.run_id}"


def _row(group: Sequence[Listed]) -> tuple[str, ...]:
    first = group[0]
    committed = first.pointer.committed[:19].replace("T", " ")
    size = byte_text(sum(item.size for item in group))
    if len(group) > 1:
        manifests = [item.manifest for item in group if item.manifest]
        name = _group(first) if first.refs else "(no ref)"
        return (
            "",
            first.pointer.stage,
            committed,
            find_stage(first.pointer.stage).amounts(manifests),
            size,
            name,
        )
    names = [*first.refs[:_MOST_REFS], *(["..."] if len(first.refs) > _MOST_REFS else [])]
    names += ["(pinned)"] if first.is_pinned else []
    pointer = first.pointer
    return pointer.artifact_id, pointer.stage, committed, first.holds, size, " ".join(names)


def ref_records(store: ArtifactStore) -> list[dict[str, Any]]:
    """Every ref with what it leads to, by name."""
    found = []
    for name in store.refs():
        pointer = store.ref(name)
        if pointer is not None:
            found.append({"ref": name, **pointer.model_dump()})
    return found


def run_results(store: ArtifactStore, records: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What each run came to, by its id: the steps that failed, or what its last step holds."""
    paths = {record["run_id"]: _last_manifest(record) for record in records}
    stored = store.backend.read_many({path for path in paths.values() if path})
    results = {}
    for record in records:
        run_id = record["run_id"]
        result = ", ".join(f"{label or 'run'} failed" for label in record.get("failures", {}))
        if not result and (data := stored.get(paths[run_id])) is not None:
            try:
                result = amount(parse_manifest(data, where=paths[run_id]))
            except ArtifactCorruptError:
                result = "damaged: see `bertloom verify`"
        results[run_id] = result
    return results


def _last_manifest(record: dict[str, Any]) -> str:
    steps = record.get("steps", ())
    return str(steps[-1].get("manifest", "")) if steps else ""


def _took(record: dict[str, Any]) -> str:
    """How long a run took, or has taken yet; of one that died, until it was last recorded."""
    try:
        began, written = (datetime.fromisoformat(record[name]) for name in ("started", "written"))
    except (KeyError, TypeError, ValueError):
        return ""
    ended = datetime.now(UTC) if record["state"] == "running" else written
    return time_text(max(0.0, (ended - began).total_seconds()))


def run_row(record: dict[str, Any], *, result: str) -> tuple[str, ...]:
    """(run, state, recipe, engine, started, took, steps, cached, result) as texts."""
    steps = record.get("steps", ())
    cached = sum(bool(step.get("was_cached")) for step in steps)
    planned = len(record.get("planned", ())) or len(steps)
    recipe = str(record.get("recipe", {}).get("name", ""))
    started = str(record.get("started", ""))[:19].replace("T", " ")
    counts = (f"{len(steps)}/{planned}", str(cached))
    engine = record.get("engine", "")
    who = (record["run_id"], record["state"], recipe, engine)
    return *who, started, _took(record), *counts, result
