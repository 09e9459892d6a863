"""`bertloom finetune`, `evaluate` and `predict`, from task files to answers."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import span_rows, text_rows, write_checkpoint
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from flows.cli.app import main
from flows.lineage.resolve import resolve
from flows.store.artifacts import ArtifactStore

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_worker")]


def write_sst(folder: Path) -> None:
    folder.mkdir(parents=True)
    for split, count in (("train", 200), ("dev", 40)):
        rows = text_rows(count, split=split)
        lines = ["sentence\tlabel", *(f"{row['text_a']}\t{row['label']}" for row in rows)]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    tests = [f"{n}\t{row['text_a']}" for n, row in enumerate(text_rows(10, split="test"))]
    (folder / "test.tsv").write_text("\n".join(["index\tsentence", *tests]) + "\n")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a task, a checkpoint, and the store of a fine-tuning of two restarts."""
    folder = tmp_path_factory.mktemp("tuned")
    write_sst(folder / "SST-2")
    write_checkpoint(folder / "bert")
    main_or_exit(*finetune_arguments(folder), "--restarts", "2", "--engine", "local")
    return folder


def finetune_arguments(folder: Path) -> tuple[str, ...]:
    return (
        "finetune", "sst-2", "--data-dir", str(folder / "SST-2"), "--checkpoint",
        str(folder / "bert"), "--batch-size", "8", "--learning-rate", "3e-3", "--num-epochs", "10",
        "--max-seq-length", "32", "--store", str(folder / "store"), "--name", "mine",
        "--set", "finetune.sst-2.num_threads=1", "--set", "finetune.sst-2.dropout=0.0",
    )  # fmt: skip


def main_or_exit(*arguments: str) -> None:
    with contextlib.suppress(SystemExit):  # a command that fails leaves nothing to test
        main(arguments)


def test_fine_tuning_writes_models_scores_and_tables(tuned: Path) -> None:
    store = ArtifactStore(str(tuned / "store"), create=False)
    statistics = resolve("mine/evaluate.sst-2", store=store).statistics
    assert statistics["metrics"]["dev"]["accuracy"] > 0.9
    assert len(statistics["cells"]) == 2
    report = (tuned / "store" / "reports" / "mine.html").read_text()
    assert "Table 1: GLUE" in report
    assert "84.6" in report
    trial = resolve("mine/finetune.sst-2.bs8-lr0.003-ep10-r0", store=store)
    data = store.url(trial.data_path)
    model = AutoModelForSequenceClassification.from_pretrained(data)
    assert model.config.id2label == {0: "0", 1: "1"}
    assert AutoTokenizer.from_pretrained(data)("the film")["input_ids"][0] == 101
    metrics = json.loads((Path(data) / "metrics.json").read_text())
    assert metrics["dev"] == trial.statistics["metrics"]["dev"]


def test_more_restarts_train_only_what_is_missing(tuned: Path, cli: Cli) -> None:
    arguments = finetune_arguments(tuned)
    result = cli(*arguments, "--restarts", "3", "--dry-run")
    assert result.code == 0, result.err
    assert re.search(r"^finetune\.sst-2 \(2 trials\) +cached", result.out, re.MULTILINE)
    assert re.search(r"^finetune\.sst-2\.bs8-lr0\.003-ep10-r2 .*build", result.out, re.MULTILINE)
    recipe = yaml.safe_load(cli(*arguments, "--show-recipe").out)
    assert recipe["finetune"]["sst-2"]["learning_rate"] == [3e-3]


def test_text_gets_an_answer(tuned: Path, cli: Cli) -> None:
    predict = ("predict", "mine/evaluate.sst-2", "--store", str(tuned / "store"))
    result = cli(*predict, "film lovely town", "film dull town")  # words of the training data
    assert result.code == 0, result.err
    answers = [line.split("\t") for line in result.out.splitlines()]
    assert [label for label, _ in answers] == ["positive", "negative"]
    assert all(50 <= float(percent.rstrip("%")) <= 100 for _, percent in answers)
    result = cli(*predict, "film lovely town", "--json")
    assert set(json.loads(result.out)["probabilities"]) == {"negative", "positive"}
    result = cli(*predict, "--file", str(tuned / "SST-2" / "test.tsv"))
    assert len(result.out.splitlines()) == 10


