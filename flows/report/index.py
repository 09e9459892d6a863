"""`reports/index.html`: every run of a store on one page, newest first.

Each run writes the page when it ends, by compare-and-swap with the page that it read before the
records: of two runs that end at the same time, the later writer has read both. Rows of finished
runs are cached in `reports/index.json`, so that only records of later runs are read.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from flows.report.headline import find_headline
from flows.report.rendering import INDEX_PAGE, render
from flows.report.results import read_tables
from flows.report.run_steps import Steps, read_steps, run_seconds
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, list_runs, report_path, run_ids
from schemas.errors import StoreError
from schemas.json_files import dump_json, load_json
from schemas.redaction import redact

_CACHE = "reports/index.json"
_MAX_TRIES = 20
_MAX_CHARACTERS = 400
"""Maximum length of an error."""


class RunRow(BaseModel):
    """A run as the index shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    recipe: str = "?"
    state: str
    engine: str
    started: str = ""
    seconds: float | None = None
    planned: int = 0
    """Number of steps."""

    built: int = 0
    cached: int = 0
    result: str = ""
    """Headline of the run's report."""

    failures: tuple[str, ...] = ()
    """Error of each failed step."""

    has_page: bool = False

    @property
    def is_final(self) -> bool:
        """True if the record is final. An interrupted run may still write its record."""
        return self.state in ("completed", "failed", "crashed")


def write_index(store: ArtifactStore, *, own: tuple[RunRecord, Steps] | None = None) -> str:
    """Write the index of all runs.

    Args:
        store: Store of the runs.
        own: Record and steps of the run that writes it, which are not read again.

    Returns:
        URL of the page.

    Raises:
        StoreError: Other runs replace the page faster than it can be written.
    """
    for _ in range(_MAX_TRIES):
        before = store.backend.read_if_exists(INDEX_PAGE)
        rows = read_rows(store, own=own)
        final = {row.run_id: row.model_dump(mode="json") for row in rows if row.is_final}
        store.backend.replace(_CACHE, dump_json({"rows": final}))
        page = render("index.html.j2", runs=rows, store=store.root).encode()
        if page == before or store.backend.compare_and_swap(INDEX_PAGE, page, expected=before):
            return store.url(INDEX_PAGE)
    raise StoreError(
        f"{store.url(INDEX_PAGE)}: other runs replaced the page {_MAX_TRIES} times. "
        "Run `bertloom report --index`."
    )


def read_rows(store: ArtifactStore, *, own: tuple[RunRecord, Steps] | None = None) -> list[RunRow]:
    """Return a row for every run with a record, newest first; see `write_index`."""
    ids = run_ids(store)
    cached = _read_cache(store)
    if own is not None:
        cached[own[0].run_id] = _make_row(store, *own)
    others = [run_id for run_id in ids if run_id not in cached]
    read = {
        run_id: _make_row(store, record, read_steps(store, record))
        if isinstance(record, RunRecord)
        else RunRow(run_id=run_id, state="corrupt", engine="", failures=(str(record),))
        for run_id, record in (list_runs(store, others) if others else {}).items()
    }
    pages = set(store.backend.names("runs"))
    return [
        row.model_copy(update={"has_page": report_path(run_id) in pages})
        for run_id in reversed(ids)
        if (row := (cached | read).get(run_id)) is not None  # deleted since the listing
    ]


def _read_cache(store: ArtifactStore) -> dict[str, RunRow]:
    """Return the rows of finished runs; none if the file is missing, damaged or of other fields."""
    stored = store.backend.read_if_exists(_CACHE)
    try:
        rows = load_json(stored)["rows"] if stored else {}
        return {run_id: RunRow.model_validate(row) for run_id, row in rows.items()}
    except ValueError:
        return {}


def _make_row(store: ArtifactStore, record: RunRecord, steps: Steps) -> RunRow:
    failures = (f"{label}: {text}" if label else text for label, text in record.failures.items())
    return RunRow(
        run_id=record.run_id,
        recipe=record.recipe_name,
        state=record.state,
        engine=record.engine,
        started=record.started,
        seconds=run_seconds(record),
        planned=len(record.planned),
        built=steps.states["built"],
        cached=steps.states["cached"],
        result=_find_result(store, steps),
        failures=tuple(_shorten(redact(text)) for text in failures),
    )


def _find_result(store: ArtifactStore, steps: Steps) -> str:
    tables = steps.last_of_type("tables")
    try:
        return find_headline(steps, read_tables(store, tables.manifest) if tables else None)
    except StoreError as error:
        return _shorten(str(error))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."
