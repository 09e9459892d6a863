"""`tabulate`: the artifact, its tables, and comparisons of entries."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from support.evaluation_builder import (
    BASE,
    SCRATCH,
    artifact,
    evaluations,
    results,
    written,
)
from support.sweep_builder import source

import model.tabulate
from model.tables.filled_tables import fill_tables
from model.tables.render import (
    TextTable,
    entries_table,
    markdown_table,
    paper_table,
    results_table,
)
from model.tables.results import result_rows
from model.tables.verdicts import compare_entries
from schemas.errors import PredictionsError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig
from schemas.manifest import StageOutput

FEATURES = {**BASE, "method": "feature-based", "feature_layers": "concat-last-4"}


def everything() -> list[dict[str, Any]]:
    return [
        written("sst-2", "sst-2", [0.90, 0.91, 0.92], other_point=0.95, baseline=0.509),
        written("sst-2-scratch", "sst-2", [0.80, 0.82], model=SCRATCH, baseline=0.509),
        written("mrpc", "mrpc", [0.88], more={"dev": {"accuracy": 0.83}}),
        written("squad", "squad-1.1", [0.7, 0.72], ensemble=2, ensemble_value=0.75),
        written("ner", "conll-2003", [0.9, 0.92], more={"test": {"entity-f1": 0.87}}),
        written("ner-features", "conll-2003", [0.8, 0.81], model=FEATURES),
    ]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def tabulate(*entries: dict[str, Any], name: str = "out", **predictions: Any) -> StageOutput:
        inputs = {
            item["entry"]: artifact(
                tmp_path / "in", item, predictions=predictions.get(item["entry"])
            )
            for item in entries
        }
        return model.tabulate.tabulate(
            TabulateConfig(),
            inputs=inputs,
            output=str(tmp_path / name),
            execution=ExecutionConfig(),
        )

    return tabulate


def test_the_artifact_holds_the_same_numbers_in_every_form(run: Any, tmp_path: Path) -> None:
    output = run(*everything())
    assert [entry.path for entry in output.files] == [
        "tables.csv",
        "tables.json",
        "tables.md",
    ]
    out = tmp_path / "out"
    data = json.loads((out / "tables.json").read_text())
    rows = {(row["entry"], row["split"], row["metric"]): row for row in data["results"]}
    main = rows["sst-2", "dev", "accuracy"]
    assert main["mean"] == pytest.approx(0.91)
    assert main["sd"] == pytest.approx(0.01)
    assert main["best"] == 0.95  # of the other point: the one best training
    assert main["cells"] == 4
    assert main["majority"] == 0.509
    assert main["paper"] == {"BERT_BASE": 93.5, "BERT_LARGE": 94.9}
    assert main["paper_split"] == "test"
    digits, _, metric = main["reference"].partition(":")
    assert (len(digits), metric) == (16, "dev.accuracy")
    (ours,) = [row for row in data["tables"][0]["ours"] if "sst-2" in row["entries"]][:1]
    assert ours["values"]["SST-2"]["reference"].startswith(digits)
    assert [table["key"] for table in data["tables"]] == [
        *(f"table-{number}" for number in range(1, 9)),
        "figure-5",
    ]
    assert (data["tables"][0]["paper"][3]["system"], ours["average"]) == ("BERT_BASE", None)
    assert ours["values"]["SST-2"]["value"] == pytest.approx(0.91)
    assert output.statistics["entries"]["squad"]["ensemble"] == 0.75
    assert (output.statistics["tables"]["table-1"], output.counters["entries"]) == (2, 6)
    (headline, *_) = [verdict["sentence"] for verdict in data["verdicts"]]
    text = (out / "tables.md").read_text()
    assert f"## Verdicts\n\n- {headline}\n" in text
    assert "91.0 ± 1.0" in text
    assert "93.5 (test)" in text
    assert main["reference"] in text
    assert "ours: phase-2, L=2 H=128 A=2" in text
    assert "not shown: Table 3: SQuAD 2.0; Table 4: SWAG" in text
    with (out / "tables.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))
    values = {
        row["statistic"]: float(row["value"])
        for row in table
        if (row["entry"], row["split"], row["metric"]) == ("sst-2", "dev", "accuracy")
    }
    assert values["mean"] == main["mean"]
    assert values["sd"] == main["sd"]
    assert values["runs"] == 3
    assert [values[f"run-{n}"] for n in range(3)] == [0.90, 0.91, 0.92]
    assert values["paper-BERT_BASE-test"] == 0.935


def test_csv_escapes_text_that_spreadsheets_execute(run: Any, tmp_path: Path) -> None:
    run(written("=1+1", "cola", [-0.05, -0.04]))
    with (tmp_path / "out" / "tables.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["entry"] for row in rows} == {"'=1+1"}
    assert "-0.05" in {row["value"] for row in rows}


def test_sweep_has_its_rows_and_differences(tmp_path: Path) -> None:
    axes = {"size": ExpandedAxis(table="table-6", variants=("1-64-2", "2-64-2"))}
    swept = [
        ExpandedEntry(entry=f"mnli.{name}", of="mnli", variants={"size": name}, phase=name)
        for name in axes["size"].variants
    ]
    inputs = {
        one.entry: artifact(tmp_path / "in", written(one.entry, "mnli", [0.1 * n, 0.11 * n, 0.12]))
        for n, one in enumerate(swept, start=1)
    }
    for one in swept:
        phase = {"entry": one.phase, "held_out": {"perplexity": 5.5}}
        inputs[f"pretrain.{one.phase}"] = artifact(tmp_path / "in", phase)
    output = model.tabulate.tabulate(
        TabulateConfig(axes=axes, expanded_sweep=tuple(swept)),
        inputs=inputs,
        output=str(tmp_path / "out"),
        execution=ExecutionConfig(),
    )
    data = json.loads((tmp_path / "out" / "tables.json").read_text())
    (table,) = [table for table in data["tables"] if table["axis"] == "size"]
    cells = [row["values"]["LM perplexity"]["value"] for row in table["ours"]]
    assert [row["variant"] for row in table["ours"]] == ["1-64-2", "2-64-2"]
    assert cells == [5.5, 5.5]
    (item,) = table["comparisons"]
    assert (item["first"], item["second"], item["verdict"]) == ("2-64-2", "1-64-2", "within noise")
    assert output.counters["comparisons"] == 1


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], "expected an evaluation"),
        ([{"entry": "odd", "task": "sst-2", "metric": "accuracy"}], r"entry odd.*metrics"),
    ],
)
def test_nothing_and_other_statistics_are_refused(run: Any, entries: Any, expected: str) -> None:
    with pytest.raises(PredictionsError, match=expected):
        run(*entries)


def test_equal_evaluations_are_equal_bytes_in_any_order(run: Any) -> None:
    def turned(item: dict[str, Any]) -> dict[str, Any]:
        # As after a manifest was written with sorted keys and read again.
        return json.loads(json.dumps(item, sort_keys=True))

    one = run(*everything(), name="one")
    other = run(*(turned(item) for item in reversed(everything())), name="other")
    assert [(f.path, f.sha256) for f in one.files] == [(f.path, f.sha256) for f in other.files]
    assert one.statistics == other.statistics


def test_predictions_on_test_make_a_submission(run: Any) -> None:
    predictions = [{"id": str(n), "label": "1"} for n in range(3)]
    output = run(*everything(), **{"sst-2": {"test": predictions}})
    assert "glue-submission.zip" in [entry.path for entry in output.files]
    assert output.statistics["submission"] == {"SST-2.tsv": "sst-2"}
    assert output.counters["submission-files"] == 1
    assert any("missing: CoLA.tsv" in note for note in output.notes)


def test_entries_that_share_an_artifact_have_the_names_of_the_recipe(tmp_path: Path) -> None:
    shared = artifact(tmp_path / "in", written("one", "sst-2", [0.9, 0.8]))
    model.tabulate.tabulate(
        TabulateConfig(),
        inputs={"first": shared, "second": shared},
        output=str(tmp_path / "out"),
        execution=ExecutionConfig(),
    )
    text = (tmp_path / "out" / "tables.md").read_text()
    for expected in ("first", "second", "85.0 ± 7.1"):
        assert expected in text


# What an evaluation says.


def rows_of(*entries: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    output = result_rows(evaluations(*entries))
    return {(row.entry, row.split, row.metric): row for row in output}


def test_ten_restarts_are_in_the_order_of_their_numbers() -> None:
    runs = [0.5 + n / 100 for n in range(12)]
    entries = written("a", "sst-2", runs)
    entries["cells"] = sorted(
        entries["cells"], key=lambda cell: cell["name"]
    )  # r0, r1, r10, r11, ...
    (item,) = evaluations(entries)
    assert item.result.scores("dev", "accuracy").runs == tuple(runs)


def test_a_metric_without_a_value_leaves_no_mean_and_is_noted(run: Any, tmp_path: Path) -> None:
    run(written("sts-b", "sts-b", [0.8, None, float("nan")]))
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "spearman has no value in 2 of 3 restarts, so there is no mean" in text
    data = json.loads((tmp_path / "out" / "tables.json").read_text())
    assert data["results"][0]["mean"] is None
    assert data["results"][0]["best"] == 0.8


def grid_rows(grid: TextTable, *names: str) -> list[tuple[str, ...]]:
    places = [grid.header.index(name) for name in names]
    return [tuple(row[index] for index in places) for row in grid.rows]


def test_entries_have_the_size_of_their_ensemble() -> None:
    rows = rows_of(
        written("cola", "cola", [0.3, 0.4]),
        written("mrpc", "mrpc", [0.8, 0.9], ensemble=2, ensemble_value=0.9),
    )
    grid = entries_table(list(rows.values()))
    assert grid_rows(grid, "entry", "ensemble of") == [("cola", ""), ("mrpc", "2")]


def test_results_have_majority_class() -> None:
    output = rows_of(
        written("sst-2", "sst-2", [0.9, 0.92], baseline=0.509),
        written("cola", "cola", [0.3, 0.4], baseline=0.0),
    )
    grid = results_table(list(output.values()))
    assert grid_rows(grid, "entry", "metric", "mean ± sd", "restarts", "majority class") == [
        ("cola", "matthews", "35.0 ± 7.1", "2", "0.0"),
        ("sst-2", "accuracy", "91.0 ± 1.4", "2", "50.9"),
    ]


def test_paper_table_has_majority_class_and_restarts() -> None:
    entries = [
        written("sst-2", "sst-2", [0.9, 0.92, 0.91], baseline=0.509),
        written("cola", "cola", [0.3, 0.4], baseline=0.0),
        written("wnli", "wnli", [0.56]),
    ]
    tables = source(*entries)
    (table,) = [one for one in tables.tables if one.rows]
    assert grid_rows(paper_table(table, tables), "system", "SST-2", "CoLA", "restarts")[-2:] == [
        ("ours: phase-2, L=2 H=128 A=2 [dev]", "91.0 ± 1.0", "35.0 ± 7.1", "2 to 3"),
        ("majority class [dev]", "50.9", "0.0", ""),
    ]


# Comparisons.


def test_the_better_comes_first_whatever_the_order() -> None:
    entries = results(*everything()[:2])
    assert compare_entries(entries) == compare_entries(entries[::-1])


# Texts.


def test_markdown_of_a_table() -> None:
    grid = TextTable("A_b", ("name", "x"), ((("a|b", "1"),), (("c", "22.0"),)), ("Note.",))
    assert "\n\n".join(markdown_table(grid)) == (
        "## A\\_b\n\n| name | x |\n| --- | ---: |\n| a\\|b | 1 |\n| c | 22.0 |\n\nNote."
    )


def test_scores_on_other_data_stand_beside_none_of_the_papers() -> None:
    made_up = {**BASE, "data": "the sample world"}
    rows = results(written("cola", "cola", [0.5]), written("mine", "cola", [0.6], model=made_up))
    assert {row.entry: bool(row.paper) for row in rows} == {"cola": True, "mine": False}
    (glue,) = [item for item in fill_tables(rows) if item.rows][:1]
    names = {row.entries: row.name for row in glue.rows}
    assert set(names) == {("cola",), ("mine",)}
    assert "on the sample world" in names[("mine",)]
    assert any("do not compare with the paper's" in note for note in glue.notes)
    (alone,) = [item for item in fill_tables(rows[:1]) if item.rows]
    assert not any("sample world" in note for note in alone.notes)
