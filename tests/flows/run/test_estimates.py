"""Estimates of time and disk space: measured rates, artifacts of the store, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.cli_runner import RECIPE, Cli

import bertloom
from flows.run import estimates
from flows.run.estimates import TRAINING_START, StepEstimate, format_estimate
from flows.run.plan import PlannedStep, estimate_run
from flows.run.preflight import check_disk_space
from schemas.errors import ConfigError

TRAINED = """
pretrain:
  one: {instances: length-64, model: {preset: tiny}, budget: {max_steps: 1000}, device: cpu}
  two: {instances: length-64, model: {preset: tiny}, budget: {max_minutes: 3}, device: cpu}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "texts").mkdir()
    for number in range(4):
        (tmp_path / "texts" / f"{number}.txt").write_text("A lantern in the window. " * 400)
    (tmp_path / "recipe.yaml").write_text(f"{RECIPE}{TRAINED}store: store\n")
    return str(tmp_path / "recipe.yaml")


def step_estimates(recipe: str, *changes: str) -> dict[str, StepEstimate]:
    planned = bertloom.plan(bertloom.load_recipe(recipe, overrides=changes))
    return {step.label: step.estimate for step in planned if step.estimate is not None}


def test_volumes_go_from_step_to_step(recipe: str) -> None:
    estimates_by_label = step_estimates(recipe)
    assert 20_000 < estimates_by_label["build-tokens"].disk_bytes < 200_000
    start = TRAINING_START
    assert estimates_by_label["pretrain.two"].seconds == 180 + start
    twice = step_estimates(recipe, "pretrain.one.budget.max_steps=2000")["pretrain.one"].seconds
    once = estimates_by_label["pretrain.one"].seconds
    assert once is not None
    assert twice is not None
    assert twice - start == pytest.approx(2 * (once - start))


def test_earlier_artifacts_of_store_decide(cli: Cli, recipe: str) -> None:
    before = step_estimates(recipe)["build-documents"]
    assert cli("run", recipe, "--engine", "local", "--until", "build-documents").code == 0
    planned = bertloom.plan(recipe, rebuild=["build-documents"], until="build-documents")
    store = bertloom.open_store(str(Path(recipe).parent / "store"))
    took = store.artifact("build-documents").manifest.produced_by.seconds
    assert planned[0].estimate is not None
    assert planned[0].estimate.seconds != before.seconds
    assert planned[0].estimate.seconds == pytest.approx(took, rel=0.1)
    plan = json.loads(cli("plan", recipe, "--json").out)
    assert plan["estimate"]["free_bytes"] > 0
    assert plan["steps"][0]["estimate"] is None


def test_steps_without_estimate_are_named() -> None:
    seconds = {"build-tokens": 60.0, "finetune.a.r0": None, "finetune.a.r1": None, "tabulate": None}
    planned = [PlannedStep(k, "build", estimate=StepEstimate(v)) for k, v in seconds.items()]
    estimate = estimate_run(planned)
    assert estimate.unknown == {"finetune": 2, "tabulate": 1}
    line = format_estimate(estimate, store="s3://bucket/store")
    assert "about 1 min 00 s" in line
    assert "2 finetune, 1 tabulate" in line
    assert "unknown duration" in format_estimate(estimate_run(planned[1:]), store="x")


def test_run_that_disk_cannot_hold_is_refused(
    cli: Cli, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(
        estimates.shutil, "disk_usage", lambda path: real(path)._replace(free=1_000_000)
    )
    result = cli("run", recipe, "--engine", "local")
    assert result.code == 1
    assert "--ignore-disk-space" in result.err
    assert not (Path(recipe).parent / "store").exists()
    result = cli(
        "run", recipe, "--engine", "local", "--until", "build-documents", "--ignore-disk-space"
    )
    assert result.code == 0


def test_object_store_has_no_free_space_to_check() -> None:
    estimate = estimate_run([PlannedStep("one", "build", estimate=StepEstimate(1.0, 1 << 60))])
    check_disk_space(estimate, store="s3://bucket/store")
    assert "free" not in format_estimate(estimate, store="s3://bucket/store")
    with pytest.raises(ConfigError):
        check_disk_space(estimate, store="/")
