"""`reports/index.html`: every run of a store on one page, the newest first.

It is written at the end of each run by compare-and-swap, from records that are read after the page
that it replaces: of two runs that end at once, whoever writes last has read both. What is shown of
runs that are over is kept in `reports/index.json`, so that only those since then are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.report.page import INDEX_PAGE, render
from flows.report.steps import seconds_between
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord, list_runs, run_ids
from schemas.checksummed import dump_json, dump_page, load_json
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest
from schemas.redaction import redact

_KEPT = "reports/index.json"
_KEPT_VERSION = 1
_TRIES = 20
_MOST_RESULTS = 6
_RESULTS = ("trial", "instances", "tokens", "vocabulary", "documents", "examples")
"""Artifact types that describe a run without evaluation and pretraining; the first one counts."""

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
        anew: Ids of finished runs to read again.

    Returns:
        its URL.

    Raises:
        StoreError: others replace it faster than it can be written.
    """
    for _ in range(_TRIES):
        before = store.backend.read_if_exists(INDEX_PAGE)
        rows = read_rows(store, anew=anew)
        text = render("index.html.j2", runs=rows, store=store.root)
        page = dump_page(text.encode())
        if page == before or store.backend.compare_and_swap(INDEX_PAGE, page, expected=before):
            return store.url(INDEX_PAGE)
    raise StoreError(
        f"{store.url(INDEX_PAGE)}: {_TRIES} times another run was faster to write it; "
        "`bertloom report --index` writes it again"
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
        store.backend.replace(_KEPT, dump_json(content))
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
        found = load_json(stored) if stored else {}
        if found.get("version") != _KEPT_VERSION:
            return {}
        return {run_id: RunRow.model_validate(row) for run_id, row in found["rows"].items()}
    except (ValueError, ValidationError):
        return {}


def _fresh_rows(store: ArtifactStore, ids: list[str]) -> dict[str, RunRow]:
    records = list_runs(store, ids) if ids else {}
    manifests = store.manifests(
        step.manifest
        for record in records.values()
        if isinstance(record, RunRecord)
        for step in _result_steps(record)
    )
    return {
        run_id: _row(record, manifests)
        if isinstance(record, RunRecord)
        else RunRow(
            run_id=run_id, recipe="?", state="corrupt", started="", seconds=None,
            planned=0, built=0, cached=0, failures=(str(record),),
        )
        for run_id, record in records.items()
    }  # fmt: skip


def _result_steps(record: RunRecord) -> Sequence[StepRecord]:
    """Return the steps whose artifacts are the result of a run."""
    by_type: dict[str, list[StepRecord]] = {}
    for step in record.steps:
        by_type.setdefault(get_stage(step.manifest.split("/")[1]).output_type, []).append(step)
    results = [*by_type.get("checkpoint", [])[-1:], *by_type.get("evaluation", [])]
    if results:
        return results
    last = next((name for name in _RESULTS if name in by_type), "")
    return by_type.get(last, [])[-2:]


def _row(record: RunRecord, manifests: Mapping[str, Manifest | ArtifactCorruptError]) -> RunRow:
    cached = sum(step.was_cached for step in record.steps)
    results = []
    for step in _result_steps(record):
        manifest = manifests.get(step.manifest)
        text = summarize(manifest) if isinstance(manifest, Manifest) else "its manifest is gone"
        results.append(f"{step.label}: {text}")
    more = len(results) - _MOST_RESULTS
    shown = [*results[:_MOST_RESULTS], *([f"and {more} more"] if more > 0 else [])]
    failures = (f"{label}: {text}" if label else text for label, text in record.failures.items())
    return RunRow(
        run_id=record.run_id,
        recipe=record.recipe_name,
        state=record.state,
        started=record.started,
        seconds=seconds_between(record.started, record.updated_at),
        planned=len(record.planned),
        built=len(record.steps) - cached,
        cached=cached,
        results=tuple(shown),
        failures=tuple(_shortened(redact(text)) for text in failures),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
