"""A run that is killed in the middle of any stage loses nothing and changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.corpus_builder import small_recipe_file

STEPS = ["build-documents", "build-vocabulary", "build-tokens", "build-instances"]
pytestmark = pytest.mark.slow


def _command(recipe: Path, store: Path) -> list[str]:
    code = "from flows.cli.app import main; main()"
    run = ["run", str(recipe), "--store", str(store), "--engine", "local"]
    return [sys.executable, "-c", code, *run]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_recipe_file(tmp_path_factory.mktemp("killed"))


def _contents(store: Path) -> dict[str, str]:
    """Content digest by stage, of what is published."""
    pointers = [json.loads(path.read_text()) for path in (store / "keys").rglob("*.json")]
    return {pointer["stage"]: pointer["content_digest"] for pointer in pointers}


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    subprocess.run(_command(recipe, store), check=True, capture_output=True)
    return _contents(store)


def _kill_in(step: str, recipe: Path, store: Path) -> bool:
    """Start a run and kill it when the step has begun to write; False if it was done by then."""
    process = subprocess.Popen(
        _command(recipe, store),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    folder = store / "artifacts" / step
    try:
        while process.poll() is None:
            if any(folder.glob("*/data/*")):
                break
            time.sleep(0.002)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode == -signal.SIGKILL and not (store / "keys" / step).exists()


@pytest.mark.parametrize("step", STEPS)
def test_killed_run_is_completed_by_next_run(
    step: str, recipe: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    stores = (tmp_path / f"store{attempt}" for attempt in range(5))
    store = next((store for store in stores if _kill_in(step, recipe, store)), None)
    assert store is not None, f"{step} was over each time before the signal came"
    before = _contents(store) if (store / "keys").exists() else {}
    assert set(before) == set(STEPS[: STEPS.index(step)])
    subprocess.run(_command(recipe, store), check=True, capture_output=True)
    assert _contents(store) == undisturbed
