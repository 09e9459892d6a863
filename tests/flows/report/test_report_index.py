"""The page of all runs: complete, escaped, correct when runs end at the same time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.cli_runner import Cli
from support.store_builder import write_heartbeat

from flows.report import index
from flows.report.index import INDEX_PAGE, RunRow, read_rows, write_index
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import this_process
from flows.store.runs import RunRecord, StepRecord, run_ids, write_run

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


def test_index_lists_all_runs_newest_first(store: ArtifactStore, cli: Cli) -> None:
    put_run(store, 1)
    put_run(store, 2, state="failed", failures={"build-tokens": f"RunnerError: {HOSTILE}"})
    put_run(store, 3, state="running", system="another machine")
    write_heartbeat(store, run_ids(store)[-1])
    done = cli("report", "--index", "--store", store.root)
    assert (done.code, INDEX_PAGE in done.out) == (0, True)
    page = page_of(store)
    assert names(page) == ["recipe-3", "recipe-2", "recipe-1"]
    assert "<script" not in page
    assert "build-tokens: RunnerError: &lt;script&gt;" in page
    assert [row.state for row in read_rows(store)] == ["running", "failed", "completed"]
    assert "report.html" not in page  # no run has a page
    store.backend.replace("runs/20260101t000001000-00000001/report.html", b"x")
    write_index(store)
    assert page_of(store).count('href="../runs/20260101t000001000-00000001/report.html"') == 1
    assert cli("report", "some-run", "--index", "--store", store.root).code == 2


def test_runs_that_end_at_the_same_time_are_both_listed(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_index(store)
    put_run(store, 1)
    calls = list[int]()

    def read_then_lose(current: ArtifactStore, **options: Any) -> list[RunRow]:
        rows = read_rows(current, **options)
        if not calls:  # the other run ends between reading and writing
            calls.append(1)
            put_run(current, 2)
            write_index(current)
        return rows

    monkeypatch.setattr(index, "read_rows", read_then_lose)
    write_index(store)
    assert names(page_of(store)) == ["recipe-2", "recipe-1"]


def test_records_of_finished_runs_are_read_once(store: ArtifactStore) -> None:
    first = put_run(store, 1, state="failed")
    second = put_run(store, 2, state="interrupted")
    write_index(store)
    for record in (first, second):
        write_run(store, record.model_copy(update={"state": "completed"}))
    states = [row.state for row in read_rows(store)]
    assert states == ["completed", "failed"]  # an interrupted run may still write its record
    write_index(store, refresh=[first.run_id])
    assert "pill failed" not in page_of(store)
    store.backend.replace("reports/index.json", b"{}x")  # damaged: all are read again
    assert [row.recipe for row in read_rows(store)] == ["recipe-2", "recipe-1"]


def test_missing_and_damaged_records_are_rows(store: ArtifactStore) -> None:
    path = "artifacts/build-tokens/x/manifest.json"
    step = StepRecord(label="build-tokens", manifest=path, was_cached=True, seconds=1.0)
    put_run(store, 1, steps=(step,))
    store.backend.replace("runs/20260101t000002000-00000002/run.json", b"{}x")
    corrupt, completed = read_rows(store)
    assert (corrupt.state, completed.state) == ("corrupt", "completed")
    assert "20260101t000002000-00000002" in corrupt.failures[0]
    assert completed.result == ""  # its manifest is missing
