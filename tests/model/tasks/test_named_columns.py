"""Files with columns and labels that a recipe or a command names, also those of `datasets`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow.csv
import pytest
import yaml
from pydantic import ValidationError
from support.cli_runner import Cli
from support.finetuning_builder import text_rows, write_checkpoint, write_tuned
from support.task_rows import build, faults, read, values, write
from typer.testing import CliRunner

from flows.cli.app import app
from model.tasks import BadRow, Row, task_of
from model.tasks.examples import read_examples
from schemas.errors import ConfigError, TaskDataError, UsageError
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import StageInput, StageOutput

datasets.disable_progress_bars()

UNIVERSAL_NER = """# sent_id = weblog-1
# text = Mia saw # 4 in Oslo
1\tMia\tB-PER\t-\tann
2\tsaw\tO\t-\tann
3\t#\tO\t-\tann
4\t4\tO\t-\tann
5\tin\tO\t-\tann
6\tOslo\tB-LOC\t-\tann

# sent_id = weblog-2
1\t是\tO\t-\tann
"""
REVIEWS = 'id,review,stars,said\n7,"Good, ""really""",5,yes\n8,差,1,no\n'


def parse(
    path: Path, text: str | bytes, task: str, split: str = "train", **config: Any
) -> tuple[list[Row], list[BadRow]]:
    return read(task, split, write(path, text), **config)


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (UNIVERSAL_NER, {"columns": {"words": 1, "tags": 2}}),
        ("form ner\nMia B-PER\n", {"columns": {"words": "form", "tags": "ner"}}),
        ("words x ner\nMia y B-PER\n", {"columns": {"tags": "ner"}}),
        ("B-PER x Mia\nO\tx\tsaw\n", {"columns": {"words": 2, "tags": 0}}),
        (
            "tag word\nB-PER Mia\nO saw\n",
            {"columns": {"words": 1, "tags": 0}, "file_format": {"header": True}},
        ),
    ],
    ids=["universal-ner", "names", "one-name", "numbers", "numbers-and-header"],
)
def test_columns_of_tagged_words(text: str, config: dict[str, Any], tmp_path: Path) -> None:
    rows, bad = parse(tmp_path / "f", text, "tagging", **config)
    assert not bad
    words, tags = ["Mia", "saw", "#", "4", "in", "Oslo"], ["B-PER", *"OOOO", "B-LOC"]
    if text is UNIVERSAL_NER:
        assert values(rows, "words", "tags") == [(words, tags), (["是"], ["O"])]
    else:
        size = text.count("Mia") + text.count("saw")
        assert values(rows, "words", "tags") == [(words[:size], tags[:size])]


def test_error_of_unnamed_columns_tells_column_and_field(tmp_path: Path) -> None:
    _, bad = parse(tmp_path / "f", UNIVERSAL_NER, "tagging")
    assert faults(bad) == [("line 3", "unknown-tag"), ("line 11", "unknown-tag")]
    assert "ann in column 4 of 1 Mia B-PER - ann" in bad[0].detail
    assert "columns.tags" in bad[0].detail


def test_tags_may_be_missing_in_a_test_set(tmp_path: Path) -> None:
    columns = {"words": 1, "tags": 2}
    rows, _ = parse(tmp_path / "f", "1\tMia\n2\tsaw\n", "tagging", "test", columns=columns)
    assert values(rows, "words", "tags") == [(["Mia", "saw"], None)]
    with pytest.raises(TaskDataError, match=r"got 0, 1; missing column 2\. .*columns\.tags"):
        parse(tmp_path / "f", "1\tMia\n", "tagging", "dev", columns=columns)
    rows, bad = parse(tmp_path / "f", "1\tMia\tO\n\n2\tsaw\n", "tagging", columns=columns)
    assert [(len(rows), item.reason) for item in bad] == [(1, "too-few-columns")]


