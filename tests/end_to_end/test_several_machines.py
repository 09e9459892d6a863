"""One command on two machines: the same model as on one, also if a machine is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.held_training import hold_before_checkpoint
from support.recipe_runs import run_recipe_file
from support.several_machines import Machine, kill_all, two_machines
from support.tiny_recipe import RECIPE, TEXTS
from support.waiting import wait_until

from flows.store.artifacts import ArtifactStore

pytestmark = pytest.mark.slow

_PRETRAIN = """
pretrain:
  first:
    instances: length-32
    model: {num_hidden_layers: 2, hidden_size: 32, num_attention_heads: 2}
    budget: {max_steps: 30}
    batch: {global_batch_size: 8, per_device_max_tokens: 256}
    checkpoints: {save_steps: 10}
    num_threads: 1
    logging_steps: 10
"""


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine, str]]:
    with two_machines() as found:
        yield found


def _digest(store: Path) -> str:
    [pointer] = ArtifactStore(str(store)).pointers("pretrain")
    return pointer.content_digest


def _wait_for_checkpoint(store: Path, process: subprocess.Popen[bytes]) -> int:
    """Wait until a training has saved a checkpoint; return its step."""
    pattern = "work/pretrain/*/checkpoints/step-*"
    wait_until(lambda: process.poll() is not None or list(store.glob(pattern)))
    [checkpoint, *_] = store.glob(pattern)
    return int(checkpoint.name.split("-")[1])


def test_two_machines_train_the_model_of_one_when_one_is_killed(
    machines: tuple[Machine, Machine, str], tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS * 4), encoding="utf-8")
    recipe, store = tmp_path / "tiny.yaml", tmp_path / "store"
    recipe.write_text(RECIPE.format(store=store) + _PRETRAIN, encoding="utf-8")
    two_processes = ("--set", "pretrain.first.num_processes=2")
    run_recipe_file(recipe, store, *two_processes, check=True, cwd=tmp_path)
    expected = _digest(store)

    first, second, endpoint = machines
    release = tmp_path / "release"
    held = hold_before_checkpoint(20, folder=tmp_path / "held", release=release)
    command = ["run", str(recipe), "--engine", "local", "--rebuild", "pretrain.first"]
    command += ["--nnodes", "2", "--rdzv-endpoint", endpoint]
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    running = [first.start(*command, "--node-rank", "0", log=logs[0], **held)]
    try:
        running.append(second.start(*command, log=logs[1], SLURM_NODEID="1"))
        step = _wait_for_checkpoint(store, running[0])
        kill_all(running[1])
        release.touch()
        running.append(second.start(*command, log=logs[1], SLURM_NODEID="1"))
        codes = [running[number].wait(300) for number in (0, 2)]
    finally:
        for process in running:
            kill_all(process)
    texts = [log.read_text() for log in logs]
    assert codes == [0, 0], texts
    assert step == 10
    assert "lost machine 1" in texts[0]
    assert texts[1].count("joined run") == 2
    assert _digest(store) == expected
