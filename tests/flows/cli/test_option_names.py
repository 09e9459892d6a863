"""Errors name options where options were used, and fields where a recipe was used."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import write_checkpoint

from flows.cli.app import app
from flows.cli.models import FIELD_OPTIONS
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe
from model.build_examples import check_files
from schemas.errors import BertloomError
from schemas.field_names import field_name
from schemas.finetune_configs import ExamplesConfig

TRAIN = "review\tstars\nein Film\tgut\nun film\tmal\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "bert")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(TRAIN)
    return tmp_path


def arguments(folder: Path, *options: str, task: str = "single-sentence") -> list[str]:
    store = ("--store", str(folder / "store"))
    return ["finetune", task, "--checkpoint", str(folder / "bert"), *store, *options]


COLUMNS = ("--column", "text=review", "--column", "label=stars")


@pytest.mark.parametrize(
    ("options", "expected", "field"),
    [
        (("--data-file", "train={}/train.tsv", *COLUMNS), "--data-file dev=", "data_files"),
        (("--data-dir", "{}", "--column", "text=film", "--column", "label=stars"),
         "--column text=", "columns."),
        (("--data-dir", "{}", *COLUMNS, "--table", "sep=tab"), "--table sep=", "file_format"),
        (("--data-dir", "{}", *COLUMNS, "--dev-fraction", "0.5"), "--dev-fraction", "dev_fraction"),
        (("--data-dir", "{}", *COLUMNS, "--batch-size", "0"), "--batch-size", "batch_size"),
    ],
)  # fmt: skip
def test_finetune_names_its_options(
    cli: Cli, folder: Path, options: tuple[str, ...], expected: str, field: str
) -> None:
    values = [option.format(folder) for option in options]
    result = cli(*arguments(folder, *values), "--dry-run")
    assert result.code != 0
    assert expected in result.err
    assert field not in result.err.replace(str(folder), "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--column", "text=film", "--column", "label=stars"), "--column text="),
        ((*COLUMNS, "--table", "sep=tab"), "--table sep="),
        (("--column", "texts=review"), "--column"),
    ],
)
def test_evaluate_names_its_options(
    cli: Cli, folder: Path, options: tuple[str, ...], expected: str
) -> None:
    file = str(folder / "dev.tsv")
    result = cli("evaluate", "single-sentence", file, "--predictions", file, *options)
    assert result.code != 0
    assert expected in result.err


@pytest.mark.parametrize("key", ["sep", "separator", "delimeter"])
@pytest.mark.parametrize("command", ["finetune", "evaluate"])
def test_unknown_key_of_option_suggests_key_of_option(
    cli: Cli, folder: Path, command: str, key: str
) -> None:
    options = (*COLUMNS, "--table", f"{key}=tab")
    if command == "finetune":
        error = cli(*arguments(folder, "--data-dir", str(folder), *options), "--dry-run").err
    else:
        file = str(folder / "dev.tsv")
        error = cli("evaluate", "single-sentence", file, "--predictions", file, *options).err
    assert f"--table {key}=" in error
    assert "'delimiter'" in error
    assert "build_documents" not in error


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("build_examples.single-sentence.file_format.sep", "delimiter"),
        ("finetune.single-sentence.lr", "learning_rate"),
        ("finetune.single-sentence.epochs", "num_epochs"),
        ("build_examples.single-sentence.epochs", ""),
    ],
)
def test_unknown_field_of_recipe_suggests_field_of_its_section(
    folder: Path, field: str, meant: str
) -> None:
    sections = {
        "build_examples": {"single-sentence": {"task": "cola", "data_dir": str(folder)}},
        "finetune": {"single-sentence": {"init_checkpoint": str(folder / "bert")}},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", **sections}))
    with pytest.raises(RecipeError) as error:
        load_recipe(str(folder / "mine.yaml"), overrides=[f"{field}=1"])
    problems = {problem.field: problem.suggestion for problem in error.value.problems}
    assert problems[field] == meant


def test_recipe_fields_are_named_where_recipe_is_used(folder: Path) -> None:
    files = {"train": (str(folder / "train.tsv"),)}
    columns = {"text": "review", "label": "stars"}
    with pytest.raises(BertloomError, match=r"data_files\.dev"):
        check_files(ExamplesConfig(task="single-sentence", data_files=files, columns=columns))
    assert field_name("data_files.dev") == "data_files.dev"


def test_override_keeps_the_name_of_its_field(cli: Cli, folder: Path) -> None:
    options = ("--data-dir", str(folder), *COLUMNS, "--dry-run")
    field = "finetune.single-sentence.batch_size"
    error = cli(*arguments(folder, *options, "--set", f"{field}=[0]")).err
    assert field in error
    assert "--batch-size" not in error


def test_shown_recipe_has_overrides(cli: Cli, folder: Path) -> None:
    entry = "build_examples.single-sentence"
    overrides = ("finetune.single-sentence.seed=7", f"{entry}.max_samples.train=1")
    options = [word for override in overrides for word in ("--set", override)]
    result = cli(*arguments(folder, "--data-dir", str(folder), *COLUMNS, *options, "--show-recipe"))
    assert result.code == 0, result.err
    assert yaml.safe_load(result.out)["finetune"]["single-sentence"]["seed"] == 7
    (folder / "shown.yaml").write_text(result.out)
    shown = load_recipe(str(folder / "shown.yaml"))
    assert shown.build_examples["single-sentence"].max_samples == {"train": 1}
    assert shown.store == str(folder / "store")


def test_mapped_options_are_options_of_their_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {name for option in commands["finetune"].loaded.params for name in option.opts}
    assert {option for option in FIELD_OPTIONS.values() if option.startswith("--")} <= known
