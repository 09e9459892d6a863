"""Heartbeats of runs, and records of runs that ended without saying so."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.store_builder import MISSING_PID, write_run

from flows.store import runs
from flows.store.artifacts import ArtifactStore
from flows.store.leases import acquire_or_holder
from flows.store.runs import (
    Heartbeat,
    find_run,
    list_runs,
    read_run,
    reconcile_runs,
    run_ids,
)
from schemas.errors import ArtifactNotFoundError, ConfigError

HOUR = 3600.0
RUN = "20260101t000000-aa"


def set_heartbeat(store: ArtifactStore, run_id: str, *, age: float) -> None:
    """Set the time of the last heartbeat of a run, in seconds before now."""
    then = time.time() - age
    for path in store.backend.names(f"runs/{run_id}"):
        os.utime(store.url(path), (then, then))


def test_heartbeat_is_written_until_stopped(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "HEARTBEAT_SECONDS", 0.02)
    write_run(store, RUN, state="running")
    set_heartbeat(store, RUN, age=2 * HOUR)
    heartbeat = Heartbeat(store, RUN)
    heartbeat.start()
    while runs.last_heartbeats(store)[RUN] < time.time() - HOUR:
        time.sleep(0.02)
    heartbeat.stop()
    set_heartbeat(store, RUN, age=2 * HOUR)
    time.sleep(0.2)
    assert runs.last_heartbeats(store)[RUN] < time.time() - HOUR


def test_ended_runs_are_marked_as_crashed_unless_they_hold_a_lease(store: ArtifactStore) -> None:
    for run_id, fields, age in (
        ("beating", {"host": "elsewhere"}, 60.0),
        ("silent", {"host": "elsewhere"}, HOUR),
        ("gone", {"pid": MISSING_PID}, 1.0),
        ("here", {}, 48 * HOUR),
        ("training", {"host": "elsewhere"}, 48 * HOUR),
    ):
        write_run(store, run_id, state="running", **fields)
        set_heartbeat(store, run_id, age=age)
    listed = {run_id: getattr(run, "state", "") for run_id, run in list_runs(store).items()}
    with acquire_or_holder(store, "pretrain", "k", holder="training"):
        reconciled = reconcile_runs(store)
    assert {run_id for run_id, one in reconciled.items() if one.is_over} == {"silent", "gone"}
    states = {run_id: read_run(store, run_id).state for run_id in run_ids(store)}
    assert {run_id for run_id, state in states.items() if state == "crashed"} == {"silent", "gone"}
    assert listed == {**states, "training": "crashed"}
    reconciled = reconcile_runs(store)
    assert [run_id for run_id, one in reconciled.items() if one.is_over] == ["training"]


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
