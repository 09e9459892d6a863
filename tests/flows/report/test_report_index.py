"""The page of all runs of a store: whole, escaped, with both of two that end at once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli

from flows.report import index
from flows.report.index import INDEX_PAGE, RunRow, read_rows, write_index
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import this_process
from flows.store.runs import RESUME_HINT, RunRecord, StepRecord, write_run
from schemas.checksummed import load_page

HOSTILE = "<script>alert(1)</script>"


def put_run(store: ArtifactStore, number: int, **changed: Any) -> RunRecord:
    fields = {
        "run_id": f"20260101t0000{number:02d}000-{number:08x}",
        "state": "completed",
        "started": f"2026-01-01T00:00:{number:02d}+00:00",
        "updated_at": f"2026-01-01T00:01:{number:02d}+00:00",
        **this_process().model_dump(),
        "recipe": {"name": f"recipe-{number}"},
        "planned": ("build-tokens",),
    }
    record = RunRecord(**{**fields, **changed})
    write_run(store, record)
    return record


def page_of(store: ArtifactStore) -> str:
    return load_page(store.backend.read(INDEX_PAGE)).decode()


def names(page: str) -> list[str]:
    return re.findall(r"recipe-\d+", page)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_all_runs_are_in_it_the_newest_first(tmp_path: Path, kind: str) -> None:
    store = ArtifactStore(str(tmp_path / "s") if kind == "disk" else f"memory://index{tmp_path}")
    put_run(store, 1)
    put_run(store, 2, state="failed", failures={"build-tokens": f"RunnerError: {HOSTILE}"})
    put_run(store, 3, state="running", system="another machine")
    write_index(store)
    page = page_of(store)
    assert names(page) == ["recipe-3", "recipe-2", "recipe-1"]
    assert RESUME_HINT not in page
    assert "<script" not in page
    assert "build-tokens: RunnerError: &lt;script&gt;" in page
    assert [row.state for row in read_rows(store)] == ["running", "failed", "completed"]
    assert "report.html" not in page  # none has been written
    store.backend.replace("runs/20260101t000001000-00000001/report.html", b"x")
    write_index(store)
    assert page_of(store).count('href="../runs/20260101t000001000-00000001/report.html"') == 1


def test_a_run_that_was_killed_says_why_it_is_over(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "s"))
    put_run(store, 1, state="running", process_start=0.5)
    [row] = read_rows(store)
    assert row.state == "crashed"
    assert str(os.getpid()) in row.failures[0]
    assert RESUME_HINT in row.failures[0]


def test_two_runs_that_end_at_once_are_both_in_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_index(store)
    put_run(store, 1)
    real, turns = read_rows, list[int]()

    def late(given: ArtifactStore, **more: Any) -> list[RunRow]:
        rows = real(given, **more)
        if not turns:  # the other run ends between our reading and our writing
            turns.append(1)
            put_run(given, 2)
            write_index(given)
        return rows

    monkeypatch.setattr(index, "read_rows", late)
    write_index(store)
    assert names(page_of(store)) == ["recipe-2", "recipe-1"]


def test_runs_that_are_over_are_read_once(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    real = index.list_runs

    def counting(given: ArtifactStore, ids: Any) -> Any:
        asked.extend(ids)
        return real(given, ids)

    monkeypatch.setattr(index, "list_runs", counting)
    first = put_run(store, 1, state="failed")
    put_run(store, 2, state="interrupted")
    write_index(store)
    asked.clear()
    put_run(store, 3)
    write_index(store)
    assert asked == ["20260101t000002000-00000002", "20260101t000003000-00000003"]
    write_run(store, first.model_copy(update={"state": "completed"}))
    write_index(store, anew=[first.run_id])
    assert "pill failed" not in page_of(store)
    store.backend.replace("reports/index.json", b"{}x")  # damaged: all are read again
    write_index(store)
    assert names(page_of(store)) == ["recipe-3", "recipe-2", "recipe-1"]


def test_what_cannot_be_read_is_said(store: ArtifactStore) -> None:
    step = StepRecord(
        label="build-tokens", manifest="artifacts/build-tokens/x/manifest.json", was_cached=True,
        seconds=1.0,
    )  # fmt: skip
    put_run(store, 1, steps=(step,))
    store.backend.replace("runs/20260101t000002000-00000002/run.json", b"{}x")
    rows = read_rows(store)
    assert [row.state for row in rows] == ["corrupt", "completed"]
    assert rows[1].results == ("build-tokens: its manifest is gone",)
    assert "20260101t000002000-00000002" in rows[0].failures[0]


def test_the_command_writes_it_anew(store: ArtifactStore, cli: Cli) -> None:
    put_run(store, 1)
    done = cli("report", "--index", "--store", store.root)
    assert done.code == 0
    assert INDEX_PAGE in done.out
    assert names(page_of(store)) == ["recipe-1"]
    assert cli("report", "some-run", "--index", "--store", store.root).code == 2
