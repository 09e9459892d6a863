"""Labeled data in files that `datasets` writes: JSON Lines and Parquet, one row per example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from pydantic import ValidationError
from support.cli_runner import Cli
from support.finetuning_builder import span_rows, text_rows, write_checkpoint

from flows.lineage.resolve import resolve
from flows.store.artifacts import ArtifactStore
from model.build_examples import build_examples
from model.tasks import BadRow, Row, task_of
from model.tasks.examples import read_examples
from model.tasks.files import base_name
from schemas.errors import ConfigError, TaskDataError
from schemas.execution_configs import ExecutionConfig
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


def build(folder: Path, *, url: str, **config: Any) -> tuple[StageOutput, StageInput]:
    """Run build-examples with one file as train and dev."""
    made = build_examples(
        ExamplesConfig.model_validate({"data_files": {"train": [url], "dev": [url]}, **config}),
        inputs={},
        output=str(folder / "out"),
        execution=ExecutionConfig(),
    )
    given = StageInput(
        name="examples",
        artifact_id="0" * 16,
        data=str(folder / "out"),
        files=made.files,
        counters=made.counters,
        statistics=made.statistics,
    )
    return made, given


def column(given: StageInput, name: str) -> list[Any]:
    return list(read_examples(given, "train").column(name).to_pylist())


def read(url: str, split: str = "train", **config: Any) -> tuple[list[Row], list[BadRow]]:
    task = task_of(ExamplesConfig.model_validate({"data_dir": "x", **config}))
    items = list(task.reader(task, split, url))
    return (
        [item for item in items if isinstance(item, Row)],
        [item for item in items if isinstance(item, BadRow)],
    )


def write_lines(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


# Tagged words


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("task", ["tagging", "conll-2003"])
def test_tags_are_read_when_they_are_names(tmp_path: Path, suffix: str, task: str) -> None:
    url = export(tagged(tags=NAMES), tmp_path / f"train.{suffix}")
    made, given = build(tmp_path, url=url, task=task)
    assert column(given, "words") == TOKENS
    assert column(given, "tags") == NAMES
    assert column(given, "sentence_lengths") == [[4], [1], [2]]
    assert made.statistics["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert made.counters["rows-in@train"] == made.counters["rows-kept@train"] == 3


def test_tag_numbers_take_names_from_parquet_schema(tmp_path: Path) -> None:
    url = export(tagged(tags=NUMBERS, names=TAGS), tmp_path / "train.parquet")
    _, given = build(tmp_path, url=url, task="tagging")
    assert column(given, "tags") == NAMES


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_tag_numbers_take_names_from_recipe(tmp_path: Path, suffix: str) -> None:
    url = export(tagged(tags=NUMBERS), tmp_path / f"train.{suffix}")
    _, given = build(tmp_path, url=url, task="tagging", labels=TAGS)
    assert column(given, "tags") == NAMES


def test_names_of_recipe_precede_names_of_parquet_schema(tmp_path: Path) -> None:
    others = ["O", "B-PERSON", "I-PERSON", "B-PLACE"]
    url = export(tagged(tags=NUMBERS, names=TAGS), tmp_path / "train.parquet")
    _, given = build(tmp_path, url=url, task="tagging", labels=others)
    assert column(given, "tags")[0] == ["B-PERSON", "I-PERSON", "O", "B-PLACE"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_tag_numbers_without_names_are_refused(tmp_path: Path, suffix: str) -> None:
    url = export(tagged(tags=NUMBERS), tmp_path / f"train.{suffix}")
    with pytest.raises(TaskDataError, match="labels: ") as error:
        build(tmp_path, url=url, task="tagging")
    assert url in str(error.value)
    assert "ner_tags" in str(error.value)


@pytest.mark.parametrize("number", [4, -1])
def test_tag_number_out_of_range_drops_its_row(tmp_path: Path, number: int) -> None:
    url = export(tagged(tags=[NUMBERS[0], [number], NUMBERS[2]]), tmp_path / "train.jsonl")
    rows, bad = read(url, task="tagging", labels=TAGS)
    assert [row.values["words"] for row in rows] == [TOKENS[0], TOKENS[2]]
    assert [(item.position, item.reason) for item in bad] == [("line 2", "unknown-tag")]
    assert f"{number}" in bad[0].found
    assert "0 to 3" in bad[0].found
    with pytest.raises(TaskDataError, match="1 of 3 rows are bad"):
        build(tmp_path, url=url, task="tagging", labels=TAGS)


def test_tagged_columns_can_be_named(tmp_path: Path) -> None:
    rows = tagged(tags=NAMES).rename_columns({"tokens": "form", "ner_tags": "entity"})
    url = export(rows, tmp_path / "train.parquet")
    with pytest.raises(TaskDataError) as error:
        build(tmp_path, url=url, task="tagging")
    assert all(name in str(error.value) for name in (url, "tokens", "id, form, entity"))
    with pytest.raises(TaskDataError, match="entities"):
        build(tmp_path, url=url, task="tagging", columns={"words": "form", "tags": "entities"})
    _, given = build(tmp_path, url=url, task="tagging", columns={"words": "form", "tags": "entity"})
    assert column(given, "tags") == NAMES


def test_malformed_tagged_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    url = write_lines(
        tmp_path / "train.jsonl",
        '{"tokens": ["Oslo"], "ner_tags": ["B-LOC"]}',
        '{"tokens": ["Oslo", "waits"], "ner_tags": ["B-LOC"]}',
        '{"tokens": [], "ner_tags": []}',
        '{"tokens": "Oslo", "ner_tags": ["B-LOC"]}',
        '{"tokens": ["Oslo", " "], "ner_tags": ["B-LOC", "O"]}',
        '{"tokens": ["Oslo"], "ner_tags": null}',
        '{"tokens": ["Oslo"], "ner_tags": [true]}',
        '{"tokens": ["Oslo"], "ner_tags": ["place"]}',
        '{"tokens": ["Oslo"]',
        "",
    )
    made, _ = build(tmp_path, url=url, task="tagging", max_invalid_fraction=1.0)
    dropped = {
        name.removeprefix("rows-dropped-").removesuffix("@train"): count
        for name, count in made.counters.items()
        if name.startswith("rows-dropped-") and name.endswith("@train")
    }
    assert dropped == {
        "tags-do-not-fit-words": 1,
        "no-words": 2,
        "no-word": 1,
        "no-tags": 1,
        "unknown-tag": 2,
        "malformed-json": 1,
        "blank-line": 1,
    }
    assert made.counters["rows-in@train"] == 1 + sum(dropped.values())


def test_test_split_may_lack_tags(tmp_path: Path) -> None:
    url = export(tagged(tags=NAMES).remove_columns("ner_tags"), tmp_path / "test.jsonl")
    rows, bad = read(url, "test", task="tagging")
    assert not bad
    assert [row.values["tags"] for row in rows] == [None, None, None]


def test_files_of_datasets_are_found_in_their_folder(tmp_path: Path) -> None:
    for name in ("train.jsonl", "validation.jsonl"):
        export(tagged(tags=NAMES), tmp_path / name)
    made = build_examples(
        ExamplesConfig(task="tagging", data_dir=str(tmp_path)),
        inputs={},
        output=str(tmp_path / "out"),
        execution=ExecutionConfig(),
    )
    assert made.statistics["splits"] == {"train": 3, "dev": 3}


@pytest.mark.parametrize("first", ["[", "{", '{"a"', "{}"])
def test_word_that_looks_like_json_is_read_as_column(tmp_path: Path, first: str) -> None:
    rows, bad = read(write_lines(tmp_path / "test.txt", first, "Oslo"), "test", task="tagging")
    assert not bad
    assert [row.values["words"] for row in rows] == [[first, "Oslo"]]


# Labels of texts


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_labels_are_read_when_they_are_names(tmp_path: Path, suffix: str) -> None:
    url = export(labelled(label=["good", "bad", "good"]), tmp_path / f"train.{suffix}")
    made, given = build(tmp_path, url=url, task="single-sentence")
    assert column(given, "label") == ["good", "bad", "good"]
    assert made.statistics["labels"] == ["bad", "good"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_label_numbers_take_names_and_order_from_recipe(tmp_path: Path, suffix: str) -> None:
    url = export(labelled(label=[1, 0, 1]), tmp_path / f"train.{suffix}")
    made, given = build(
        tmp_path, url=url, task="single-sentence", labels=["negative", "affirmative"]
    )
    assert column(given, "label") == ["affirmative", "negative", "affirmative"]
    assert made.statistics["labels"] == ["negative", "affirmative"]


def test_label_numbers_of_text_table_take_names_from_recipe(tmp_path: Path) -> None:
    url = write_lines(tmp_path / "train.csv", "sentence,label", "a,1", "b,bad", "c,2")
    rows, bad = read(url, task="single-sentence", labels=["bad", "good"])
    assert [row.values["label"] for row in rows] == ["good", "bad"]
    assert [item.reason for item in bad] == ["unknown-label"]


def test_label_numbers_take_names_from_parquet_schema(tmp_path: Path) -> None:
    rows = labelled(label=[1, 0, 1]).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    url = export(rows, tmp_path / "train.parquet")
    _, given = build(tmp_path, url=url, task="single-sentence")
    assert column(given, "label") == ["yes", "no", "yes"]


@pytest.mark.parametrize("number", [2, -2])
def test_label_number_out_of_range_drops_its_row(tmp_path: Path, number: int) -> None:
    url = export(labelled(label=[1, 0, number]), tmp_path / "train.jsonl")
    rows, bad = read(url, task="single-sentence", labels=["bad", "good"])
    assert len(rows) == 2
    assert [(item.position, item.reason) for item in bad] == [("line 3", "unknown-label")]
    assert "0 to 1" in bad[0].found


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_pairs_are_read_with_usual_and_named_columns(tmp_path: Path, suffix: str) -> None:
    pairs = datasets.Dataset.from_dict(
        {"sentence1": SENTENCES, "sentence2": SENTENCES[::-1], "label": ["a", "b", "a"]}
    )
    _, given = build(tmp_path, url=export(pairs, tmp_path / f"a.{suffix}"), task="sentence-pair")
    assert column(given, "text_b") == SENTENCES[::-1]
    names = {"text_a": "left", "text_b": "right", "label": "verdict"}
    others = pairs.rename_columns({"sentence1": "left", "sentence2": "right", "label": "verdict"})
    url = export(others, tmp_path / f"b.{suffix}")
    with pytest.raises(TaskDataError, match="left, right, verdict"):
        build(tmp_path, url=url, task="sentence-pair")
    _, given = build(tmp_path, url=url, task="sentence-pair", columns=names)
    assert column(given, "label") == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("sst-2", ["bad", "good"]),
        ("pair-regression", ["bad", "good"]),
        ("question-answering", ["bad", "good"]),
        ("tagging", ["O", "place"]),
    ],
)
def test_labels_that_task_cannot_take_are_refused(task: str, labels: list[str]) -> None:
    with pytest.raises(ConfigError, match="labels: "):
        task_of(ExamplesConfig.model_validate({"task": task, "data_dir": "x", "labels": labels}))


@pytest.mark.parametrize("labels", [["bad", "bad"], ["bad", ""]])
def test_labels_are_different_names(labels: list[str]) -> None:
    with pytest.raises(ValidationError, match="labels"):
        ExamplesConfig.model_validate(
            {"task": "single-sentence", "data_dir": "x", "labels": labels}
        )


def test_labels_are_in_cache_key() -> None:
    named = ExamplesConfig(task="tagging", data_dir="x", labels=tuple(TAGS))
    assert named.cache_key_fields()["labels"] == TAGS


# Questions


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("task", ["squad-1.1", "question-answering"])
def test_questions_are_read(tmp_path: Path, suffix: str, task: str) -> None:
    rows = datasets.Dataset.from_list([question(), question(id="q1", question="Who?")])
    made, given = build(tmp_path, url=export(rows, tmp_path / f"train.{suffix}"), task=task)
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
    _, given = build(tmp_path, url=url, task="question-answering-unanswerable")
    assert column(given, "is_impossible") == [False, True]
    _, bad = read(url, task="question-answering")
    assert [item.reason for item in bad] == ["unanswerable"]


@pytest.mark.parametrize("missing", ["id", "context", "question", "answers"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_missing_column_of_questions_is_refused(tmp_path: Path, suffix: str, missing: str) -> None:
    rows = datasets.Dataset.from_list([question()]).rename_column(missing, "other")
    url = export(rows, tmp_path / f"train.{suffix}")
    with pytest.raises(TaskDataError) as error:
        build(tmp_path, url=url, task="question-answering")
    assert all(text in str(error.value) for text in (url, "other", missing))


def test_answer_start_is_corrected_when_answer_is_elsewhere(tmp_path: Path) -> None:
    answers = {"text": ["Ada Byrne"], "answer_start": [1000]}
    rows = datasets.Dataset.from_list([question(answers=answers)])
    made, given = build(
        tmp_path, url=export(rows, tmp_path / "train.jsonl"), task="question-answering"
    )
    assert column(given, "answer_starts") == [[CONTEXT.index("Ada")]]
    assert made.counters["rows-answer-start-mended@train"] == 1


def test_answer_that_is_not_in_context_is_refused(tmp_path: Path) -> None:
    answers = {"text": ["Bo Byrne"], "answer_start": [32]}
    rows = datasets.Dataset.from_list([question(answers=answers)])
    url = export(rows, tmp_path / "train.jsonl")
    with pytest.raises(TaskDataError) as error:
        build(tmp_path, url=url, task="question-answering")
    for text in (url, "row 1", "answer-not-in-context", "Bo Byrne", "32"):
        assert text in str(error.value)


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


def qa_recipe(folder: Path) -> str:
    """Write files, a checkpoint and a recipe; return the recipe's path."""
    for split in ("train", "dev"):
        rows = [
            {
                **{name: row[name] for name in ("id", "title", "context", "question")},
                "answers": {"text": row["answers"], "answer_start": row["answer_starts"]},
            }
            for row in span_rows(12, split=split)
        ]
        export(datasets.Dataset.from_list(rows), folder / f"{split}.jsonl")
    recipe = {
        "name": "own",
        "store": "store",
        "build_examples": {"my-questions": {"task": "question-answering", "data_dir": "."}},
        "finetune": {
            "my-questions": {
                "examples": "my-questions",
                "init_checkpoint": write_checkpoint(folder / "bert"),
                "batch_size": 8,
                "learning_rate": 1.0e-3,
                "num_epochs": 1,
                "max_steps": 2,
                "max_seq_length": 48,
                "doc_stride": 16,
                "num_threads": 1,
            }
        },
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return str(folder / "recipe.yaml")


def test_own_questions_go_from_files_to_tables(cli: Cli, tmp_path: Path) -> None:
    recipe = qa_recipe(tmp_path)
    said = cli("run", recipe, "--engine", "local")
    assert said.code == 0, said.err
    store = ArtifactStore(str(tmp_path / "store"), create=False)
    found = resolve("own/evaluate.my-questions", store=store)
    assert found.counters["predictions-dev"] == 12
    assert {"em", "f1"} <= found.statistics["metrics"]["dev"].keys()
    tables = resolve("own/tabulate", store=store)
    (entry,) = [entry for entry in tables.files if entry.path == "tables.txt"]
    text = Path(store.url(f"{tables.data_path}/{entry.stored_name}")).read_text(encoding="utf-8")
    assert "my-questions" in text
    assert "question answering" in text


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
