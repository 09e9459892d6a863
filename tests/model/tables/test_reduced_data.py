"""Numbers of cut-down data are marked wherever they stand: tables, pictures, pages, lines."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.evaluation_builder import SCRATCH, artifact, results, written
from support.finetuning_builder import sentiment, trial_config, trial_job, write_checkpoint

import model.tabulate
from flows.nested_values import numeric_leaves
from flows.report.rendering import section
from flows.report.results import show_results
from flows.run.stages import get_stage
from model.build_examples import build_examples
from model.finetuning.trial import train_trial
from model.summaries import score_cut
from model.tables.filled_tables import fill_tables
from model.tables.paper import GLUE_TABLE
from model.tables.render import Tables
from model.task_results import Cut, examples_cut
from model.training.stopping import StopRequest
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExamplesConfig, TabulateConfig
from schemas.manifest import Manifest

CUT = {"training": ["4,000 of 67,349 training rows"], "splits": {"dev": "500 of 872 dev rows"}}
SAID = "4,000 of 67,349 training rows; 500 of 872 dev rows"


def examples_of(tmp_path: Path, *, rows: int, bad: int = 0, **config: Any) -> dict[str, Any]:
    """Statistics of SST-2's examples made of small files."""
    lines = "".join(f"film {n}\t{n % 2}\n" for n in range(rows))
    lines += "".join(f"film {n}\tnone\n" for n in range(bad))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f"sentence\tlabel\n{lines}")
    files = {name: (str(tmp_path / f"{name}.tsv"),) for name in ("train", "dev")}
    made = build_examples(
        ExamplesConfig(task="sst-2", data_files=files, **config),
        inputs={},
        output=str(tmp_path / "out"),
        execution=ExecutionConfig(),
    )
    return made.statistics


def test_fewer_rows_than_the_official_split_has_are_a_cut(tmp_path: Path) -> None:
    made = examples_of(tmp_path, rows=900, max_samples={"train": 40})
    assert made["cut"] == {"train": {"kept": 40, "of": 67_349, "unit": "rows"}}  # dev has 872
    assert examples_cut(made) == Cut(training=("40 of 67,349 training rows",), splits={})


def test_of_other_data_what_was_left_out_is_a_cut(tmp_path: Path) -> None:
    whole = examples_of(tmp_path, rows=20, data_label="mine")
    assert "cut" not in whole
    cut = examples_of(
        tmp_path,
        rows=20,
        bad=1,
        data_label="mine",
        max_samples={"dev": 5},
        max_invalid_fraction=0.5,
    )
    assert cut["cut"] == {
        "train": {"kept": 20, "of": 21, "unit": "rows"},  # the bad row
        "dev": {"kept": 5, "of": 21, "unit": "rows"},
    }


def test_steps_and_ends_of_texts_are_a_cut(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "bert")
    entries = sentiment(tmp_path / "sst")
    statistics = {**entries.statistics, "cut": {"train": {"kept": 3, "of": 9, "unit": "rows"}}}
    entries = entries.model_copy(update={"statistics": statistics})

    def cut(**changes: Any) -> dict[str, Any]:
        config = trial_config(checkpoint, **changes)
        job = trial_job(tmp_path / "work", entries, config=config)
        result: dict[str, Any] = train_trial(job, stop=StopRequest())["statistics"]["cut"]
        return result

    rows, steps, ends = cut(max_steps=2, max_seq_length=8)["training"]
    assert rows == "3 of 9 training rows"
    assert steps.startswith("2 of ")
    assert steps.endswith(" steps")
    assert "texts cut at 8 tokens" in ends


@pytest.fixture
def tabulated(tmp_path: Path) -> dict[str, bytes]:
    """The files of tables of a whole entry and one of cut-down data."""
    entries = [
        written("sst-2", "sst-2", [0.80, 0.82, 0.81], baseline=0.509) | {"cut": CUT},
        written("sst-2-scratch", "sst-2", [0.70, 0.72], model=SCRATCH),
    ]
    model.tabulate.tabulate(
        TabulateConfig(),
        inputs={item["entry"]: artifact(tmp_path / "in", item) for item in entries},
        output=str(tmp_path / "out"),
        execution=ExecutionConfig(),
    )
    return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_every_form_of_the_tables_marks_it(tabulated: dict[str, bytes]) -> None:
    text = tabulated["tables.md"].decode()
    marked = [line for line in text.splitlines() if "81.0 ± 1.0 †" in line]
    assert len(marked) == 2  # of all results, and below the paper's Table 1
    assert "+10.0 †" in text  # among the comparisons
    assert text.count(f"† sst-2: {SAID}.") == 3
    assert "71.0 ± 1.4 †" not in text
    assert "50.9 †" not in text
    lines = list(csv.DictReader(io.StringIO(tabulated["tables.csv"].decode())))
    for line in lines:
        is_cut = line["entry"] == "sst-2" and not line["statistic"].startswith("paper-")
        assert line["cut"] == (SAID if is_cut else "")
    data = json.loads(tabulated["tables.json"])
    cuts = {row["entry"]: row["cut"] for row in data["results"]}
    assert cuts == {"sst-2": SAID.split("; "), "sst-2-scratch": []}


