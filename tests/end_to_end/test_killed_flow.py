"""The whole flow, killed at random moments: it completes when run again, as if undisturbed.

And what the undisturbed run told of itself, which takes too long to be run twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.full_recipe import published, run_command, run_whole, write_whole_flow
from support.lineage_schema import Ours, Published, check_datasets

from flows.bert import recipe_steps
from flows.lineage.export.event_file import read_events
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("BERTLOOM_KILLS", "1"))
"""Moments, each drawn from its own part of the flow's duration, so that all of it is met."""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole_flow(tmp_path_factory.mktemp("whole"))


class _Undisturbed(NamedTuple):
    """A run that nobody disturbs."""

    store: Path
    published: dict[str, str]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> _Undisturbed:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    began = time.monotonic()
    done = run_whole(recipe, store)
    assert done.returncode == 0, done.stderr
    return _Undisturbed(store, published(store), time.monotonic() - began)


def test_events_of_the_whole_flow_are_valid_and_name_each_artifact(
    recipe: Path, undisturbed: _Undisturbed, real_data: Path
) -> None:
    """Built, and then found."""
    again = run_whole(recipe, undisturbed.store)
    assert again.returncode == 0, again.stderr
    store = ArtifactStore(str(undisturbed.store))
    schemas = (Published(real_data / "openlineage-spec"), Ours())
    expected = [step.label for step in recipe_steps(load_recipe(str(recipe)))]
    caches = []
    for run_id in sorted(run_ids(store)):
        recorded = read_events(store, run_id)
        assert recorded.problems == []
        events = [found.event for found in recorded.events]
        assert [fault for event in events for one in schemas for fault in one.faults(event)] == []
        record = read_run(store, run_id)
        made = {step.label: store.read_manifest(step.manifest) for step in record.steps}
        assert sorted(made) == sorted(expected)
        check_datasets(load_recipe(str(recipe)), made, events)
        caches.append({step.was_cached for step in record.steps})
    assert caches == [{False}, {True}]
    stages = {step.partition(".")[0] for step in expected}
    assert {"pretrain", "build-examples", "finetune", "evaluate", "tabulate"} < stages


def _kill_after(seconds: float, recipe: Path, store: Path) -> bool:
    """Start a run and kill it and all it started; whether it was still running."""
    process = subprocess.Popen(
        run_command("run", str(recipe), "--store", str(store), "--engine", "local"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_a_random_moment(
    number: int, recipe: Path, undisturbed: _Undisturbed, tmp_path: Path
) -> None:
    seconds = undisturbed.seconds
    moment = (number + np.random.default_rng([5, number]).random()) / KILLS * seconds
    store = tmp_path / "store"
    # On a machine that is faster now than it was then, the run may be over: it is killed sooner.
    while not _kill_after(moment, recipe, store):
        moment, store = moment * 0.7, tmp_path / f"store-{moment:.3f}"
    again = run_whole(recipe, store)
    assert again.returncode == 0, again.stderr
    assert published(store) == undisturbed.published
    verified = subprocess.run(
        run_command("verify", "--store", str(store)), check=False, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout
    assert not list((store / "work").rglob("*.safetensors"))
