"""`reports/index.html`: the newest runs of a store on one page.

Each run writes the page when it ends, from the records of all runs. Of two runs that end at the
same time, the page can lack one until the next run ends or `bertloom report` is called.
"""

from __future__ import annotations

from typing import NamedTuple

from flows.report.headline import find_headline
from flows.report.rendering import INDEX_PAGE, render
from flows.report.results import read_tables
from flows.report.run_steps import Steps, run_seconds
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, list_runs, report_path, run_ids, write_run
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.redaction import redact

_MAX_RUNS = 200
_MAX_CHARACTERS = 400
"""Maximum length of an error."""


class RunRow(NamedTuple):
    """A run as the index shows it."""

    run_id: str
    state: str
    recipe: str = "?"
    engine: str = ""
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


def write_index(store: ArtifactStore) -> str:
    """Write the page of the newest runs, and return its URL."""
    rows = read_rows(store, max_runs=_MAX_RUNS)
    older = len(run_ids(store)) - len(rows)
    page = render("index.html.j2", runs=rows, older=older, store=store.root)
    store.backend.replace(INDEX_PAGE, page.encode())
    return store.url(INDEX_PAGE)


def read_rows(store: ArtifactStore, *, max_runs: int | None = None) -> list[RunRow]:
    """Return a row for every run with a record, or the newest ones, newest first."""
    newest = run_ids(store)[::-1][:max_runs]
    pages = set(store.backend.names("runs"))
    return [
        _make_row(run_id, record)._replace(has_page=report_path(run_id) in pages)
        for run_id, record in list_runs(store, newest).items()
    ]


def _make_row(run_id: str, record: RunRecord | ArtifactCorruptError) -> RunRow:
    if not isinstance(record, RunRecord):
        return RunRow(run_id, "corrupt", failures=(_shorten(str(record)),))
    failures = (f"{label}: {text}" if label else text for label, text in record.failures.items())
    cached = sum(step.was_cached for step in record.steps)
    return RunRow(
        run_id=run_id,
        state=record.state,
        recipe=record.recipe_name,
        engine=record.engine,
        started=record.started,
        seconds=run_seconds(record),
        planned=len(record.planned),
        built=len(record.steps) - cached,
        cached=cached,
        result=record.headline,
        failures=tuple(_shorten(redact(text)) for text in failures),
    )


def write_headline(store: ArtifactStore, record: RunRecord, steps: Steps) -> None:
    """Write the headline of a run into its record, from which the index takes it."""
    tables = steps.last_of_type("tables")
    try:
        headline = find_headline(steps, read_tables(store, tables.manifest) if tables else None)
    except StoreError as error:
        headline = _shorten(str(error))
    write_run(store, record.model_copy(update={"headline": headline}))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."
