"""Labeled data in files that `datasets` writes: JSON Lines and Parquet, one row per example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import text_rows, write_checkpoint, write_tuned
from support.task_rows import build, faults, read, values, write

from model.tasks.examples import read_examples
from model.tasks.files import base_name
from schemas.errors import TaskDataError
from schemas.manifest import StageInput, StageOutput

datasets.disable_progress_bars()

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
TOKENS = [["Mia", "Lind", "saw", "Oslo"], ["Yes"], ["Oslo", "waits"]]
NUMBERS = [[1, 2, 0, 3], [0], [3, 0]]
NAMES = [[TAGS[number] for number in row] for row in NUMBERS]


def export(rows: datasets.Dataset, path: Path) -> str:
    """Write a file as `datasets` does, in the format of its name."""
    if path.suffix == ".parquet":
        rows.to_parquet(str(path))
    else:
        rows.to_json(str(path))
    return str(path)


def tagged(*, tags: list[list[Any]], names: list[str] | None = None) -> datasets.Dataset:
    found = datasets.Dataset.from_dict({"id": ["0", "1", "2"], "tokens": TOKENS, "ner_tags": tags})
    if names is None:
        return found
    return found.cast_column("ner_tags", datasets.Sequence(datasets.ClassLabel(names=names)))


def build_one(folder: Path, *, url: str, **config: Any) -> tuple[StageOutput, StageInput]:
    """Run build-examples with one file as train and dev."""
    return build(folder / "out", data_files={"train": [url], "dev": [url]}, **config)


def column(given: StageInput, name: str) -> list[Any]:
    return list(read_examples(given, "train").column(name).to_pylist())


# Tagged words


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_tags_are_read_when_they_are_names(tmp_path: Path, suffix: str) -> None:
    url = export(tagged(tags=NAMES), tmp_path / f"train.{suffix}")
    made, given = build_one(tmp_path, url=url, task="tagging")
    assert column(given, "words") == TOKENS
    assert column(given, "tags") == NAMES
    assert column(given, "sentence_lengths") == [[4], [1], [2]]
    assert made.statistics["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert made.counters["rows-in@train"] == made.counters["rows-kept@train"] == 3


OTHERS = ["O", "B-PERSON", "I-PERSON", "B-PLACE"]


@pytest.mark.parametrize(
    ("suffix", "schema_names", "labels", "expected"),
    [
        ("parquet", TAGS, [], TAGS),
        ("parquet", None, TAGS, TAGS),
        ("jsonl", None, TAGS, TAGS),
        ("parquet", TAGS, OTHERS, OTHERS),
    ],
)
def test_tag_numbers_take_names_of_recipe_or_parquet_schema(
    tmp_path: Path,
    suffix: str,
    schema_names: list[str] | None,
    labels: list[str],
    expected: list[str],
) -> None:
    url = export(tagged(tags=NUMBERS, names=schema_names), tmp_path / f"train.{suffix}")
    rows, bad = read("tagging", "train", url, labels=labels)
    assert not bad
    assert values(rows, "tags") == [([expected[number] for number in row],) for row in NUMBERS]


def test_tag_numbers_without_names_are_refused(tmp_path: Path) -> None:
    url = export(tagged(tags=NUMBERS), tmp_path / "train.jsonl")
    with pytest.raises(TaskDataError, match="labels: ") as error:
        build_one(tmp_path, url=url, task="tagging")
    assert url in str(error.value)
    assert "ner_tags" in str(error.value)


def test_tagged_columns_can_be_named(tmp_path: Path) -> None:
    rows = tagged(tags=NAMES).rename_columns({"tokens": "form", "ner_tags": "entity"})
    url = export(rows, tmp_path / "train.parquet")
    with pytest.raises(TaskDataError) as error:
        read("tagging", "train", url)
    assert all(name in str(error.value) for name in (url, "tokens", "id, form, entity"))
    with pytest.raises(TaskDataError, match="entities"):
        read("tagging", "train", url, columns={"words": "form", "tags": "entities"})
    found, _ = read("tagging", "train", url, columns={"words": "form", "tags": "entity"})
    assert values(found, "tags") == [(tags,) for tags in NAMES]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"tokens": ["Oslo", "waits"], "ner_tags": ["B-LOC"]}', "tags-do-not-fit-words"),
        ('{"tokens": [], "ner_tags": []}', "no-words"),
        ('{"tokens": "Oslo", "ner_tags": ["B-LOC"]}', "no-words"),
        ('{"tokens": ["Oslo", " "], "ner_tags": ["B-LOC", "O"]}', "no-word"),
        ('{"tokens": ["Oslo"], "ner_tags": null}', "no-tags"),
        ('{"tokens": ["Oslo"], "ner_tags": [true]}', "unknown-tag"),
        ('{"tokens": ["Oslo"], "ner_tags": ["place"]}', "unknown-tag"),
        ('{"tokens": ["Oslo"], "ner_tags": [4]}', "unknown-tag"),
        ('{"tokens": ["Oslo"], "ner_tags": [-1]}', "unknown-tag"),
        ('{"tokens": ["Oslo"]', "malformed-json"),
        ("", "blank-line"),
    ],
)
def test_malformed_tagged_row_is_dropped(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"tokens": ["Oslo"], "ner_tags": ["B-LOC"]}'
    url = write(tmp_path / "train.jsonl", f"{good}\n{line}\n")
    rows, bad = read("tagging", "train", url, labels=TAGS)
    assert values(rows, "words", "tags") == [(["Oslo"], ["B-LOC"])]
    assert faults(bad) == [("line 2", reason)]


def test_test_split_may_lack_tags(tmp_path: Path) -> None:
    url = export(tagged(tags=NAMES).remove_columns("ner_tags"), tmp_path / "test.jsonl")
    rows, bad = read("tagging", "test", url)
    assert not bad
    assert [row.values["tags"] for row in rows] == [None, None, None]


def test_files_of_datasets_are_found_in_their_folder(tmp_path: Path) -> None:
    for name in ("train.jsonl", "validation.jsonl"):
        export(tagged(tags=NAMES), tmp_path / name)
    made, _ = build(tmp_path / "out", task="tagging", data_dir=str(tmp_path))
    assert made.statistics["splits"] == {"train": 3, "dev": 3}


@pytest.mark.parametrize("first", ["[", "{", '{"a"', "{}"])
def test_word_that_looks_like_json_is_read_as_column(tmp_path: Path, first: str) -> None:
    rows, bad = read("tagging", "test", write(tmp_path / "test.txt", f"{first}\nOslo\n"))
    assert not bad
    assert values(rows, "words") == [([first, "Oslo"],)]


# Labels of texts


def test_label_numbers_of_json_take_names_from_recipe(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"sentence": ["a", "b", "c"], "label": [1, 0, 1]})
    url = export(rows, tmp_path / "train.jsonl")
    made, given = build_one(tmp_path, url=url, task="single-sentence", labels=["good", "bad"])
    assert column(given, "label") == ["bad", "good", "bad"]
    assert made.statistics["labels"] == ["good", "bad"]


def test_label_numbers_of_text_table_take_names_from_recipe(tmp_path: Path) -> None:
    url = write(tmp_path / "train.csv", "sentence,label\na,1\nb,bad\nc,2\n")
    rows, bad = read("single-sentence", "train", url, labels=["bad", "good"])
    assert values(rows, "label") == [("good",), ("bad",)]
    assert faults(bad) == [("line 4", "unknown-label")]


# From files to tables


@pytest.mark.parametrize(
    "address",
    [
        "folder/train.tsv",
        "s3://bucket/train.tsv",
        "http://user:secret@host/train.tsv;password=secret?token=a/b#c",
    ],
)
def test_name_of_task_file_holds_no_secret_of_its_address(address: str) -> None:
    assert base_name(address) == "train.tsv"


def test_commands_take_names_of_label_numbers(cli: Cli, tmp_path: Path) -> None:
    rows = text_rows(16, split="dev")
    texts, numbers = zip(*((row["text_a"], int(row["label"])) for row in rows), strict=True)
    url = export(
        datasets.Dataset.from_dict({"text": texts, "label": numbers}), tmp_path / "dev.jsonl"
    )
    names, store = "--labels=bad, good", f"--store={tmp_path / 'store'}"
    said = cli(
        "finetune", "single-sentence", f"--data-file=train={url}", f"--data-file=dev={url}", names,
        store, "--checkpoint", write_checkpoint(tmp_path / "bert"), "--show-recipe",
    )  # fmt: skip
    recipe = yaml.safe_load(said.out)
    assert recipe["build_examples"]["single-sentence"]["labels"] == ["bad", "good"]
    model = write_tuned(tmp_path / "tuned", task="single-sentence", labels=("bad", "good"))
    said = cli("evaluate", "single-sentence", url, "--model", model, store, names)
    assert said.code == 0, said.err
    assert "accuracy" in said.out
    said = cli("predict", model, "--file", url, "--split=dev", store, names)
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 16
    assert {line.split("\t")[0] for line in said.out.splitlines()} <= {"bad", "good"}
