"""The page of all runs: complete, escaped, drawn from the records of the runs."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from support.lineage_builder import put_recipe
from support.store_builder import write_heartbeat

from flows.report import index
from flows.report.index import INDEX_PAGE, read_rows, write_index
from flows.report.listener import write_run_report
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import this_process
from flows.store.runs import RunRecord, StepRecord, read_run, run_ids, write_run

HOSTILE = "<script>alert(1)</script>"


def put_run(store: ArtifactStore, number: int, **changes: Any) -> RunRecord:
    fields = {
        "run_id": f"20260101t0000{number:02d}000-{number:08x}",
        "state": "completed",
        "started": f"2026-01-01T00:00:{number:02d}+00:00",
        "updated_at": f"2026-01-01T00:01:{number:02d}+00:00",
        **this_process().model_dump(),
        "recipe": {"name": f"recipe-{number}"},
        "planned": ("build-tokens",),
    }
    record = RunRecord(**{**fields, **changes})
    write_run(store, record)
    return record


def page_of(store: ArtifactStore) -> str:
    return store.backend.read(INDEX_PAGE).decode()


def names(page: str) -> list[str]:
    return re.findall(r"recipe-\d+", page)


def test_index_lists_all_runs_newest_first(store: ArtifactStore) -> None:
    put_run(store, 1)
    put_run(store, 2, state="failed", failures={"build-tokens": f"RunnerError: {HOSTILE}"})
    put_run(store, 3, state="running", system="another machine")
    write_heartbeat(store, run_ids(store)[-1])
    write_index(store)
    page = page_of(store)
    assert names(page) == ["recipe-3", "recipe-2", "recipe-1"]
    assert "<script" not in page
    assert "build-tokens: RunnerError: &lt;script&gt;" in page
    assert [row.state for row in read_rows(store)] == ["running", "failed", "completed"]
    assert "report.html" not in page  # no run has a page
    store.backend.replace("runs/20260101t000001000-00000001/report.html", b"x")
    write_index(store)
    assert page_of(store).count('href="../runs/20260101t000001000-00000001/report.html"') == 1


def test_index_is_drawn_from_records_each_time(store: ArtifactStore) -> None:
    step = StepRecord(label="a", manifest="artifacts/a/m.json", was_cached=True, seconds=1.0)
    first = put_run(store, 1, state="interrupted", steps=(step,), headline=HOSTILE)
    write_index(store)
    assert "&lt;script&gt;" in page_of(store)
    write_run(store, first.model_copy(update={"state": "failed", "headline": "CoLA 50.0"}))
    write_index(store)
    page = page_of(store)
    assert "pill failed" in page
    assert "pill interrupted" not in page
    assert "CoLA 50.0" in page
    assert "1 cached" in page  # the manifest of the step, which is missing, is not read
    assert store.backend.names("reports") == [INDEX_PAGE]


def test_index_shows_newest_runs_and_counts_the_older_ones(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MAX_RUNS", 2)
    for number in range(1, 6):
        put_run(store, number)
    write_index(store)
    assert names(page_of(store)) == ["recipe-5", "recipe-4"]
    assert "And 3 older runs" in page_of(store)
    assert len(read_rows(store)) == 5


def test_report_writes_headline_of_its_run_into_the_record(store: ArtifactStore) -> None:
    put_recipe(store)
    record = read_run(store, run_ids(store)[-1])
    assert write_run_report(store, record)
    headline = read_run(store, record.run_id).headline
    [row] = read_rows(store)
    assert row.result == headline
    assert headline
    assert headline in html.unescape(page_of(store))


def test_missing_and_damaged_records_are_rows(store: ArtifactStore) -> None:
    path = "artifacts/build-tokens/x/manifest.json"
    step = StepRecord(label="build-tokens", manifest=path, was_cached=True, seconds=1.0)
    put_run(store, 1, steps=(step,))
    store.backend.replace("runs/20260101t000002000-00000002/run.json", b"{}x")
    corrupt, completed = read_rows(store)
    assert (corrupt.state, completed.state) == ("corrupt", "completed")
    assert "20260101t000002000-00000002" in corrupt.failures[0]
    assert completed.result == ""  # its manifest is missing
