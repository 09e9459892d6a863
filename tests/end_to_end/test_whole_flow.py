"""The whole flow: it completes after it was killed at random moments, and is reproduced."""

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
from support.cli_runner import Cli
from support.full_recipe import write_whole_flow
from support.recipe_runs import (
    command_line,
    kill,
    published,
    run_recipe_file,
    start_recipe_file,
)

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


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> _Undisturbed:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    clock = time.monotonic()
    process = run_recipe_file(recipe, store)
    seconds = time.monotonic() - clock
    assert process.returncode == 0, process.stderr
    return _Undisturbed(store, published(store), seconds)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another store, in which the first reproduction builds what the second one needs."""
    return tmp_path_factory.mktemp("again") / "store"


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


@pytest.mark.parametrize(
    "name", ["evaluate.cola:dev.accuracy", "finetune.cola.bs16-lr0.001-ep1-r0"]
)
def test_tuned_model_and_trial_are_reproduced(
    cli: Cli, undisturbed: _Undisturbed, again: Path, name: str
) -> None:
    result = cli(
        "reproduce", name, "--into", str(again), "--store", str(undisturbed.store), "--json"
    )
    assert result.code == 0, result.out + result.err
    labels = {step["label"] for step in json.loads(result.out)["steps"]}
    assert {"pretrain.second", name.partition(":")[0]} <= labels
