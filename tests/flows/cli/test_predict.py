"""Asking a model from the command line: an answer for each line, and only about its own task."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.finetuning_builder import write_tuned

from flows.cli.predict import lines_of, texts_as_examples
from model.tasks import TASKS
from schemas.errors import ConfigError

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


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_every_line_has_an_answer_in_its_place(
    models: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, b"the film is fine\n\nthe film is dull\n  \r\n\xff\xfe\nthe song\r\n")
    said = cli("predict", models["sst-2"])
    assert said.code == 1
    lines = said.out.splitlines()
    assert [line.partition("\t")[0] in ("negative", "positive") for line in lines] == [
        *(True, False, True, False, False, True)
    ]
    assert lines[1] == lines[3] == "(not answered: no text)"
    assert lines[4] == "(not answered: not UTF-8)"
    assert "3 of 6 lines were not answered: line 2: no text; line 4: no text; line 5" in said.err
    # What stands beside an unusable line does not change another's answer.
    give(monkeypatch, b"the film is fine\nthe film is dull\nthe song\n")
    alone = cli("predict", models["sst-2"])
    assert alone.code == 0
    assert alone.out.splitlines() == [lines[0], lines[2], lines[5]]


def test_a_bad_pair_does_not_take_others_along(
    models: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, b"the film\tthe song\nthe film\na\tb\tc\n\tthe song\nthe town\tthe film\n")
    said = cli("predict", models["mrpc"], "--json")
    assert said.code == 1
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [item["id"] for item in answers] == ["0", "1", "2", "3", "4"]
    assert ["label" in item for item in answers] == [True, False, False, False, True]
    assert answers[1]["error"] == "line 2: expected two texts with one tab between, found 0 tabs"
    assert answers[2]["error"].endswith("found 2 tabs")
    assert answers[3]["error"].endswith("one is empty")
    give(monkeypatch, b"the film\nthe song\n")
    assert "--text-pair is missing" in cli("predict", models["mrpc"]).err


def test_nothing_but_blank_lines_is_answered_line_by_line(
    models: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, b"\n\n")
    said = cli("predict", models["sst-2"])
    assert (said.code, len(said.out.splitlines())) == (1, 2)
    give(monkeypatch, b"")
    assert "no text: give one" in cli("predict", models["sst-2"]).err


def test_rows_of_a_file_without_an_answer_are_said(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine film\t1\ndull film\t7\n")
    said = cli("predict", models["sst-2"], "--file", str(tmp_path / "dev.tsv"), "--split", "dev")
    assert len(said.out.splitlines()) == 1
    assert "1 of 2 rows get no answer: unknown-label 1" in said.err


def test_words_and_lines_are_told_apart() -> None:
    assert lines_of([b"a\r\n", b"\n", b"b\x0bc\n", b"\xff\n", b"d"]) == [
        *("a", "", "b\x0bc", None, "d")
    ]
    tagged = texts_as_examples(TASKS["conll-2003"], ["Anna lives", " "])
    assert tagged.faults == {1: "no text"}
    assert (len(tagged.examples), tagged.size) == (1, 2)
    with pytest.raises(ConfigError, match="expected 4 of them"):
        texts_as_examples(TASKS["swag"], ["She sat"], choices=("down",))


def write_pairs(folder: Path, *, labels: tuple[str, str]) -> str:
    rows = [f"{n}\tthe film\tthe song\t{labels[n % 2]}" for n in range(6)]
    path = folder / "dev.tsv"
    path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    return str(path)


def test_a_model_of_another_task_is_refused(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    gold = write_pairs(tmp_path, labels=("0", "1"))
    said = cli("evaluate", "wnli", gold, "--model", models["sst-2"])
    assert said.code == 1
    assert "was fine-tuned for sst-2 (classification), not for wnli" in said.err
    assert "--allow-task-mismatch" in said.err
    said = cli("evaluate", "wnli", gold, "--model", models["sst-2"], "--allow-task-mismatch")
    assert said.code == 0, said.err
    assert "accuracy" in said.out


def test_answers_that_the_task_has_not_are_refused_with_force_too(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    gold = write_pairs(tmp_path, labels=("0", "1"))
    for force in ((), ("--allow-task-mismatch",)):
        said = cli("evaluate", "wnli", gold, "--model", models["rte"], *force)
        assert said.code == 1
        assert "its labels are entailment, not_entailment" in said.err
        assert "with the labels 0, 1" in said.err
        said = cli("evaluate", "sts-b", gold, "--model", models["rte"], *force)
        assert said.code == 1
        assert "sts-b is regression" in said.err


def test_a_set_without_training_data_is_for_models_of_its_labels(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "AX.tsv"
    rows = [f"{n}\tthe film\tthe song\tneutral" for n in range(4)]
    path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    said = cli("evaluate", "ax", str(path), "--split", "test", "--model", models["mnli"])
    assert said.code == 0, said.err
    assert "not the whole split: 4 of 1,104 test rows" in said.out
    assert cli("evaluate", "ax", str(path), "--split", "test", "--model", models["rte"]).code == 1


def test_labels_that_the_model_does_not_know_are_refused(
    models: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("text\tlabel\nthe film\tgood\nthe song\tbad\nthe town\tfair\n")
    arguments: tuple[Any, ...] = ("evaluate", "single-sentence", str(path), "--model")
    said = cli(*arguments, models["own"])
    assert said.code == 1
    assert "1 of 3 rows" in said.err
    said = cli(*arguments, models["own"], "--allow-task-mismatch")
    assert said.code == 0, said.err
    assert "rows-dropped-label-not-of-the-model" in said.out
