"""The JSON Schema for editors accepts the same recipes as the loader."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from support.cli_runner import RECIPE, Cli

from flows.recipes.json_schema import MODELINE, SCHEMA_FILE, schema_text
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import packaged_recipes, packaged_text
from flows.recipes.safe_yaml import parse_yaml
from schemas.errors import ConfigError

SCHEMA = json.loads(schema_text())
CHECK = jsonschema.Draft202012Validator(SCHEMA)

MORE = """\
finetune:
  sst: {examples: sst, init_from_phase: one, batch_size: 16, learning_rate: 5.0e-5}
build_examples:
  sst: {task: sst-2, data_dir: "${GLUE:-glue}", data_files: {dev: dev.tsv}}
pretrain:
  one:
    instances: length-64
    model: {preset: tiny, hidden_dropout_prob: "${DROPOUT:-0.1}"}
    budget: {max_steps: "${STEPS:-1000}"}
sweep:
  size: {variants: {as-is: , more: {pretrain.one.seed: 1}}}
  other:
"""
WHOLE = RECIPE + MORE


def is_valid(text: str) -> bool:
    is_valid: bool = CHECK.is_valid(parse_yaml(text, where="x").value)
    return is_valid


def is_read(text: str, folder: Path) -> bool:
    file = folder / "mine.yaml"
    file.write_text(text)
    try:
        load_recipe(str(file))
    except ConfigError:
        return False
    return True


def test_schema_describes_every_field() -> None:
    CHECK.check_schema(SCHEMA)
    assert "expanded_sweep" not in SCHEMA["properties"]
    properties = SCHEMA["$defs"]["MaskingConfig"]["properties"]
    assert properties["strategy"]["anyOf"][0]["enum"] == ["wordpiece", "whole-word", "span", "none"]
    assert properties["strategy"]["default"] == "wordpiece"
    assert properties["masked_lm_prob"]["description"].startswith(
        "Fraction of an instance's tokens"
    )
    assert properties["masked_lm_prob"]["title"]
    assert "sst-2" in SCHEMA["$defs"]["ExamplesConfig"]["properties"]["task"]["anyOf"][0]["enum"]


@pytest.mark.parametrize("name", [*packaged_recipes(), "_template"])
def test_packaged_recipes_are_valid(name: str) -> None:
    data = parse_yaml(packaged_text(name), where=name).value
    assert [error.message for error in CHECK.iter_errors(data)] == []


def test_variables_and_extends_are_valid(tmp_path: Path) -> None:
    by_variable = WHOLE.replace("kind: text", "kind: ${KIND:-text}")
    extending = RECIPE.replace("name: mine", "name: mine\nextends: english")
    for text in (WHOLE, by_variable, extending):
        assert is_valid(text)
        assert is_read(text, tmp_path)


@pytest.mark.parametrize(
    ("what", "by"),
    [
        ("kind: text", "kind: pdf"),
        ("kind: text", "text_column: x"),
        ("kind: text", "kind: wikipedia\n      text_column: x"),
        ("max_seq_length: 64", "max_seq_len: 64"),
        ("max_seq_length: 64", "max_seq_length: 4"),
        ("max_predictions_per_seq: 10", "strategy: whole_word"),
        ("length-64: {", "Length 64: {"),
        ("preset: tiny", "preset: tyni"),
        ("preset: tiny, ", ""),
        ("task: sst-2", "task: sst2"),
        ("batch_size: 16", "batch_size: []"),
        ("as-is: ,", "as-is: 5,"),
        ("name: mine", "nam: mine"),
        ("name: mine", "name: mine\nexecution: {runner: locl}"),
    ],
)
def test_schema_and_loader_refuse_the_same_recipes(what: str, by: str, tmp_path: Path) -> None:
    text = WHOLE.replace(what, by)
    assert text != WHOLE
    assert not is_valid(text)
    if "runner" not in by:  # checked when the recipe runs
        assert not is_read(text, tmp_path)


def test_init_writes_schema_next_to_recipe(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli("init", "first.yaml")
    assert said.out.splitlines()[1].startswith(f"wrote {SCHEMA_FILE}")
    text = Path("first.yaml").read_text()
    assert text.startswith(MODELINE)
    assert load_recipe("first.yaml").name == "my-corpus"
    beside = Path("first.yaml").parent / MODELINE.strip().partition("$schema=")[2]
    assert json.loads(beside.read_text()) == SCHEMA
    assert SCHEMA_FILE not in cli("init", "second.yaml", "--from", "english").out
    beside.write_text("{}")
    said = cli("init", "third.yaml")
    assert "not overwritten" in said.out
    assert beside.read_text() == "{}"
    assert json.loads(cli("init", "--schema").out) == SCHEMA
    assert cli("init", "first.yaml").code == 1
    assert Path("first.yaml").read_text() == text
