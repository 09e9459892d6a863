"""`bertloom finetune`, `evaluate` and `predict`, from files to answers, and their errors."""

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
from flows.cli.predict import texts_as_examples
from flows.lineage.resolve import resolve
from flows.store.artifacts import ArtifactStore
from model.tasks import TASKS
from schemas.errors import ConfigError

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
    """A store with a fine-tuning of two restarts, and what it was made of."""
    folder = tmp_path_factory.mktemp("tuned")
    write_sst(folder / "SST-2")
    write_checkpoint(folder / "bert")
    main_or_exit(
        "finetune", "sst-2", "--data-dir", str(folder / "SST-2"),
        "--checkpoint", str(folder / "bert"), "--batch-size", "8",
        "--learning-rate", "3e-3", "--num-epochs", "10", "--restarts", "2",
        "--max-seq-length", "32", "--store", str(folder / "store"), "--engine", "local",
        "--name", "mine", "--set", "finetune.sst-2.num_threads=1",
        "--set", "finetune.sst-2.dropout=0.0",
    )  # fmt: skip
    return folder


def main_or_exit(*arguments: str) -> None:
    with contextlib.suppress(SystemExit):  # a command that fails leaves nothing to test
        main(arguments)


def test_a_fine_tuning_leaves_models_scores_and_tables(tuned: Path) -> None:
    store = ArtifactStore(str(tuned / "store"), create=False)
    found = resolve("mine/evaluate.sst-2", store=store).statistics
    assert found["metrics"]["dev"]["accuracy"] > 0.9
    assert [point["runs"] for point in found["points"]] == [2]
    report = (tuned / "store" / "reports" / "mine.html").read_text()
    assert "Table 1: GLUE" in report
    assert "84.6" in report
    cell = resolve("mine/finetune.sst-2.bs8-lr0.003-ep10-r0", store=store)
    data = store.url(cell.data)
    assert AutoModelForSequenceClassification.from_pretrained(data).config.id2label == {
        0: "0",
        1: "1",
    }
    assert AutoTokenizer.from_pretrained(data)("the film")["input_ids"][0] == 101
    said = json.loads((Path(data) / "metrics.json").read_text())
    assert said["dev"] == cell.statistics["metrics"]["dev"]


def test_a_second_run_trains_nothing(tuned: Path, cli: Cli) -> None:
    data, bert, store = str(tuned / "SST-2"), str(tuned / "bert"), str(tuned / "store")
    given = (
        "finetune", "sst-2", "--data-dir", data, "--checkpoint", bert, "--batch-size", "8",
        "--learning-rate", "3e-3", "--num-epochs", "10", "--max-seq-length", "32", "--store", store,
        "--name", "mine", "--set", "finetune.sst-2.num_threads=1",
        "--set", "finetune.sst-2.dropout=0.0",
    )  # fmt: skip
    said = cli(*given, "--restarts", "3", "--dry-run")
    assert said.code == 0, said.err
    assert re.search(r"^finetune\.sst-2 \(2 trials\) +cached", said.out, re.MULTILINE)
    assert re.search(r"^finetune\.sst-2\.bs8-lr0\.003-ep10-r2 +\w+ +build", said.out, re.MULTILINE)
    said = cli(*given, "--show-recipe")
    recipe = yaml.safe_load(said.out)
    assert recipe["finetune"]["sst-2"]["learning_rate"] == [3e-3]


def test_a_text_gets_an_answer(tuned: Path, cli: Cli) -> None:
    store = str(tuned / "store")
    model = "mine/evaluate.sst-2"
    said = cli("predict", model, "the film is lovely", "the film is dull", "--store", store)
    assert said.code == 0, said.err
    answers = [line.split("\t") for line in said.out.splitlines()]
    assert [label for label, _ in answers] == ["positive", "negative"]
    assert all(0.5 <= float(share) <= 1 for _, share in answers)
    said = cli("predict", model, "the film is lovely", "--store", store, "--json")
    assert set(json.loads(said.out)["probabilities"]) == {"negative", "positive"}
    said = cli("predict", model, "--file", str(tuned / "SST-2" / "test.tsv"), "--store", store)
    assert len(said.out.splitlines()) == 10


def test_predictions_are_scored_from_their_file(tuned: Path, cli: Cli, tmp_path: Path) -> None:
    store, dev = str(tuned / "store"), str(tuned / "SST-2" / "dev.tsv")
    out = tmp_path / "said.jsonl"
    asked = cli("evaluate", "sst-2", dev, "--model", "mine/evaluate.sst-2", "--store", store,
                "--out", str(out), "--json")  # fmt: skip
    assert asked.code == 0, asked.err
    scored = cli("evaluate", "sst-2", dev, "--predictions", str(out), "--json")
    first, second = json.loads(asked.out), json.loads(scored.out)
    assert first == second
    assert first["counts"] == {"rows-in": 40, "rows-kept": 40}
    wrong = [json.loads(line) for line in out.read_text().splitlines()]
    for item in wrong[:10]:
        item["label"] = "1" if item["label"] == "0" else "0"
    out.write_text("".join(json.dumps(item) + "\n" for item in wrong))
    worse = json.loads(cli("evaluate", "sst-2", dev, "--predictions", str(out), "--json").out)
    assert worse["metrics"]["accuracy"] < first["metrics"]["accuracy"]


