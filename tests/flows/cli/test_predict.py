"""`bertloom predict` and `evaluate --model` with small models: one answer per line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.finetuning_builder import write_tuned

from flows.cli.models import decode_lines
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
    set_input(monkeypatch, b"\n\n")
    result = cli("predict", models["sst-2"])
    assert (result.code, len(result.out.splitlines())) == (1, 2)


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
    parts: dict[str, dict[str, object]] = {
        "swag": {"choice": ["down"]}, "squad-1.1": {}, "sst-2": {"question": "b"},
    }  # fmt: skip
    for task, missing_or_unknown in parts.items():
        with pytest.raises(UsageError):
            make_questions(TASKS[task], ["She sat"], missing_or_unknown)


FILES = {
    "pairs.tsv": "index\tsentence1\tsentence2\tlabel\n0\tthe film\tthe song\t0\n1\ta\tb\t1\n",
    "ax.tsv": "index\tsentence1\tsentence2\tlabel\n" + "0\tthe film\tthe song\tneutral\n" * 4,
    "own.tsv": "text\tlabel\nthe film\tgood\nthe song\tbad\nthe town\tfair\n",
}


@pytest.mark.parametrize(
    ("arguments", "model", "code", "text"),
    [
        (("wnli", "pairs.tsv"), "sst-2", 1, "--allow-task-mismatch"),
        (("wnli", "pairs.tsv", "--allow-task-mismatch"), "sst-2", 0, "accuracy"),
        (("wnli", "pairs.tsv", "--allow-task-mismatch"), "rte", 1, "not_entailment"),
        (("sts-b", "pairs.tsv", "--allow-task-mismatch"), "rte", 1, "not_entailment"),
        # A task without training data takes models with its labels.
        (("ax", "ax.tsv", "--split", "test"), "mnli", 0, "4 of 1,104 test rows"),
        (("ax", "ax.tsv", "--split", "test"), "rte", 1, "ax"),
        (("single-sentence", "own.tsv"), "own", 1, "1 of 3 rows"),
        (("single-sentence", "own.tsv", "--allow-task-mismatch"), "own", 0, "-not-of-the-model"),
    ],
)
def test_evaluation_needs_a_model_of_the_task_or_an_option(
    models: dict[str, str],
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    model: str,
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content)
    result = cli("evaluate", *arguments, "--model", models[model])
    assert result.code == code, result.err
    assert text in result.out + result.err