def test_written_predictions_have_the_same_score(tuned: Path, cli: Cli, tmp_path: Path) -> None:
    store, dev = str(tuned / "store"), str(tuned / "SST-2" / "dev.tsv")
    out = tmp_path / "predictions.jsonl"
    result = cli("evaluate", "sst-2", dev, "--model", "mine/evaluate.sst-2", "--store", store,
                 "--out", str(out), "--json")  # fmt: skip
    assert result.code == 0, result.err
    score = ("evaluate", "sst-2", dev, "--predictions", str(out), "--json")
    first = json.loads(result.out)
    assert json.loads(cli(*score).out) == first
    assert first["counts"] == {"rows-in": 40, "rows-kept": 40}
    items = [json.loads(line) for line in out.read_text().splitlines()]
    for item in items[:10]:
        item["label"] = "1" if item["label"] == "0" else "0"
    out.write_text("".join(json.dumps(item) + "\n" for item in items))
    worse = json.loads(cli(*score).out)
    assert worse["metrics"]["accuracy"] < first["metrics"]["accuracy"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("finetune", "sst2", "--data-dir", "x", "--checkpoint", "BERT"), 1, "sst-2"),
        (("finetune", "sst-2", "--checkpoint", "BERT"), 2, "--data-dir"),
        (("finetune", "sst-2", "--data-dir", "x", "--checkpoint", "none"), 1, "none"),
        (("finetune", "sst-2", "--data-file", "train", "--checkpoint", "BERT"), 2, "--data-file"),
        (("finetune", "sst-2", "--data-dir=x", "--checkpoint=x", "--num-epochs=a"), 2, "epochs"),
        (("evaluate", "sst-2", "DEV"), 2, "--predictions"),
        (("evaluate", "sst-2", "DEV", "--predictions", "none"), 1, "none"),
        (("evaluate", "sst-2", "TEST", "--split", "test", "--model", "MODEL"), 1, "test.tsv"),
        (("evaluate", "sst-2", "DEV", "--split", "middle", "--model", "MODEL"), 1, "middle"),
        (("evaluate", "squad-1.1", "DEV", "--model", "MODEL"), 1, "sst-2"),
        (("predict", "MODEL", "a", "--question", "b"), 2, "--question"),
        (("predict", "MODEL", "a", "--file", "b"), 2, "--file"),
        (("predict", "BERT", "a"), 1, "config.json"),
    ],
)
def test_wrong_arguments_are_named(
    tuned: Path, cli: Cli, arguments: tuple[str, ...], code: int, text: str
) -> None:
    values = {
        "BERT": str(tuned / "bert"),
        "DEV": str(tuned / "SST-2" / "dev.tsv"),
        "TEST": str(tuned / "SST-2" / "test.tsv"),
        "MODEL": "mine/evaluate.sst-2",
    }
    words = [values.get(argument, argument) for argument in arguments]
    result = cli(*words, "--store", str(tuned / "store"))
    assert result.code == code, result.out
    assert text in result.err
    assert "Traceback" not in result.err


def test_finetune_reports_missing_data_and_checkpoint_together(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "finetune", "sst-2", "--data-dir", str(tmp_path / "no-data"),
        "--checkpoint", str(tmp_path / "no-model"), "--store", str(tmp_path / "store"),
    )  # fmt: skip
    assert result.code == 1
    assert "no-data" in result.err
    assert "no-model" in result.err


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the store of two equal entries on SQuAD 2.0 and their ensemble."""
    folder = tmp_path_factory.mktemp("questions")
    write_checkpoint(folder / "bert")
    for split, count in (("train", 24), ("dev", 9), ("test", 7)):
        rows = span_rows(count, split=split, unanswerable=True)
        (folder / f"{split}.json").write_text(json.dumps(as_squad(rows)))
    entry = {
        "examples": "questions",
        "init_checkpoint": "bert",
        "batch_size": [8],
        "learning_rate": [2e-3],
        "num_epochs": [6],
        "restarts": 2,
        "max_seq_length": 48,
        "num_threads": 1,
    }
    files = {split: f"{split}.json" for split in ("train", "dev", "test")}
    recipe = {
        "name": "asked",
        "store": "store",
        "build_examples": {"questions": {"task": "squad-2.0", "data_files": files}},
        "finetune": {"one": entry, "same": entry},
        "ensembles": {"both": {"members": ["one", "same"], "ensemble_size": 3}},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    main_or_exit("run", str(folder / "recipe.yaml"), "--engine", "local")
    return folder


def as_squad(rows: list[dict[str, Any]]) -> dict[str, Any]:
    paragraphs = []
    for row in rows:
        pairs = zip(row["answers"], row["answer_starts"], strict=True)
        question = {name: row[name] for name in ("id", "question", "is_impossible")}
        question["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
        paragraphs.append({"context": row["context"], "qas": [question]})
    return {"version": "v2.0", "data": [{"title": "A town", "paragraphs": paragraphs}]}


def test_ensemble_uses_its_own_threshold(questions: Path, cli: Cli) -> None:
    store = ArtifactStore(str(questions / "store"))
    statistics = resolve("asked/evaluate.both", store=store).statistics
    trial = resolve(f"asked/finetune.{statistics['members'][0]}", store=store)
    assert statistics["threshold"] != trial.statistics["threshold"]
    names = [f"one.bs8-lr0.002-ep6-r{restart}" for restart in range(2)]
    assert sorted(statistics["members"]) == names  # of two equal models, one is a member
    for split in ("dev", "test"):
        result = cli(
            "evaluate", "squad-2.0", str(questions / f"{split}.json"), "--model",
            "asked/evaluate.both", "--split", split, "--json", "--store", store.root,
        )  # fmt: skip
        metrics = json.loads(result.out)["metrics"]
        assert metrics == pytest.approx(statistics["metrics"][split])
