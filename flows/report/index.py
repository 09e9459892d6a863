"""`reports/index.html`: every run of a store on one page, the newest first.

It is written at the end of each run by compare-and-swap, from records that are read after the page
that it replaces: of two runs that end at once, whoever writes last has read both. What is shown of
runs that are over is kept in `reports/index.json`, so that only those since then are read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.report.page import INDEX_PAGE, render
from flows.report.steps import seconds_between
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore, parse_manifest
from flows.store.runs import RESUME_HINT, check_liveness, last_heartbeats, run_ids, stored_records
from schemas.disclosure import without_secrets
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest
from schemas.sealed import read_sealed, sealed_json, sealed_page

_KEPT = "reports/index.json"
_KEPT_VERSION = 1
_TRIES = 20
_MOST_RESULTS = 6
_RESULTS = ("trial", "instances", "tokens", "vocabulary", "documents", "examples")
"""What is told of a run without evaluation and pretraining: of the first kind that it has."""

_LONGEST = 400


class RunRow(BaseModel):
    """A run as the index shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    run_id: str
    recipe: str
    state: str
    started: str
    seconds: float | None
    planned: int
    built: int
    cached: int
    results: tuple[str, ...] = ()
    """`LABEL: AMOUNT` of what came out of it."""

    failures: tuple[str, ...] = ()
    """A sentence for each step that failed."""

    has_page: bool = False


def write_index(store: ArtifactStore, *, anew: Collection[str] = ()) -> str:
    """Write the index of all runs.

    Args:
        store: whose runs.
        anew: ids of runs that are read again although they were over before.

    Returns:
        its URL.

    Raises:
        StoreError: others replace it faster than it can be written.
    """
    for _ in range(_TRIES):
        before = store.backend.read_if_exists(INDEX_PAGE)
        rows = read_rows(store, anew=anew)
        text = render("index.html.j2", runs=rows, store=store.root)
        page = sealed_page(text.encode())
        if page == before or store.backend.compare_and_swap(INDEX_PAGE, page, expected=before):
            return store.url(INDEX_PAGE)
    raise StoreError(
        f"{store.url(INDEX_PAGE)}: {_TRIES} times another run was faster to write it; "
        "`bertloom report --index` writes it anew"
    )


def read_rows(store: ArtifactStore, *, anew: Collection[str] = ()) -> list[RunRow]:
    """A row for every run that left a record, the newest first."""
    ids = run_ids(store)
    pages = {name.split("/")[1] for name in store.backend.names("runs") if _is_page(name)}
    kept = _kept_rows(store)
    known = {
        run_id: row for run_id in ids if (row := kept.get(run_id)) and _is_over(row, anew=anew)
    }
    fresh = _fresh_rows(store, [run_id for run_id in ids if run_id not in known])
    rows = known | fresh
    found = [
        rows[run_id].model_copy(update={"has_page": run_id in pages}) for run_id in reversed(ids)
    ]
    over = {row.run_id: row.model_dump(mode="json") for row in found if _is_over(row)}
    if fresh.keys() & over.keys():
        content = {"version": _KEPT_VERSION, "rows": over}
        store.backend.replace(_KEPT, sealed_json(content))
    return found


def _is_page(name: str) -> bool:
    return name.endswith("/report.html")


def _is_over(row: RunRow, *, anew: Collection[str] = ()) -> bool:
    # Of what ended by a signal, the end itself may be written yet; damaged ones may be mended.
    return row.state in ("completed", "failed", "crashed") and row.run_id not in anew


def _kept_rows(store: ArtifactStore) -> dict[str, RunRow]:
    """Rows of earlier indexes; none where they cannot be used: all are read again then."""
    stored = store.backend.read_if_exists(_KEPT)
    try:
        found = read_sealed(stored) if stored else {}
        if found.get("version") != _KEPT_VERSION:
            return {}
        return {run_id: RunRow.model_validate(row) for run_id, row in found["rows"].items()}
    except (ValueError, ValidationError):
        return {}


def _fresh_rows(store: ArtifactStore, ids: list[str]) -> dict[str, RunRow]:
    records = stored_records(store, ids)
    signs = last_heartbeats(store) if records else {}
    wanted = [
        step["manifest"]
        for record in records.values()
        if not isinstance(record, ArtifactCorruptError)
        for step in _telling(record)
    ]
    manifests = store.backend.read_many(dict.fromkeys(wanted))
    rows = {}
    for run_id, record in records.items():
        if isinstance(record, ArtifactCorruptError):
            error = (str(record),)
            rows[run_id] = RunRow(
                run_id=run_id, recipe="?", state="damaged", started="", seconds=None,
                planned=0, built=0, cached=0, failures=error,
            )  # fmt: skip
        else:
            silence = time.time() - signs.get(run_id, time.time())
            rows[run_id] = _row(store, run_id, record, manifests, silence=silence)
    return rows


def _telling(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps whose artifacts say what came out of a run."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for step in record.get("steps", ()):
        stage = str(step["manifest"]).split("/")[1]
        by_kind.setdefault(get_stage(stage).holds, []).append(step)
    first = by_kind.get("evaluation", [])
    if phases := by_kind.get("checkpoint", []):
        first = [phases[-1], *first]
    if first:
        return first
    kind = next((kind for kind in _RESULTS if kind in by_kind), "")
    return by_kind.get(kind, [])[-2:]


def _row(
    store: ArtifactStore,
    run_id: str,
    record: Mapping[str, Any],
    manifests: Mapping[str, bytes],
    *,
    silence: float,
) -> RunRow:
    state = str(record.get("state", "?"))
    failures = dict(record.get("failures", {}))
    if state == "running" and (judged := check_liveness(record, silence=silence)).is_over:
        state, failures[""] = "died", f"{judged.why}; {RESUME_HINT}"
    steps = record.get("steps", ())
    cached = sum(bool(step.get("was_cached")) for step in steps)
    results = []
    for step in _telling(record):
        manifest = _manifest(store, manifests.get(step["manifest"]), step["manifest"])
        holds = summarize(manifest) if manifest else "its manifest is gone"
        results.append(f"{step['label']}: {holds}")
    more = len(results) - _MOST_RESULTS
    shown = [*results[:_MOST_RESULTS], *([f"and {more} more"] if more > 0 else [])]
    told = (f"{label}: {text}" if label else str(text) for label, text in failures.items())
    return RunRow(
        run_id=run_id,
        recipe=str(record.get("recipe", {}).get("name", "?")),
        state=state,
        started=str(record.get("started", "")),
        seconds=seconds_between(str(record.get("started", "")), str(record.get("written", ""))),
        planned=len(record.get("planned", ())),
        built=len(steps) - cached,
        cached=cached,
        results=tuple(shown),
        failures=tuple(_shortened(without_secrets(text)) for text in told),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _manifest(store: ArtifactStore, stored: bytes | None, path: str) -> Manifest | None:
    try:
        return parse_manifest(stored, where=store.url(path)) if stored else None
    except ArtifactCorruptError:
        return None
