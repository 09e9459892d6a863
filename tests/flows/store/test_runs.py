"""Heartbeats of runs, and records of runs that ended without saying so."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import MISSING_PID, write_heartbeat, write_run

from flows.store import runs
from flows.store.activity import Heartbeat
from flows.store.artifacts import ArtifactStore
from flows.store.runs import (
    RunRecord,
    find_run,
    list_runs,
    mark_crashed_runs,
    read_run,
)
from schemas.errors import ArtifactNotFoundError, ConfigError


def test_runs_that_ended_without_saying_so_are_listed_as_crashed(store: ArtifactStore) -> None:
    for run_id, heartbeat in (
        ("beating", {"host": "elsewhere", "age": 30.0}),
        ("silent", {"host": "elsewhere", "age": 90.0}),
        ("gone", {"pid": MISSING_PID}),
        ("suspended", {"age": 48 * 3600.0}),
        ("no-heartbeat", None),
    ):
        write_run(store, run_id, state="running")
        if heartbeat is not None:
            write_heartbeat(store, run_id, **heartbeat)
    listed = {run_id: getattr(run, "state", "") for run_id, run in list_runs(store).items()}
    assert {run_id for run_id, state in listed.items() if state == "crashed"} == {
        "silent", "gone", "no-heartbeat",
    }  # fmt: skip
    assert read_run(store, "gone").state == "running"  # the list changes no record


def test_run_that_ends_while_runs_are_listed_is_not_crashed(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(store, "a", state="running")

    def end_run(_: ArtifactStore) -> dict[str, Heartbeat]:
        write_run(store, "a")
        return {}

    monkeypatch.setattr(runs, "read_heartbeats", end_run)
    [record] = list_runs(store).values()
    assert isinstance(record, RunRecord)
    assert record.state == "completed"


def test_only_running_records_of_gone_processes_are_marked(store: ArtifactStore) -> None:
    store.backend.replace("runs/a/run.json", b"{")  # damaged
    write_run(store, "b", state="completed", pid=MISSING_PID)
    write_run(store, "c", state="running")
    write_run(store, "d", state="running", pid=MISSING_PID)
    assert mark_crashed_runs(store, recipe=read_run(store, "d").recipe_name) == ["d"]
    states = [read_run(store, run_id).state for run_id in "bcd"]
    assert states == ["completed", "running", "crashed"]


def test_run_is_found_by_id_prefix_or_recipe(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    for run_id, recipe in (("20260101-aa", "one"), ("20260101-ab", "two"), ("20260102-ac", "one")):
        write_run(store, run_id, recipe={"name": recipe})
    store.backend.replace("runs/20260103-ad/run.json", b"{")
    cases = {"20260101-aa": False, "20260102": True, "two": True, "20260101-ab": True}
    results = {name: find_run(store, name) for name in cases}
    assert {name: is_last for name, (_, is_last) in results.items()} == cases
    assert results["20260102"][0].run_id == "20260102-ac"
    assert find_run(store, "one")[0].run_id == "20260102-ac"
    with pytest.raises(ConfigError):
        find_run(store, "20260101")
    with pytest.raises(ArtifactNotFoundError):
        find_run(store, "three")
