"""`reports/index.html`: every run of a store on one page, newest first.

Each run writes the page when it ends, by compare-and-swap with the page that it read before the
records: of two runs that end at the same time, the later writer has read both. Rows of finished
runs are cached in `reports/index.json`, so that only records of later runs are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from flows.report.page import INDEX_PAGE, render
from flows.report.run_steps import run_seconds
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord, list_runs, run_ids
from schemas.checksummed import dump_json, dump_page, load_json
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest
from schemas.redaction import redact

_CACHE = "reports/index.json"
_MAX_TRIES = 20
_MAX_RESULTS = 6
_MAX_FAILURE = 400  # characters
_RESULT_TYPES = ("trial", "instances", "tokens", "vocabulary", "documents", "examples")
"""Artifact types that describe a run without evaluations and pretraining, best first."""


class RunRow(BaseModel):
    """A run as the index shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    run_id: str
    recipe: str = "?"
    state: str
    started: str = ""
    seconds: float | None = None
    planned: int = 0
    """Number of steps."""

    built: int = 0
    cached: int = 0
    results: tuple[str, ...] = ()
    """Summary of each result, after the label of its step."""

    failures: tuple[str, ...] = ()
    """Error of each failed step."""

    has_page: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the record does not change any more. Interrupted runs may still write theirs."""
        return self.state in ("completed", "failed", "crashed")


def write_index(store: ArtifactStore, *, refresh: Collection[str] = ()) -> str:
    """Write the index of all runs.

    Args:
        store: Store of the runs.
        refresh: Ids of finished runs to read again.

    Returns:
        URL of the page.

    Raises:
        StoreError: Other runs replace the page faster than it can be written.
    """
    for _ in range(_MAX_TRIES):
        before = store.backend.read_if_exists(INDEX_PAGE)
        rows = read_rows(store, refresh=refresh)
        page = dump_page(render("index.html.j2", runs=rows, store=store.root).encode())
        if page == before or store.backend.compare_and_swap(INDEX_PAGE, page, expected=before):
            return store.url(INDEX_PAGE)
    raise StoreError(
        f"{store.url(INDEX_PAGE)}: other runs replaced the page {_MAX_TRIES} times. "
        "Run `bertloom report --index`."
    )


def read_rows(store: ArtifactStore, *, refresh: Collection[str] = ()) -> list[RunRow]:
    """Return a row for every run with a record, newest first."""
    ids = run_ids(store)
    names = set(store.backend.names("runs"))
    cached = _read_cache(store)
    known = {run_id: cached[run_id] for run_id in ids if run_id in cached.keys() - set(refresh)}
    read = _read_runs(store, [run_id for run_id in ids if run_id not in known])
    rows = [
        row.model_copy(update={"has_page": f"runs/{run_id}/report.html" in names})
        for run_id, row in sorted({**known, **read}.items(), reverse=True)
    ]
    if any(row.is_final for row in read.values()):
        final = {row.run_id: row.model_dump(mode="json") for row in rows if row.is_final}
        store.backend.replace(_CACHE, dump_json({"rows": final}))
    return rows


def _read_cache(store: ArtifactStore) -> dict[str, RunRow]:
    """Return the rows of finished runs; none if the file is missing, damaged or of other fields."""
    stored = store.backend.read_if_exists(_CACHE)
    try:
        rows = load_json(stored)["rows"] if stored else {}
        return {run_id: RunRow.model_validate(row) for run_id, row in rows.items()}
    except ValueError:
        return {}


def _read_runs(store: ArtifactStore, ids: Sequence[str]) -> dict[str, RunRow]:
    runs = list_runs(store, ids) if ids else {}
    records = [record for record in runs.values() if isinstance(record, RunRecord)]
    manifests = store.manifests(step.manifest for run in records for step in _result_steps(run))
    return {
        run_id: _row(record, manifests)
        if isinstance(record, RunRecord)
        else RunRow(run_id=run_id, state="corrupt", failures=(str(record),))
        for run_id, record in runs.items()
    }


def _result_steps(record: RunRecord) -> Sequence[StepRecord]:
    """Return the steps whose artifacts are the result of a run."""
    by_type: dict[str, list[StepRecord]] = {}
    for step in record.steps:
        by_type.setdefault(get_stage(step.manifest.split("/")[1]).output_type, []).append(step)
    results = [*by_type.get("checkpoint", [])[-1:], *by_type.get("evaluation", [])]
    return results or next((by_type[t][-2:] for t in _RESULT_TYPES if t in by_type), [])


def _row(record: RunRecord, manifests: Mapping[str, Manifest | ArtifactCorruptError]) -> RunRow:
    cached = sum(step.was_cached for step in record.steps)
    results = []
    for step in _result_steps(record):
        manifest = manifests.get(step.manifest)
        text = summarize(manifest) if isinstance(manifest, Manifest) else "its manifest is missing"
        results.append(f"{step.label}: {text}")
    if len(results) > _MAX_RESULTS:
        results[_MAX_RESULTS:] = [f"and {len(results) - _MAX_RESULTS} more"]
    failures = (f"{label}: {text}" if label else text for label, text in record.failures.items())
    return RunRow(
        run_id=record.run_id,
        recipe=record.recipe_name,
        state=record.state,
        started=record.started,
        seconds=run_seconds(record),
        planned=len(record.planned),
        built=len(record.steps) - cached,
        cached=cached,
        results=tuple(results),
        failures=tuple(_shorten(redact(text)) for text in failures),
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_FAILURE else f"{text[:_MAX_FAILURE]} ..."
