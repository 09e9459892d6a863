"""Labeled data in files that `datasets` writes: JSON Lines and Parquet, one row per example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
from pydantic import ValidationError
from support.cli_runner import Cli
from support.finetuning_builder import text_rows, write_checkpoint
from support.task_rows import build, faults, read, values, write

from model.tasks import task_of
from model.tasks.examples import read_examples
from model.tasks.files import base_name
from schemas.errors import ConfigError, TaskDataError
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import StageInput, StageOutput

datasets.disable_progress_bars()

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
TOKENS = [["Mia", "Lind", "saw", "Oslo"], ["Yes"], ["Oslo", "waits"]]
NUMBERS = [[1, 2, 0, 3], [0], [3, 0]]
NAMES = [[TAGS[number] for number in row] for row in NUMBERS]
SENTENCES = ["a warm film", "a dull play", "a lovely song"]
CONTEXT = "The mill was built in 1895, and Ada Byrne built it again."


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


def labelled(**columns: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"sentence": SENTENCES, **columns})


def question(**changes: Any) -> dict[str, Any]:
    row = {
        "id": "q0",
        "title": "Mill",
        "context": CONTEXT,
        "question": "Who built it again?",
        "answers": {"text": ["Ada Byrne"], "answer_start": [CONTEXT.index("Ada")]},
    }
    return {**row, **changes}


def build_one(folder: Path, *, url: str, **config: Any) -> tuple[StageOutput, StageInput]:
    """Run build-examples with one file as train and dev."""
    return build(folder / "out", data_files={"train": [url], "dev": [url]}, **config)


def column(given: StageInput, name: str) -> list[Any]:
    return list(read_examples(given, "train").column(name).to_pylist())


def write_lines(path: Path, *lines: str) -> str:
    return write(path, "".join(f"{line}\n" for line in lines))


# Tagged words


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("task", ["tagging", "conll-2003"])
def test_tags_are_read_when_they_are_names(tmp_path: Path, suffix: str, task: str) -> None:
    url = export(tagged(tags=NAMES), tmp_path / f"train.{suffix}")
    made, given = build_one(tmp_path, url=url, task=task)
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


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_tag_numbers_without_names_are_refused(tmp_path: Path, suffix: str) -> None:
    url = export(tagged(tags=NUMBERS), tmp_path / f"train.{suffix}")
    with pytest.raises(TaskDataError, match="labels: ") as error:
        build_one(tmp_path, url=url, task="tagging")
    assert url in str(error.value)
    assert "ner_tags" in str(error.value)


@pytest.mark.parametrize("number", [4, -1])
def test_tag_number_out_of_range_drops_its_row(tmp_path: Path, number: int) -> None:
    url = export(tagged(tags=[NUMBERS[0], [number], NUMBERS[2]]), tmp_path / "train.jsonl")
    rows, bad = read("tagging", "train", url, labels=TAGS)
    assert values(rows, "words") == [(TOKENS[0],), (TOKENS[2],)]
    assert faults(bad) == [("line 2", "unknown-tag")]
    assert f"{number}" in bad[0].found
    assert "0 to 3" in bad[0].found


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
        ('{"tokens": ["Oslo"]', "malformed-json"),
        ("", "blank-line"),
    ],
)
def test_malformed_tagged_row_is_dropped(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"tokens": ["Oslo"], "ner_tags": ["B-LOC"]}'
    url = write_lines(tmp_path / "train.jsonl", good, line)
    rows, bad = read("tagging", "train", url)
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
    rows, bad = read("tagging", "test", write_lines(tmp_path / "test.txt", first, "Oslo"))
    assert not bad
    assert values(rows, "words") == [([first, "Oslo"],)]


# Labels of texts


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        (["good", "bad", "good"], [], ["bad", "good"]),
        ([1, 0, 1], ["good", "bad"], ["good", "bad"]),
    ],
)
def test_labels_are_names_or_numbers_of_names(
    tmp_path: Path, suffix: str, labels: list[Any], names: list[str], expected: list[str]
) -> None:
    url = export(labelled(label=labels), tmp_path / f"train.{suffix}")
    made, given = build_one(tmp_path, url=url, task="single-sentence", labels=names)
    assert column(given, "label") == [names[item] if names else item for item in labels]
    assert made.statistics["labels"] == expected


def test_label_numbers_of_text_table_take_names_from_recipe(tmp_path: Path) -> None:
    url = write_lines(tmp_path / "train.csv", "sentence,label", "a,1", "b,bad", "c,2")
    rows, bad = read("single-sentence", "train", url, labels=["bad", "good"])
    assert values(rows, "label") == [("good",), ("bad",)]
    assert faults(bad) == [("line 4", "unknown-label")]


def test_label_numbers_take_names_from_parquet_schema(tmp_path: Path) -> None:
    rows = labelled(label=[1, 0, 1]).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    found, _ = read("single-sentence", "train", export(rows, tmp_path / "train.parquet"))
    assert values(found, "label") == [("yes",), ("no",), ("yes",)]


@pytest.mark.parametrize("number", [2, -2])
def test_label_number_out_of_range_drops_its_row(tmp_path: Path, number: int) -> None:
    url = export(labelled(label=[1, 0, number]), tmp_path / "train.jsonl")
    rows, bad = read("single-sentence", "train", url, labels=["bad", "good"])
    assert len(rows) == 2
    assert faults(bad) == [("line 3", "unknown-label")]
    assert "0 to 1" in bad[0].found


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_pairs_are_read_with_usual_and_named_columns(tmp_path: Path, suffix: str) -> None:
    columns = {"sentence1": SENTENCES, "sentence2": SENTENCES[::-1], "label": ["a", "b", "a"]}
    pairs = datasets.Dataset.from_dict(columns)
    expected = list(zip(*columns.values(), strict=True))
    url = export(pairs, tmp_path / f"a.{suffix}")
    found, _ = read("sentence-pair", "train", url)
    assert values(found, "text_a", "text_b", "label") == expected
    names = {"sentence1": "left", "sentence2": "right", "label": "verdict"}
    url = export(pairs.rename_columns(names), tmp_path / f"b.{suffix}")
    with pytest.raises(TaskDataError, match="left, right, verdict"):
        read("sentence-pair", "train", url)
    named = {"text_a": "left", "text_b": "right", "label": "verdict"}
    found, _ = read("sentence-pair", "train", url, columns=named)
    assert values(found, "text_a", "text_b", "label") == expected


@pytest.mark.parametrize("task", ["sst-2", "pair-regression", "question-answering", "tagging"])
def test_labels_that_task_cannot_take_are_refused(task: str) -> None:
    with pytest.raises(ConfigError, match="labels: "):
        task_of(ExamplesConfig(task=task, data_dir="x", labels=("O", "place")))


@pytest.mark.parametrize("labels", [["bad", "bad"], ["bad", ""]])
def test_labels_are_different_names(labels: list[str]) -> None:
    config = {"task": "single-sentence", "data_dir": "x", "labels": labels}
    with pytest.raises(ValidationError, match="labels"):
        ExamplesConfig.model_validate(config)


def test_labels_are_in_cache_key() -> None:
    named = ExamplesConfig(task="tagging", data_dir="x", labels=tuple(TAGS))
    assert named.cache_key_fields()["labels"] == TAGS


# Questions


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("task", ["squad-1.1", "question-answering"])
def test_questions_are_read(tmp_path: Path, suffix: str, task: str) -> None:
    rows = datasets.Dataset.from_list([question(), question(id="q1", question="Who?")])
    made, given = build_one(tmp_path, url=export(rows, tmp_path / f"train.{suffix}"), task=task)
    assert column(given, "id") == ["q0", "q1"]
    assert column(given, "answers") == [["Ada Byrne"]] * 2
    assert column(given, "answer_starts") == [[CONTEXT.index("Ada")]] * 2
    assert column(given, "title") == ["Mill", "Mill"]
    assert made.counters["rows-kept@train"] == 2


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_question_without_answer_needs_task_that_allows_it(tmp_path: Path, suffix: str) -> None:
    none = {"text": [], "answer_start": []}
    rows = datasets.Dataset.from_list([question(), question(id="q1", answers=none)])
    url = export(rows, tmp_path / f"train.{suffix}")
    _, given = build_one(tmp_path, url=url, task="question-answering-unanswerable")
    assert column(given, "is_impossible") == [False, True]
    _, bad = read("question-answering", "train", url)
    assert [item.reason for item in bad] == ["unanswerable"]


@pytest.mark.parametrize("missing", ["id", "context", "question", "answers"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_missing_column_of_questions_is_refused(tmp_path: Path, suffix: str, missing: str) -> None:
    rows = datasets.Dataset.from_list([question()]).rename_column(missing, "other")
    url = export(rows, tmp_path / f"train.{suffix}")
    with pytest.raises(TaskDataError) as error:
        build_one(tmp_path, url=url, task="question-answering")
    assert all(text in str(error.value) for text in (url, "other", missing))


def test_questions_may_lack_titles(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_list([question()]).remove_columns("title")
    found, _ = read("squad-1.1", "train", export(rows, tmp_path / "train.parquet"))
    assert values(found, "title") == [("",)]


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
    urls = {}
    for split in ("train", "dev"):
        rows = text_rows(16, split=split)
        found = datasets.Dataset.from_dict(
            {"text": [row["text_a"] for row in rows], "label": [int(row["label"]) for row in rows]}
        )
        urls[split] = export(found, tmp_path / f"{split}.jsonl")
    files = [f"--data-file={split}={url}" for split, url in urls.items()]
    names = "--labels=bad, good"
    store = f"--store={tmp_path / 'store'}"
    checkpoint = write_checkpoint(tmp_path / "bert")
    said = cli(
        "finetune", "single-sentence", *files, names, store, "--checkpoint", checkpoint,
        "--batch-size=8", "--learning-rate=1e-3", "--num-epochs=1", "--max-seq-length=16",
        "--engine=local", "--set=finetune.single-sentence.num_threads=1",
    )  # fmt: skip
    assert said.code == 0, said.err
    model = "finetune-single-sentence/evaluate.single-sentence"
    said = cli("evaluate", "single-sentence", urls["dev"], "--model", model, store, names)
    assert said.code == 0, said.err
    assert "accuracy" in said.out
    said = cli("predict", model, "--file", urls["dev"], "--split=dev", store, names)
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 16
    assert {line.split("\t")[0] for line in said.out.splitlines()} <= {"bad", "good"}
