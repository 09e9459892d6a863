"""A run that is killed in the middle of any stage loses nothing and changes nothing."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from support.corpus_builder import small_recipe_file
from support.recipe_runs import kill, published, run_recipe_file, start_recipe_file

from pipelines.io.file_systems import file_system

STEPS = ["build-documents", "build-vocabulary", "build-tokens", "build-instances"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_recipe_file(tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    run_recipe_file(recipe, store, check=True)
    return published(store)


def _kill_in(step: str, recipe: Path, store: str, *options: str) -> bool:
    """Start a run and kill it when a step starts to write; False if the step has ended by then."""
    fs, path = file_system(store)
    process = start_recipe_file(recipe, store, *options)
    try:
        while process.poll() is None and not fs.glob(f"{path}/artifacts/{step}/*/data/*"):
            time.sleep(0.002)
    finally:
        was_killed = kill(process)
    return was_killed and not fs.exists(f"{path}/keys/{step}")


def test_runs_killed_in_each_step_are_completed_by_next_run(
    recipe: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for number, step in enumerate(STEPS):
        folders = (tmp_path / f"{step}-{attempt}" for attempt in range(5))
        copies = (shutil.copytree(store, folder) for folder in folders)
        killed = next((copy for copy in copies if _kill_in(step, recipe, str(copy))), None)
        assert killed is not None, f"{step} ended each time before the signal"
        assert {name.split()[0] for name in published(killed)} == set(STEPS[:number])
        store = killed
    run_recipe_file(recipe, store, check=True)
    assert published(store) == undisturbed


@pytest.mark.network
def test_killed_run_on_s3_resumes(bucket: str, recipe: Path, undisturbed: dict[str, str]) -> None:
    store, workers = f"{bucket}/store", ("--workers", "2")
    for step in ("build-documents", "build-instances"):
        assert _kill_in(step, recipe, store, *workers)
    done = run_recipe_file(recipe, store, *workers, check=True)
    assert "reused" in done.stdout
    assert published(store) == undisturbed