WRONG_USAGE = (
    "expected whole numbers",
    "expected SPLIT=PATH",
    "expected one of --predictions",
    "--question: sst-2",
    "expected it alone",
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("finetune", "sst2", "--data-dir", "x"), "Did you mean sst-2"),
        (("finetune", "sst-2", "--data-dir", "x"), "--checkpoint is missing"),
        (("finetune", "sst-2", "--checkpoint", "BERT"), "expected folder"),
        (
            ("finetune", "sst-2", "--data-dir", "x", "--checkpoint", "none"),
            "no folder with a config",
        ),
        (
            ("finetune", "sst-2", "--data-dir", "x", "--checkpoint", "BERT", "--num-epochs", "a"),
            "expected whole numbers",
        ),
        (
            ("finetune", "sst-2", "--data-file", "train", "--checkpoint", "BERT"),
            "expected SPLIT=PATH",
        ),
        (("evaluate", "sst-2", "DEV"), "expected one of --predictions"),
        (("evaluate", "sst-2", "DEV", "--predictions", "none"), "no file there"),
        (("evaluate", "sst-2", "TEST", "--split", "test", "--model", "MODEL"), "has an answer"),
        (("evaluate", "sst-2", "DEV", "--split", "middle", "--model", "MODEL"), "no such split"),
        (("evaluate", "squad-1.1", "DEV", "--model", "MODEL"), "fine-tuned for sst-2"),
        (("predict", "MODEL", "a", "--question", "b"), "--question: sst-2"),
        (("predict", "MODEL", "a", "--file", "b"), "expected it alone"),
        (("predict", "BERT", "a"), "config.json"),
        (("predict", "nobody", "a"), "no folder with a config.json, and no artifact"),
    ],
)
def test_mistakes_are_told(tuned: Path, cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    places = {
        "BERT": str(tuned / "bert"),
        "DEV": str(tuned / "SST-2" / "dev.tsv"),
        "TEST": str(tuned / "SST-2" / "test.tsv"),
        "MODEL": "mine/evaluate.sst-2",
    }
    store = ("--store", str(tuned / "store")) if "--predictions" not in arguments else ()
    found = cli(*(places.get(argument, argument) for argument in arguments), *store)
    assert found.code == (2 if said in WRONG_USAGE else 1), found.out
    assert said in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ("", "empty"),
        ("sentence\tpoints\nfine\t1\n", "points"),
        ("sentence\tlabel\nfine\tgreat\ndull\t0\n", "great"),
    ],
)
def test_a_file_that_is_not_the_tasks_is_refused(
    tuned: Path, cli: Cli, tmp_path: Path, train: str, said: str
) -> None:
    write_sst(tmp_path / "SST-2")
    (tmp_path / "SST-2" / "train.tsv").write_text(train)
    found = cli(
        "finetune", "sst-2", "--data-dir", str(tmp_path / "SST-2"), "--checkpoint",
        str(tuned / "bert"), "--engine", "local", "--store", str(tmp_path / "store"),
    )  # fmt: skip
    assert found.code == 1
    assert "train.tsv" in found.err
    assert said in found.err


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two entries of equal configuration on SQuAD 2.0, and an ensemble of them."""
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
    paragraphs = [
        {
            "context": row["context"],
            "qas": [
                {
                    "id": row["id"],
                    "question": row["question"],
                    "is_impossible": row["is_impossible"],
                    "answers": [
                        {"text": text, "answer_start": start}
                        for text, start in zip(row["answers"], row["answer_starts"], strict=True)
                    ],
                }
            ],
        }
        for row in rows
    ]
    return {"version": "v2.0", "data": [{"title": "A town", "paragraphs": paragraphs}]}


def test_an_ensemble_asked_again_has_its_own_threshold(questions: Path, cli: Cli) -> None:
    store = str(questions / "store")
    told = resolve("asked/evaluate.both", store=ArtifactStore(store)).statistics
    cells = [f"asked/finetune.{name}" for name in told["members"]]
    opened = ArtifactStore(store)
    assert told["threshold"] != resolve(cells[0], store=opened).statistics["threshold"]
    for split in ("dev", "test"):
        said = cli(
            "evaluate", "squad-2.0", str(questions / f"{split}.json"), "--model",
            "asked/evaluate.both", "--split", split, "--json", "--store", store,
        )  # fmt: skip
        assert json.loads(said.out)["metrics"] == pytest.approx(told["metrics"][split])


def test_a_model_under_two_names_answers_once(questions: Path) -> None:
    found = resolve("asked/evaluate.both", store=ArtifactStore(str(questions / "store")))
    cell = "bs8-lr0.002-ep6-r"
    assert sorted(found.statistics["members"]) == [f"one.{cell}0", f"one.{cell}1"]
    assert found.notes == ("an ensemble of 3 was asked for, and there are 2",)


def test_a_continuation_needs_no_second_text() -> None:
    given = texts_as_examples(TASKS["swag"], ["She sat"], choices=("down", "up", "in", "out"))
    assert given.examples["continuations"].to_pylist() == [["down", "up", "in", "out"]]
    with pytest.raises(ConfigError, match="--text-pair: swag"):
        texts_as_examples(TASKS["swag"], ["She sat"], pair="down", choices=("a", "b", "c", "d"))