def test_the_average_of_a_table_is_cut_with_its_parts() -> None:
    assert len(GLUE_TABLE.columns) == 9
    names = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "qnli", "rte")
    entries = [written(name, name, [0.8]) for name in names]
    entries.append(
        written("mnli", "mnli", [0.8], more={"dev-mismatched": {"accuracy": 0.7}})
        | {"cut": {"training": ["7 of 8 training rows"], "splits": {}}}
    )
    table = next(t for t in fill_tables(results(*entries)) if t.rows)
    [row] = table.rows
    assert {key for key, cell in row.cells.items() if cell.cut} == {"MNLI-m", "MNLI-mm"}
    assert row.average is not None
    assert row.average.text.endswith(" †")


def test_the_report_marks_it(tabulated: dict[str, bytes]) -> None:
    results = show_results(Tables.model_validate_json(tabulated["tables.json"]))
    tables = section("tasks", results=results).split("<h3>")[1:]
    assert len(tables) == 4  # results, entries, comparisons, the paper's Table 1
    assert tables.pop(1).startswith("Entries")  # which has no numbers
    for text in tables:
        assert f"† sst-2: {SAID}." in text
        assert text.count("†") >= 2
    assert "81.0 ± 1.0 †" in tables[0]
    first_screen = section("summary", results=results, headline="", chart=results.overview_figure)
    assert "81.0 ± 1.0 †" in first_screen
    assert SAID in first_screen


def test_lines_of_the_command_say_it() -> None:
    def made(statistics: dict[str, Any]) -> Manifest:
        return Manifest.model_construct(artifact_id="0" * 16, statistics=statistics)

    trial = made({"task": "sst-2", "metrics": {"dev": {"accuracy": 0.8}}, "cut": CUT})
    assert get_stage("finetune").summary(trial) == f"accuracy 80.0 on dev ({SAID})"
    assert get_stage("finetune").summary_of([trial, trial]) == f"2 trials, accuracy 80.0 ({SAID})"
    tagged = made({"task": "conll-2003", "metrics": {"dev": {"entity-f1": 0.017}}})
    better = made({"task": "sst-2", "metrics": {"dev": {"accuracy": 1.0}}})
    assert get_stage("finetune").summary_of([trial, tagged, better]) == (
        f"3 trials, accuracy 80.0 to 100.0, entity-f1 1.7 ({SAID})"
    )
    assert get_stage("finetune").summary_of([made({"task": "sst-2", "metrics": {}})]) == "1 trial"
    evaluated = written("sst-2", "sst-2", [0.8, 0.82]) | {"cut": CUT}
    assert get_stage("evaluate").summary(made(evaluated)).endswith(f"({SAID})")
    split = {"splits": {"train": 40}, "cut": {"train": {"kept": 40, "of": 80, "unit": "rows"}}}
    assert get_stage("build-examples").summary(made(split)) == (
        "40 train examples (40 of 80 training rows)"
    )


def test_single_scores_say_it() -> None:
    evaluated = written("sst-2", "sst-2", [0.8]) | {"cut": CUT}
    assert "metrics.dev.accuracy" in dict(numeric_leaves(evaluated))
    assert "; ".join(score_cut("metrics.dev.accuracy", evaluated)) == SAID
    assert score_cut("metrics.test.accuracy", evaluated) == tuple(CUT["training"])
    tables = {"entries": {"a.b": {"mean": 0.5, "cut": ["x"]}, "a": {"mean": 0.4, "cut": []}}}
    assert score_cut("entries.a.b.mean", tables) == ("x",)
    assert score_cut("entries.a.mean", tables) == ()
