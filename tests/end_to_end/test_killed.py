"""A run that is killed in the middle of any stage loses nothing and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.corpus_builder import small_recipe_file
from support.recipe_runs import kill, published, run_recipe_file, start_recipe_file
from support.waiting import wait_until

from flows.recipes.loader import load_recipe
from flows.running import run_recipe
from pipelines.io.file_systems import file_system

STEPS = ["build-documents", "build-vocabulary", "build-tokens", "build-instances"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_recipe_file(tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    run_recipe(load_recipe(str(recipe), store=str(store)), log=lambda _: None, engine="local")
    return published(store)


def _kill_in(step: str, recipe: Path, store: str, *options: str) -> None:
    """Start a run and kill it when a step has begun to write, before it publishes."""
    fs, path = file_system(store)
    process = start_recipe_file(recipe, store, *options, held=step)
    try:
        pattern = f"{path}/artifacts/{step}/*/data/*"
        wait_until(lambda: process.poll() is not None or fs.glob(pattern))
    finally:
        was_killed = kill(process)
    assert was_killed
    assert not fs.exists(f"{path}/keys/{step}")


def test_runs_killed_in_each_step_are_completed_by_next_run(
    recipe: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    for number, step in enumerate(STEPS):
        _kill_in(step, recipe, str(store))
        assert {name.split()[0] for name in published(store)} == set(STEPS[:number])
    run_recipe_file(recipe, store, check=True)
    assert published(store) == undisturbed


@pytest.mark.network
def test_killed_run_on_s3_resumes(bucket: str, recipe: Path, undisturbed: dict[str, str]) -> None:
    store, workers = f"{bucket}/store", ("--workers", "2")
    for step in ("build-documents", "build-instances"):
        _kill_in(step, recipe, store, *workers)
    done = run_recipe_file(recipe, store, *workers, check=True)
    assert "reused" in done.stdout
    assert published(store) == undisturbed
