"""Errors name options where options were used, and fields where a recipe was used."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import write_checkpoint

from flows.cli import contamination
from flows.cli.app import app
from flows.cli.finetune import FIELD_OPTIONS
from flows.cli.options import use_option_names
from flows.recipes.loader import load_recipe
from model.build_examples import check_files
from pipelines.contamination.scan import FIELDS, split_files
from schemas.corpus_configs import ContaminationConfig
from schemas.errors import BertloomError, ConfigError
from schemas.field_names import field_name
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import FileEntry, StageInput

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
        (("--data-dir", "{}", "--table", "delimiter=tab"), "--column", "columns"),
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


@pytest.mark.parametrize(
    ("words", "expected", "field"),
    [
        (("sst-2={}/nowhere",), "TASK:train=FILE", "data_files"),
        (("sst-2={}/nowhere",), "TASK=FOLDER", "data_dir"),
        (("sst-2:dev={}/dev.tsv",), "TASK:train=FILE", "data_files"),
        (("sst-2:tset={}/dev.tsv",), "TASK:SPLIT=FILE", "data_files"),
        (("tonality={}",), "tonality", "build_examples"),
    ],
)
def test_contamination_names_its_options(
    cli: Cli, folder: Path, words: tuple[str, ...], expected: str, field: str
) -> None:
    (folder / "texts.txt").write_text("One text.")
    source = {"kind": "text", "name": "t", "paths": [str(folder / "texts.txt")]}
    recipe = {"name": "mine", "build_documents": {"sources": [source]}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(recipe))
    values = [word.format(folder) for word in words]
    store = ("--store", str(folder / "store"))
    error = cli("contamination", str(folder / "mine.yaml"), *values, *store).err
    assert expected in error
    assert field not in error.replace(str(folder), "")


def test_contamination_names_option_of_unknown_split() -> None:
    entry = FileEntry(
        path="dev.arrow", stored_name="dev.arrow", size_bytes=0, sha256="0" * 64, rows=0
    )
    examples = StageInput(
        name="sst-2", artifact_id="0" * 16, data="examples", files=(entry,),
        counters={}, statistics={"kind": next(iter(FIELDS))},
    )  # fmt: skip
    config = ContaminationConfig(splits=("tset",))
    with use_option_names(contamination.FIELD_OPTIONS), pytest.raises(ConfigError, match="--split"):
        split_files({"sst-2": examples}, config)
    with pytest.raises(ConfigError, match=r"^splits: expected some of dev, got tset$"):
        split_files({"sst-2": examples}, config)


def test_unknown_key_of_option_lists_keys_of_option(cli: Cli, folder: Path) -> None:
    options = ("--data-dir", str(folder), *COLUMNS, "--table", "sep=tab")
    error = cli(*arguments(folder, *options), "--dry-run").err
    assert "delimiter" in error
    assert "build_documents" not in error


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


@pytest.mark.parametrize(
    ("command", "options"),
    [("finetune", FIELD_OPTIONS), ("contamination", contamination.FIELD_OPTIONS)],
)
def test_mapped_options_are_options_of_their_command(command: str, options: dict[str, str]) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {name for option in commands[command].loaded.params for name in option.opts}
    assert {option for option in options.values() if option.startswith("--")} <= known
