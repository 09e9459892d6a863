"""A run that is killed in the middle of any stage loses nothing and changes nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.corpus_builder import small_recipe_file
from support.recipe_runs import kill, published, run_recipe_file, start_recipe_file

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


def _kill_in(step: str, recipe: Path, store: Path) -> bool:
    """Start a run and kill it when a step starts to write; False if the step has ended by then."""
    process = start_recipe_file(recipe, store)
    try:
        while process.poll() is None and not any((store / "artifacts" / step).glob("*/data/*")):
            time.sleep(0.002)
    finally:
        was_killed = kill(process)
    return was_killed and not (store / "keys" / step).exists()


@pytest.mark.parametrize("step", STEPS)
def test_killed_run_is_completed_by_next_run(
    step: str, recipe: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    stores = (tmp_path / f"store{attempt}" for attempt in range(5))
    store = next((store for store in stores if _kill_in(step, recipe, store)), None)
    assert store is not None, f"{step} ended each time before the signal"
    assert {name.split()[0] for name in published(store)} == set(STEPS[: STEPS.index(step)])
    run_recipe_file(recipe, store, check=True)
    assert published(store) == undisturbed
