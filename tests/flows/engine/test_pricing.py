"""The price of a plan: by a table of rates, by a store's own artifacts; a disk too small."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.cli_runner import RECIPE, Cli

import bertloom
from flows.engine import pricing
from flows.engine.plan import price_of
from flows.engine.pricing import Expected, check_room, price_lines, rates, total
from schemas.errors import ConfigError

TRAINED = """
pretrain:
  one: {instances: length-64, model: {preset: tiny}, budget: {steps: 1000}, device: cpu}
  two: {instances: length-64, model: {preset: tiny}, budget: {minutes: 3}, device: cpu}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "texts").mkdir()
    for number in range(4):
        (tmp_path / "texts" / f"{number}.txt").write_text("A lantern in the window. " * 400)
    (tmp_path / "recipe.yaml").write_text(f"{RECIPE}{TRAINED}store: store\n")
    return str(tmp_path / "recipe.yaml")


def test_a_price_goes_through_the_chain(recipe: str) -> None:
    planned = {step.label: step.expected for step in bertloom.plan(recipe)}
    documents, tokens = planned["build-documents"], planned["build-tokens"]
    one, two = planned["pretrain.one"], planned["pretrain.two"]
    assert documents and tokens and one and two  # noqa: PT018
    assert documents.read_bytes == 4 * 25 * 400
    assert (documents.basis, documents.is_rough) == ("table", False)
    assert (tokens.basis, tokens.is_rough) == ("table", True)
    assert 20_000 < tokens.disk_bytes < 200_000
    assert two.basis == "budget"
    assert two.seconds == 180 + rates()["training_start"]
    # Twice the steps, twice the time but for the start.
    more = bertloom.load_recipe(recipe, changes=["pretrain.one.budget.steps=2000"])
    [again] = [step.expected for step in bertloom.plan(more) if step.label == "pretrain.one"]
    assert again and again.seconds and one.seconds  # noqa: PT018
    start = rates()["training_start"]
    assert again.seconds - start == pytest.approx(2 * (one.seconds - start))


def test_a_stores_own_artifacts_are_the_basis(cli: Cli, recipe: str) -> None:
    assert cli("run", recipe, "--engine", "local", "--until", "build-documents").code == 0
    planned = bertloom.plan(recipe, rebuild=["build-documents"], until="build-documents")
    [documents] = [step.expected for step in planned if step.expected is not None]
    assert documents.basis == "store"
    assert "this store's own runs" in price_lines(price_of(planned), store="x")[0]
    found = json.loads(cli("plan", recipe, "--json").out)
    assert found["expected"]["free_bytes"] > 0
    assert found["steps"][0]["expected"] is None
    # A vocabulary is of documents that are there: their words are counted, not guessed.
    vocabulary = found["steps"][1]["expected"]
    assert (vocabulary["basis"], vocabulary["is_rough"]) == ("table", False)


def test_steps_of_unknown_time_are_named() -> None:
    some = {
        "build-tokens": Expected(seconds=60.0, core_seconds=60.0, basis="table"),
        "finetune.cola.r0": Expected(),
        "finetune.cola.r1": Expected(),
        "tabulate": Expected(),
    }
    assert price_lines(total(some), store="x")[:2] == [
        "expected: about 1 min 00 s, 0.02 core hours (by measured rates elsewhere)",
        "  besides, of a time that this store has not measured yet: 2 of finetune, 1 of tabulate",
    ]
    del some["build-tokens"]
    assert price_lines(total(some), store="x")[0] == "expected: nothing is known of the time"


def test_a_training_on_a_gpu_takes_what_such_took_in_this_store(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "_has_gpu", lambda: True)
    on_any = bertloom.load_recipe(recipe, changes=["pretrain.one.device=auto"])
    planned = {step.label: step.expected for step in bertloom.plan(on_any)}
    assert planned["pretrain.one"] is not None
    assert planned["pretrain.one"].seconds is None


def test_what_the_disk_cannot_hold_is_not_begun(
    cli: Cli, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(
        pricing.shutil, "disk_usage", lambda path: real(path)._replace(free=1_000_000)
    )
    said = cli("run", recipe, "--engine", "local")
    assert said.code == 1
    assert "1.0 MB free for the store" in said.err
    assert "--force" in said.err
    assert not (Path(recipe).parent / "store").exists()
    assert "expected: about" in said.err
    said = cli("run", recipe, "--engine", "local", "--until", "build-documents", "--force")
    assert said.code == 0


def test_nothing_is_claimed_of_an_object_store() -> None:
    price = total({"one": Expected(disk_bytes=1 << 60, seconds=1.0, core_seconds=2.0)})
    check_room(price, store="s3://bucket/store")
    assert "free" not in price_lines(price, store="s3://bucket/store")[1]
    with pytest.raises(ConfigError, match="--force"):
        check_room(price, store="/")
