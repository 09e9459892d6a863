"""`bertloom predict` and `evaluate --model` with small models: one answer per line."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.finetuning_builder import write_tuned

from flows.cli.predict import decode_lines
from model.tasks import TASKS
from model.tasks.examples import make_questions
from schemas.errors import UsageError

NLI = ("entailment", "not_entailment")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "sst-2": write_tuned(folder / "sst-2", task="sst-2"),
        "mrpc": write_tuned(folder / "mrpc", task="mrpc"),
        "rte": write_tuned(folder / "rte", task="rte", labels=NLI),
        "mnli": write_tuned(folder / "mnli", task="mnli", labels=TASKS["mnli"].labels),
        "own": write_tuned(folder / "own", task="single-sentence", labels=("good", "bad")),
    }


def set_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_every_line_has_an_answer_or_an_error(
    models: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_input(monkeypatch, b"the film is fine\n\nthe film is dull\n  \r\n\xff\xfe\nthe song\r\n")
    result = cli("predict", models["sst-2"])
    assert result.code == 1
    lines = result.out.splitlines()
    is_answered = [line.partition("\t")[0] in ("negative", "positive") for line in lines]
    assert is_answered == [True, False, True, False, False, True]
    assert all(line.endswith("%") for line in lines if "\t" in line)
    assert "line 5: not UTF-8" in result.err
    # Unusable lines do not change the answers of others.
    set_input(monkeypatch, b"the film is fine\nthe film is dull\nthe song\n")
    alone = cli("predict", models["sst-2"])
    assert alone.code == 0
    assert alone.out.splitlines() == [lines[0], lines[2], lines[5]]


def test_unusable_pair_has_an_error_in_its_place(
    models: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"the film\tthe song\nthe film\na\tb\tc\n\tthe song\nthe town\tthe film\n"
    set_input(monkeypatch, text)
    result = cli("predict", models["mrpc"], "--json")
    assert result.code == 1
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [item["id"] for item in answers] == ["0", "1", "2", "3", "4"]
    assert ["label" in item for item in answers] == [True, False, False, False, True]
    assert "line 2" in answers[1]["error"]
    set_input(monkeypatch, b"the film\nthe song\n")
    result = cli("predict", models["mrpc"])
    assert (result.code, "--text-pair" in result.err) == (2, True)


def test_empty_input_is_an_error(
    models: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data, lines in ((b"\n\n", 2), (b"", 0)):
        set_input(monkeypatch, data)
        result = cli("predict", models["sst-2"])
        assert (result.code, len(result.out.splitlines())) == (1, lines)


def test_unusable_rows_of_a_file_are_counted(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine film\t1\ndull film\t7\n")
    result = cli("predict", models["sst-2"], "--file", str(tmp_path / "dev.tsv"), "--split", "dev")
    assert len(result.out.splitlines()) == 1
    assert "1 of 2 rows" in result.err
    assert "unknown-label 1" in result.err


def test_texts_become_examples() -> None:
    lines = [b"a\r\n", b"\n", b"b\x0bc\n", b"\xff\n", b"d"]
    assert decode_lines(lines) == ["a", "", "b\x0bc", None, "d"]
    tagging = make_questions(TASKS["conll-2003"], ["Anna lives", " "])
    assert (len(tagging.examples), set(tagging.errors)) == (1, {1})
    choice = make_questions(TASKS["swag"], ["She sat"], {"choice": ["a", "b", "c", "d"]})
    assert choice.examples["continuations"].to_pylist() == [["a", "b", "c", "d"]]


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("swag", {"choice": ["down"]}),
        ("swag", {"choice": ["a", "b", "c", "d"], "text-pair": "down"}),
        ("squad-1.1", {}),
        ("sst-2", {"question": "b"}),
    ],
)
def test_missing_and_unknown_parts_are_usage_errors(task: str, parts: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        make_questions(TASKS[task], ["She sat"], parts)


def write_pairs(folder: Path, labels: Sequence[object] = (0, 1, 0, 1, 0, 1)) -> str:
    rows = [f"{n}\tthe film\tthe song\t{label}" for n, label in enumerate(labels)]
    path = folder / "pairs.tsv"
    path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    return str(path)


def test_model_of_another_task_needs_an_option(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    arguments = ("evaluate", "wnli", write_pairs(tmp_path), "--model", models["sst-2"])
    result = cli(*arguments)
    assert result.code == 1
    assert "--allow-task-mismatch" in result.err
    result = cli(*arguments, "--allow-task-mismatch")
    assert result.code == 0, result.err
    assert "accuracy" in result.out


@pytest.mark.parametrize("task", ["wnli", "sts-b"])
@pytest.mark.parametrize("options", [(), ("--allow-task-mismatch",)])
def test_model_with_other_answers_is_refused(
    models: dict[str, str], cli: Cli, tmp_path: Path, task: str, options: tuple[str, ...]
) -> None:
    path = write_pairs(tmp_path)
    result = cli("evaluate", task, path, "--model", models["rte"], *options)
    assert result.code == 1
    assert all(text in result.err for text in (task, *NLI))


def test_task_without_training_data_accepts_models_with_its_labels(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    arguments = ("evaluate", "ax", write_pairs(tmp_path, ["neutral"] * 4), "--split", "test")
    result = cli(*arguments, "--model", models["mnli"])
    assert result.code == 0, result.err
    assert "4 of 1,104 test rows" in result.out
    assert cli(*arguments, "--model", models["rte"]).code == 1


def test_unknown_labels_need_an_option(models: dict[str, str], cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("text\tlabel\nthe film\tgood\nthe song\tbad\nthe town\tfair\n")
    arguments = ("evaluate", "single-sentence", str(path), "--model", models["own"])
    result = cli(*arguments)
    assert result.code == 1
    assert "1 of 3 rows" in result.err
    result = cli(*arguments, "--allow-task-mismatch")
    assert result.code == 0, result.err
    assert "rows-dropped-label-not-of-the-model" in result.out