@pytest.mark.parametrize(
    ("task", "columns", "expected"),
    [
        ("single-sentence", {"text": "review", "label": 3}, {"id": "7", "label": "yes"}),
        ("single-sentence", {"sentence": "review", "class": "stars"}, {"id": "7", "label": "5"}),
        ("sentence-pair", {"text_a": 1, "text_b": "said", "label": "stars"}, {"text_b": "yes"}),
        ("pair-regression", {"sentence1": 1, "sentence2": "said", "score": 2}, {"score": 5.0}),
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_columns_have_names_of_recipe(
    task: str, columns: Any, expected: dict[str, Any], form: str, tmp_path: Path
) -> None:
    url = write(tmp_path / "a.csv", REVIEWS)
    if form != "csv":
        url = export(datasets.Dataset(pyarrow.csv.read_csv(url)), tmp_path / f"a.{form}")
    rows, bad = read(task, "train", url, columns=columns)
    assert not bad
    expected = {"text_a": 'Good, "really"', **expected}
    assert {name: rows[0].values[name] for name in expected} == expected
    assert rows[1].values["text_a"] == "差"


def test_columns_of_questions_can_be_named_in_tables(tmp_path: Path) -> None:
    row = {
        "id": 1,
        "passage": "In Oslo.",
        "q": "Where?",
        "answers": {"text": ["Oslo"], "answer_start": [3]},
    }
    columns = {"context": "passage", "question": "q"}
    rows, bad = parse(tmp_path / "a", json.dumps(row), "question-answering", columns=columns)
    assert (values(rows, "context", "answers"), bad) == ([("In Oslo.", ["Oslo"])], [])
    with pytest.raises(TaskDataError, match="columns is set, got SQuAD"):
        parse(tmp_path / "b", '{"data": []}', "squad-1.1", columns=columns)


def test_tables_without_header_and_with_other_separators(tmp_path: Path) -> None:
    columns, path = {"text": 1, "label": 0}, tmp_path / "f"
    text = "yes\tFine\n\nno\tBad\tx\n"
    rows, bad = parse(path, text, "single-sentence", columns=columns)
    assert values(rows, "id", "text_a", "label") == [("0", "Fine", "yes")]
    assert faults(bad) == [("line 2", "blank-line"), ("line 3", "too-many-columns")]
    text = "what;said\nyes;'Fine'\nno;\"Bad\"\n"
    form = {"delimiter": "semicolon", "header": True, "quoted": False}
    rows, bad = parse(path, text, "single-sentence", columns=columns, file_format=form)
    assert (values(rows, "text_a", "label"), bad) == ([("'Fine'", "yes"), ('"Bad"', "no")], [])
    text = 'sentence;label\n"a; b";yes\n'
    rows, _ = parse(path, text, "single-sentence", file_format={"delimiter": "semicolon"})
    assert values(rows, "text_a", "label") == [("a; b", "yes")]
    text = 'sentence\tlabel\n"a\tb ""c"""\tyes\n'
    rows, _ = parse(path, text, "single-sentence", file_format={"quoted": True})
    assert values(rows, "text_a", "label") == [('a\tb "c"', "yes")]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        (REVIEWS, {"text": "revue", "label": 3},
         r"expected .*: revue; got id, review, stars, said; missing revue.*columns\.text"),
        (REVIEWS, {"text": 1, "label": 4}, r"missing column 4.*columns\.label"),
        (REVIEWS, {"text": "review"}, r"missing label.* columns$"),
        ("a\ta\tb\nx\ty\tz\n", {"text": "a", "label": "b"}, "one column 'a', got 2"),
        ('"open,x\n', {"text": 0, "label": 1}, r"line 1: .*file_format\.quoted"),
        ('"a"b,x\ny,z\n', {"text": 0, "label": 1}, r"first line.*file_format\.quoted"),
        ('"",""\n\n', {"text": 0, "label": 1}, "no line with text"),
    ],
)  # fmt: skip
def test_missing_columns_are_refused(
    text: str, columns: Any, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskDataError, match=expected):
        parse(tmp_path / "f", text, "single-sentence", columns=columns)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"columns": {"text": 1, "label": 1}}, "columns: expected one column per field"),
        (
            {"columns": {"text": "a", "label": 1}, "file_format": {"header": False}},
            "columns.text: expected a 0-based number",
        ),
        ({"labels": ("bad", "bad")}, "labels"),
        ({"labels": ("bad", "")}, "labels"),
        ({"file_format": {"comment_prefix": "#"}}, "comment_prefix"),
        ({"max_samples": {"dev": 0}}, "max_samples.dev"),
    ],
)
def test_columns_that_make_no_sense(config: Any, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        ExamplesConfig(task="single-sentence", data_dir="x", **config)


@pytest.mark.parametrize(
    ("task", "config", "expected"),
    [
        ("sst", {}, "no task 'sst'"),
        ("sst-2", {"columns": {"text": 1, "score": 2}}, "of sst-2: sentence, text, .*got score"),
        ("mnli", {"columns": {"text_a": 1, "text_b": 2, "label": 3, "words": 4}}, "got words"),
        ("squad-1.1", {"columns": {"text": 1}}, "context, id, question, answers, .*got text"),
        ("tagging", {"file_format": {"delimiter": "comma"}}, "file_format: expected no delimiter"),
        ("tagging", {"labels": ("O", "place")}, "labels: expected O or tags .*got place"),
        ("sst-2", {"labels": ("a", "b")}, "labels: expected a task without fixed labels"),
        ("pair-regression", {"labels": ("a", "b")}, "labels: expected a task without fixed"),
        ("sst-2", {"data_files": {"holdout": ("x",)}}, "data_files: no split 'holdout'"),
        ("sst-2", {"max_samples": {"dve": 1}}, "max_samples: no split"),
    ],
)
def test_config_that_does_not_fit_the_task_is_refused(
    task: str, config: Any, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        task_of(ExamplesConfig(task=task, data_dir="x", **config))


@pytest.mark.parametrize(
    "options", [("--column", "words"), ("--column", "words=1", "--column", "tags=1")]
)
def test_unusable_column_options_are_usage_errors(tmp_path: Path, options: Sequence[str]) -> None:
    (tmp_path / "a.tsv").write_text(UNIVERSAL_NER)
    arguments = ["evaluate", "tagging", str(tmp_path / "a.tsv"), "--predictions", "none"]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert isinstance(result.exception, UsageError)


# Files that `datasets` writes, with names or numbers of labels

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
    results = datasets.Dataset.from_dict(
        {"id": ["0", "1", "2"], "tokens": TOKENS, "ner_tags": tags}
    )
    if names is None:
        return results
    return results.cast_column("ner_tags", datasets.Sequence(datasets.ClassLabel(names=names)))


def build_one(folder: Path, *, url: str, **config: Any) -> tuple[StageOutput, StageInput]:
    """Run build-examples with one file as train and dev."""
    return build(folder / "out", data_files={"train": [url], "dev": [url]}, **config)


def column(provided: StageInput, name: str) -> list[Any]:
    return list(read_examples(provided, "train").column(name).to_pylist())


OTHERS = ["O", "B-PERSON", "I-PERSON", "B-PLACE"]


@pytest.mark.parametrize(
    ("suffix", "schema_names", "labels", "expected"),
    [
        ("jsonl", NAMES, [], TAGS),
        ("parquet", NAMES, [], TAGS),
        ("parquet", TAGS, [], TAGS),
        ("parquet", None, TAGS, TAGS),
        ("jsonl", None, TAGS, TAGS),
        ("parquet", TAGS, OTHERS, OTHERS),
    ],
)
def test_tags_are_names_or_numbers_with_names_of_recipe_or_parquet_schema(
    tmp_path: Path, suffix: str, schema_names: Any, labels: list[str], expected: list[str]
) -> None:
    is_named = schema_names is NAMES
    rows = tagged(tags=NAMES) if is_named else tagged(tags=NUMBERS, names=schema_names)
    url = export(rows, tmp_path / f"train.{suffix}")
    results, bad = read("tagging", "train", url, labels=labels)
    assert not bad
    assert values(results, "words", "tags", "sentence_lengths") == [
        (words, [expected[number] for number in row], [len(words)])
        for words, row in zip(TOKENS, NUMBERS, strict=True)
    ]


def test_tag_numbers_without_names_are_refused(tmp_path: Path) -> None:
    url = export(tagged(tags=NUMBERS), tmp_path / "train.jsonl")
    with pytest.raises(TaskDataError, match="labels") as error:
        build_one(tmp_path, url=url, task="tagging")
    assert url in str(error.value)
    assert "ner_tags" in str(error.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"tokens": ["Oslo", "waits"], "ner_tags": ["B-LOC"]}', "tags-do-not-fit-words"),
        ('{"tokens": [], "ner_tags": []}', "no-words"),
        ('{"tokens": "Oslo", "ner_tags": ["B-LOC"]}', "no-words"),
        ('{"tokens": ["Oslo", " "], "ner_tags": ["B-LOC", "O"]}', "no-word"),
        ('{"tokens": ["Oslo", null], "ner_tags": ["B-LOC", "O"]}', "no-word"),
        ('{"tokens": ["Oslo", 3], "ner_tags": ["B-LOC", "O"]}', "no-word"),
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
    assert made.statistics["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


@pytest.mark.parametrize("first", ["[", "{", '{"a"', "{}"])
def test_word_that_looks_like_json_is_read_as_column(tmp_path: Path, first: str) -> None:
    rows, bad = read("tagging", "test", write(tmp_path / "test.txt", f"{first}\nOslo\n"))
    assert not bad
    assert values(rows, "words") == [([first, "Oslo"],)]


def test_label_numbers_of_json_take_names_from_recipe(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"sentence": ["a", "b", "c"], "label": [1, 0, 1]})
    url = export(rows, tmp_path / "train.jsonl")
    made, provided = build_one(tmp_path, url=url, task="single-sentence", labels=["good", "bad"])
    assert column(provided, "label") == ["bad", "good", "bad"]
    assert made.statistics["labels"] == ["good", "bad"]


def test_label_numbers_of_text_table_take_names_from_recipe(tmp_path: Path) -> None:
    url = write(tmp_path / "train.csv", "sentence,label\na,1\nb,bad\nc,2\n")
    rows, bad = read("single-sentence", "train", url, labels=["bad", "good"])
    assert values(rows, "label") == [("good",), ("bad",)]
    assert faults(bad) == [("line 4", "unknown-label")]


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
