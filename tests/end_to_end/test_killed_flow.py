"""The whole flow completes after it was killed at random moments. Its OpenLineage events."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.full_recipe import write_whole_flow
from support.lineage_schema import LineageSchemas
from support.recipe_runs import (
    command_line,
    kill,
    published,
    run_recipe_file,
    start_recipe_file,
)

from flows.bert import recipe_steps
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
    """A run without interruption."""

    store: Path
    published: dict[str, str]
    seconds: float
    events: Path
    """File with its OpenLineage events."""


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> _Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    store, events = folder / "store", folder / "events.ndjson"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
        patch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(events))
        patch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
        clock = time.monotonic()
        process = run_recipe_file(recipe, store)
        seconds = time.monotonic() - clock
    assert process.returncode == 0, process.stderr
    return _Undisturbed(store, published(store), seconds, events)


def test_events_of_whole_flow_are_valid_and_name_each_artifact(
    recipe: Path, undisturbed: _Undisturbed, real_data: Path
) -> None:
    schemas = LineageSchemas(real_data / "openlineage-spec")
    events = [json.loads(line) for line in undisturbed.events.read_text().splitlines()]
    assert [error for event in events for error in schemas.errors(event)] == []
    store = ArtifactStore(str(undisturbed.store))
    (run_id,) = run_ids(store)
    manifests = [store.read_manifest(step.manifest) for step in read_run(store, run_id).steps]
    outputs = [dataset for event in events for dataset in event["outputs"]]
    assert [dataset["facets"]["version"]["datasetVersion"] for dataset in outputs] == [
        manifest.content_digest for manifest in manifests
    ]
    labels = [step.label for step in recipe_steps(load_recipe(str(recipe)))]
    assert [dataset["name"].partition("/")[2] for dataset in outputs] == labels
    stages = {manifest.stage for manifest in manifests}
    assert {"pretrain", "build-examples", "finetune", "evaluate", "tabulate"} < stages


def _kill_after(seconds: float, recipe: Path, store: Path) -> bool:
    """Start a run and kill it after some time; return False if it has ended before."""
    process = start_recipe_file(recipe, store)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return kill(process)


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
    again = run_recipe_file(recipe, store)
    assert again.returncode == 0, again.stderr
    assert published(store) == undisturbed.published
    verified = subprocess.run(
        command_line("verify", "--store", str(store)), capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout
    assert not list((store / "work").rglob("*.safetensors"))
