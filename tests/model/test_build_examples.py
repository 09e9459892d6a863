"""`build-examples`: every row counted, tables as later stages read them, and what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task_rows import build, write

from model.build_examples import raw_inputs
from model.tasks import TASKS
from model.tasks.examples import examples_of_file, read_examples
from schemas.errors import (
    ArtifactCorruptError,
    InputError,
    MissingInputError,
    TaskDataError,
)
from schemas.finetune_configs import ExamplesConfig


def sentences(count: int, *, labels: str = "01", first: int = 0) -> str:
    lines = (f"film {n}\t{labels[n % len(labels)]}\n" for n in range(first, first + count))
    return "sentence\tlabel\n" + "".join(lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "in/train.tsv", sentences(20))
    write(tmp_path / "in/dev.tsv", sentences(6, first=100))
    write(tmp_path / "in/test.tsv", "index\tsentence\n0\tfilm 200\n1\tfilm 201\n")
    return tmp_path / "in"


def test_files_are_found_under_their_official_names(folder: Path, tmp_path: Path) -> None:
    made, provided = build(tmp_path / "out", task="sst-2", data_dir=str(folder))
    assert made.statistics["splits"] == {"train": 20, "dev": 6, "test": 2}
    assert read_examples(provided, "test").to_pylist()[1] == {
        "id": "1", "text_a": "film 201", "text_b": None, "label": None, "score": None,
    }  # fmt: skip
    assert [file.name for file in made.raw_inputs] == ["train/train.tsv", "dev/dev.tsv",
                                                       "test/test.tsv"]  # fmt: skip
    assert made.table_name == "text-examples"
    assert made.notes == ()
    # The same in an unpacked benchmark, next to a compressed copy.
    (folder / "train.tsv.gz").write_bytes(gzip.compress((folder / "train.tsv").read_bytes()))
    folder.rename(tmp_path / "SST-2")
    made, _ = build(tmp_path / "again", task="sst-2", data_dir=str(tmp_path))
    assert made.statistics["splits"] == {"train": 20, "dev": 6, "test": 2}


def test_the_same_files_make_the_same_bytes_wherever_they_are(folder: Path, tmp_path: Path) -> None:
    first, _ = build(tmp_path / "a", task="sst-2", data_dir=str(folder))
    data = gzip.compress((folder / "train.tsv").read_bytes())
    with fsspec.open("memory://build-a/odd name", "wb") as stream:
        stream.write(data)
    files = {"train": ("memory://build-a/odd name",)}
    second, _ = build("memory://build-a-out", task="sst-2", data_dir=str(folder), data_files=files)
    assert [(f.path, f.sha256) for f in first.files] == [(f.path, f.sha256) for f in second.files]
    assert first.statistics == second.statistics


def test_the_hubs_parquet_in_parts_through_memory() -> None:
    for number, split in [(0, "train"), (1, "train"), (0, "validation")]:
        count = 2 if split == "train" else 1
        table = pa.table({
            "sentence": [f"{split} {number} {n}" for n in range(3)],
            "label": [0, 1, 1],
            "idx": [3 * number + n for n in range(3)],
        })  # fmt: skip
        name = f"memory://hub/sst2/{split}-{number:05d}-of-{count:05d}.parquet"
        with fsspec.open(name, "wb") as stream:
            pq.write_table(table, stream)
    made, provided = build("memory://hub-out", task="sst-2", data_dir="memory://hub")
    assert made.statistics["splits"] == {"train": 6, "dev": 3}
    train = read_examples(provided, "train")
    assert train["id"].to_pylist() == ["0", "1", "2", "3", "4", "5"]
    assert train["text_a"][4].as_py() == "train 1 1"
    assert [item.key_digest.split(" sha256")[0] for item in made.raw_inputs] == [
        "train 0", "train 1", "dev 0",
    ]  # fmt: skip


# --- counting


def test_bad_rows_are_counted_and_too_many_are_an_error(folder: Path, tmp_path: Path) -> None:
    write(folder / "dev.tsv", sentences(96, first=100) + "x\tyes\n \t1\nx\t1\t1\n\n")
    config = {"task": "sst-2", "data_dir": str(folder)}
    with pytest.raises(
        TaskDataError,
        match=r"dev\.tsv: as sst-2 dev, 3 of 99 rows are bad: line 98: unknown-label: yes.*"
        r"At most 1\.00% may be.*max_invalid_fraction",
    ):
        build(tmp_path / "out", **config)
    made, _ = build(tmp_path / "b", **config, max_invalid_fraction=0.04)
    assert {name: count for name, count in made.counters.items() if name.endswith("@dev")} == {
        "rows-in@dev": 100,
        "rows-kept@dev": 96,
        "rows-dropped-unknown-label@dev": 1,
        "rows-dropped-empty-text@dev": 1,
        "rows-dropped-too-many-columns@dev": 1,
        "rows-dropped-blank-line@dev": 1,
    }
    assert made.counters["rows-dropped-unknown-label"] == 1
    (note,) = made.notes
    assert "dev.tsv: 3 of 99 rows are bad: line 98: unknown-label: yes, expected" in note


def test_rows_left_out_by_rule_are_not_held_against_a_file(tmp_path: Path) -> None:
    head = "index\tsentence1\tsentence2\tgold_label\n"
    good = "".join(f"{n}\ta {n}\tb\tneutral\n" for n in range(5))
    dev = head + good.replace("a ", "c ") + "".join(f"{n}\ta\tb\t-\n" for n in range(5, 15))
    files = {"train": (write(tmp_path / "t", head + good),), "dev": (write(tmp_path / "d", dev),)}
    made, _ = build(tmp_path / "out", task="mnli", data_files=files)
    assert made.counters["rows-dropped-left-out-label@dev"] == 10
    assert made.notes == ()


def test_the_first_examples_are_taken_and_the_others_counted(folder: Path, tmp_path: Path) -> None:
    made, provided = build(
        tmp_path / "out", task="sst-2", data_dir=str(folder), max_samples={"train": 8, "test": 50}
    )
    assert made.counters["rows-kept@train"] == 8
    assert made.counters["rows-dropped-over-limit"] == 12
    assert read_examples(provided, "train")["text_a"].to_pylist() == [f"film {n}" for n in range(8)]
    assert made.notes == ("train: the first 8 examples are used, 12 are dropped (max_samples).",)


def test_a_split_without_examples_is_an_error(folder: Path, tmp_path: Path) -> None:
    write(folder / "test.tsv", "index\tsentence\n")
    with pytest.raises(TaskDataError, match=r"sst-2 test .*found none in 0 rows"):
        build(tmp_path / "out", task="sst-2", data_dir=str(folder))


def test_ids_given_twice_are_told_or_refused_where_they_are_handed_in(
    folder: Path, tmp_path: Path
) -> None:
    write(folder / "train.tsv", "index\tsentence\tlabel\n3\ta\t1\n3\tb\t0\n")
    made, _ = build(tmp_path / "a", task="sst-2", data_dir=str(folder))
    assert made.notes == ("train: 1 rows have an id that an earlier row has, such as 3.",)
    write(folder / "test.tsv", "index\tsentence\n3\ta\n3\tb\n")
    with pytest.raises(TaskDataError, match=r"sst-2 test .*matched by id"):
        build(tmp_path / "b", task="sst-2", data_dir=str(folder))


def questions(*ids: str) -> str:
    """Questions as JSON Lines; equal ids have different questions."""
    about = {"context": "Mills grind.", "answers": {"text": ["Mills"], "answer_start": [0]}}
    rows = ({"id": name, "question": f"Who, {n}?", **about} for n, name in enumerate(ids))
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize("files", [("abcb",), ("ab", "cb")])
@pytest.mark.parametrize("task", ["squad-1.1", "question-answering"])
def test_repeated_ids_of_questions_have_one_rule_within_a_file_and_across_files(
    task: str, files: tuple[str, ...], tmp_path: Path
) -> None:
    urls = [write(tmp_path / f"{n}.jsonl", questions(*ids)) for n, ids in enumerate(files)]
    other = write(tmp_path / "other.jsonl", questions("x", "y"))
    repeated, distinct = tuple(urls), (other,)
    made, provided = build(
        tmp_path / "a", task=task, data_files={"train": repeated, "dev": distinct}
    )
    assert made.counters["rows-kept@train"] == len(read_examples(provided, "train")) == 4
    assert "train: 1 rows have an id that an earlier row has, such as b." in made.notes
    with pytest.raises(TaskDataError, match=r"such as b\. .*matched by id"):
        build(tmp_path / "b", task=task, data_files={"train": distinct, "dev": repeated})
    if len(files) == 1:
        for split in ("dev", "test"):
            with pytest.raises(TaskDataError, match=r"0\.jsonl.* such as b\. "):
                examples_of_file(TASKS[task], urls[0], split=split)


# --- labels of custom data


def test_labels_of_custom_data_are_those_of_training_in_order(tmp_path: Path) -> None:
    labels = ("10", "9", "-1", "x", "9" * 5000)
    texts = {"train": labels, "dev": (*labels, "other")}
    files = {
        split: (write(tmp_path / split, "".join(["text\tlabel\n", *(f"a\t{n}\n" for n in own)])),)
        for split, own in texts.items()
    }
    config = {"task": "single-sentence", "data_files": files}
    with pytest.raises(TaskDataError, match="1 of 6 rows are bad: line 7: label-not-in-train: oth"):
        build(tmp_path / "a", **config)
    made, _ = build(tmp_path / "b", **config, max_invalid_fraction=0.5)
    assert made.counters["rows-dropped-label-not-in-train@dev"] == 1
    assert made.statistics["labels"] == ["-1", "9", "10", "9" * 5000, "x"]
    for split in ("train", "dev"):
        write(tmp_path / split, "text\tlabel\na\tx\n")
    with pytest.raises(TaskDataError, match="two labels or more"):
        build(tmp_path / "c", **config)


def test_types_of_tags_are_those_of_train_and_dev(tmp_path: Path) -> None:
    files = {
        "train": (write(tmp_path / "a", "Rome B-LOC\nis O\n"),),
        "dev": (write(tmp_path / "b", "Ada B-PER\nis O\n"),),
        "test": (write(tmp_path / "c", "ACME B-ORG\nis O\n"),),
    }
    made, provided = build(tmp_path / "out", task="tagging", data_files=files)
    assert made.statistics["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert read_examples(provided, "test")["tags"].to_pylist() == [["B-ORG", "O"]]


# --- files


def test_missing_file_is_named_with_files_of_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "dev.tsv").unlink()
    (folder / "extra").mkdir()
    files = {"train": (str(folder / "train.tsv"),)}
    for config, expected in (
        ({"task": "sst-2", "data_dir": str(folder)}, r"dev\.tsv.* sst-2 dev, got extra, test\.t"),
        ({"task": "ax", "data_dir": str(tmp_path / "nowhere")}, "got nothing"),
        ({"task": "rte", "data_files": files}, "rte dev, got train"),
    ):
        with pytest.raises(MissingInputError, match=expected):
            raw_inputs(ExamplesConfig(**config))
        with pytest.raises(MissingInputError):
            build(tmp_path / "out", **config)
    with pytest.raises(InputError, match=r"nosuch://x: cannot be reached"):
        raw_inputs(ExamplesConfig(task="ax", data_dir="nosuch://x"))


def test_the_cache_key_knows_split_and_bytes_not_names(folder: Path, tmp_path: Path) -> None:
    def identities(**files: str) -> list[str]:
        provided = {split: (path,) for split, path in files.items()}
        return [
            item.key_digest
            for item in raw_inputs(ExamplesConfig(task="sst-2", data_files=provided))
        ]

    here, there = (ExamplesConfig(task="tagging", data_dir=name) for name in "xy")
    assert here.cache_key_fields() == there.cache_key_fields()
    named = ExamplesConfig(task="tagging", data_dir="x", columns={"words": 1, "tags": "ner"})
    assert named.cache_key_fields()["columns"] == {"words": 1, "tags": "ner"}
    train, dev = str(folder / "train.tsv"), str(folder / "dev.tsv")
    renamed = write(tmp_path / "other", (folder / "train.tsv").read_text())
    assert identities(train=train, dev=dev) == identities(train=renamed, dev=dev)
    assert sorted(identities(train=train, dev=dev)) != sorted(identities(train=dev, dev=train))


def test_the_list_of_mrpcs_dev_pairs_is_in_the_cache_key(tmp_path: Path) -> None:
    write(tmp_path / "in/msr_paraphrase_train.txt", "Quality\t#1 ID\t#2 ID\n")
    write(tmp_path / "in/dev_ids.tsv", "3\t103\n")
    config = ExamplesConfig(task="mrpc", data_dir=str(tmp_path / "in"))
    before = [item.key_digest for item in raw_inputs(config)]
    assert [item.split(" sha256")[0] for item in before] == [
        "train 0", "train beside", "dev 0", "dev beside",
    ]  # fmt: skip
    write(tmp_path / "in/dev_ids.tsv", "4\t104\n")
    assert before != [item.key_digest for item in raw_inputs(config)]


# --- reading the artifact


def test_a_split_that_is_not_there_is_answered_with_those_that_are(
    folder: Path, tmp_path: Path
) -> None:
    _, provided = build(tmp_path / "out", task="sst-2", data_dir=str(folder))
    with pytest.raises(TaskDataError, match=r"dev-mismatched.*train, dev, test"):
        read_examples(provided, "dev-mismatched")


def test_a_damaged_table_is_not_read(folder: Path, tmp_path: Path) -> None:
    made, provided = build(tmp_path / "out", task="sst-2", data_dir=str(folder))
    path = tmp_path / "out" / made.files[0].stored_name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactCorruptError, match=r"train\.arrow .*damaged"):
        read_examples(provided, "train")
    path.unlink()
    with pytest.raises(ArtifactCorruptError, match="no such file"):
        read_examples(provided, "train")


def test_folder_names_its_data_and_the_name_is_in_the_cache_key(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "named")
    (tmp_path / "named" / "data-label.txt").write_text("generated\n sample\n")
    config = {"task": "sst-2", "data_dir": str(tmp_path / "named")}
    made, _ = build(tmp_path / "out", **config)
    assert made.statistics["data"] == "generated sample"
    assert "cut" not in made.statistics  # not compared with the official number of rows
    plain, _ = build(tmp_path / "plain", task="sst-2", data_dir=str(folder))
    assert "data" not in plain.statistics
    keys = [
        {item.key_digest for item in raw_inputs(ExamplesConfig(task="sst-2", data_dir=str(name)))}
        for name in (folder, tmp_path / "named")
    ]
    assert keys[0] < keys[1]
    assert {item.key_digest for item in made.raw_inputs} == keys[1]
    stated, _ = build(tmp_path / "stated", **config, data_label="mine")
    assert stated.statistics["data"] == "mine"
