"""The whole flow, killed at random moments: it completes when run again, as if undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from whole_flow import published, run_command, run_whole, write_whole_flow

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("BERTLOOM_KILLS", "4"))
"""Moments, each drawn from its own part of the flow's duration, so that all of it is met."""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole_flow(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def undisturbed(
    recipe: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], float]:
    """What a run that nobody disturbs publishes, and the seconds it takes."""
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    began = time.monotonic()
    done = run_whole(recipe, store)
    assert done.returncode == 0, done.stderr
    return published(store), time.monotonic() - began


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
    number: int, recipe: Path, undisturbed: tuple[dict[str, str], float], tmp_path: Path
) -> None:
    expected, seconds = undisturbed
    moment = (number + np.random.default_rng([5, number]).random()) / KILLS * seconds
    store = tmp_path / "store"
    # On a machine that is faster now than it was then, the run may be over: it is killed sooner.
    while not _kill_after(moment, recipe, store):
        moment, store = moment * 0.7, tmp_path / f"store-{moment:.3f}"
    again = run_whole(recipe, store)
    assert again.returncode == 0, again.stderr
    assert published(store) == expected
    verified = subprocess.run(
        run_command("verify", "--store", str(store)), check=False, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout
    assert not list((store / "work").rglob("*.safetensors"))
