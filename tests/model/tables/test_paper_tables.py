"""The paper's tables as data, and our rows below them."""

from __future__ import annotations

import pytest
from support.evaluation_builder import (
    BASE,
    SCRATCH,
    results,
    written,
)

from model.tables.filled_tables import FilledTable, fill_tables
from model.tables.paper import ABLATIONS, GLUE_TABLE, PAPER_TABLES
from model.tasks import TASKS

GLUE_COLUMNS = [column.key for column in GLUE_TABLE.columns]
MNLI = {"dev-mismatched": {"accuracy": 0.8}}
AVERAGES = {row.name: row.average for row in GLUE_TABLE.systems}


def table(key: str, *entries: dict[str, object]) -> FilledTable:
    tables = {filled.key: filled for filled in fill_tables(results(*entries))}
    return tables[key]


def system(key: str, name: str) -> dict[str, float | None]:
    return next(system.values for system in PAPER_TABLES[key].systems if system.name == name)


SUMS = {
    # By column, added up from the paper's pages, so that a changed digit is noticed.
    "table-1": [410.4, 406.9, 344.5, 432.7, 463.3, 229.0, 406.6, 431.4, 311.0],
    "table-2": [502.3, 628.0, 507.6, 632.7],
    "table-3": [165.0, 170.9, 458.7, 477.0],
    "table-4": [279.2, 449.2],
    "table-7": [857.7, 463.1],
    "table-5": [332.5, 341.7, 326.4, 369.0, 339.1],
    "table-6": [26.52, 497.1, 508.2, 550.3],
    "table-8": [504.3, 570.4, 567.4],
    "figure-5": [0.0],
}


def test_tables_of_the_paper_are_those_asked_for() -> None:
    assert [*PAPER_TABLES, *ABLATIONS] == list(SUMS)


@pytest.mark.parametrize("key", SUMS)
def test_numbers_of_the_paper(key: str) -> None:
    paper = (PAPER_TABLES | ABLATIONS)[key]
    keys = [column.key for column in paper.columns]
    assert len(set(keys)) == len(keys)
    assert [sum(s.values[name] or 0.0 for s in paper.systems) for name in keys] == pytest.approx(
        SUMS[key]
    )
    for system in paper.systems:
        values = [value for value in system.values.values() if value is not None]
        assert values
        assert all(0 < value < 100 for value in values)
        assert list(system.values) == keys
        assert (system.average is None) == (key != "table-1")
    compared = {name for pair in paper.pairs for name in (pair.first, pair.second)}
    assert compared <= {system.key for system in paper.systems}
    for column in paper.columns:
        assert not column.task or column.metric in TASKS[column.task].metrics


@pytest.mark.parametrize("name", AVERAGES)
def test_rows_of_table_1_give_the_averages_it_prints(name: str) -> None:
    # The paper prints 70.94 of BiLSTM+ELMo+Attn as 71.0.
    printed = 70.9 if name == "BiLSTM+ELMo+Attn" else AVERAGES[name]
    assert f"{GLUE_TABLE.average(system('table-1', name)):.1f}" == f"{printed:.1f}"


def test_average_needs_all_nine_columns() -> None:
    scores = dict.fromkeys(GLUE_COLUMNS, 0.5) | {"WNLI": 0.0}
    assert GLUE_TABLE.average(scores) == 0.5  # WNLI has no part in it
    for gone in GLUE_COLUMNS:
        assert GLUE_TABLE.average({key: v for key, v in scores.items() if key != gone}) is None


def test_every_task_names_cells_that_there_are() -> None:
    filled = set()
    for task in TASKS.values():
        for scored, (key, name) in task.paper.items():
            metric = scored.partition("/")[2]
            column = PAPER_TABLES[key].columns_by_key[name]
            if metric == column.metric and metric in task.metrics:
                filled.add((key, column.key))
    assert {("table-1", key) for key in GLUE_COLUMNS} <= filled
    assert {("table-2", "dev EM"), ("table-2", "dev F1")} <= filled
    assert {("table-3", "dev EM"), ("table-3", "dev F1")} <= filled
    assert {("table-4", "dev"), ("table-7", "dev"), ("table-7", "test")} <= filled


@pytest.mark.parametrize(
    ("key", "column", "entry", "text", "runs"),
    [
        ("table-1", "SST-2", written("a", "sst-2", [0.902, 0.911, 0.897]), "90.3 ± 0.7", 3),
        ("table-1", "SST-2", written("a", "sst-2", [0.8441]), "84.4", 1),
        # The mean is that of the best grid point, not of all trials.
        ("table-1", "SST-2", written("a", "sst-2", [0.9, 0.91], other_point=0.95), "90.5 ± 0.7", 2),
        # Without a mean: the best model.
        ("table-1", "STS-B", written("a", "sts-b", [0.8, None, 0.82]), "82.0", 0),
        ("table-7", "dev", written("a", "conll-2003", [0.9, 0.92]), "91.0 ± 1.4", 2),
    ],
)  # fmt: skip
def test_cell_of_our_row(
    key: str, column: str, entry: dict[str, object], text: str, runs: int
) -> None:
    (row,) = table(key, entry).rows
    assert list(row.cells) == [column]
    assert (row.cells[column].text, row.cells[column].runs) == (text, runs)
    assert row.average is None


def all_of_glue(model: dict[str, object], value: float) -> list[dict[str, object]]:
    names = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "qnli", "rte")
    start = model["start"]
    entries = [written(f"{name}-{start}", name, [value], model=model) for name in names]
    return [*entries, written(f"mnli-{start}", "mnli", [value], model=model, more=MNLI)]


def test_a_row_is_one_model_over_its_tasks_and_has_an_average_when_all_are_there() -> None:
    entries = [*all_of_glue(BASE, 0.7), *all_of_glue(SCRATCH, 0.6)[:-1]]
    entries += [written("wnli", "wnli", [0.56])]
    whole, rest = table("table-1", *entries).rows
    assert whole.name == "phase-2, L=2 H=128 A=2 [dev]"
    assert set(whole.cells) == set(GLUE_COLUMNS)
    assert "ours are on dev" in " ".join(table("table-1", *entries).notes)
    assert whole.average.value == pytest.approx((8 * 0.7 + 0.8) / 9)  # 0.8: MNLI-mm
    assert whole.average.split == "dev"
    assert rest.name == "from scratch, L=2 H=128 A=2 [dev]"
    assert len(rest.cells) == 7
    assert rest.average is None


def test_scores_on_test_stand_in_table_1_where_there_are_any() -> None:
    entries = written("sst-2", "sst-2", [0.9, 0.92], more={"test": {"accuracy": 0.87}})
    filled = table("table-1", entries)
    (row,) = filled.rows
    assert row.cells["SST-2"].text == "87.0"
    assert row.cells["SST-2"].split == "test"
    assert "[dev]" not in row.name
    assert "test server" not in " ".join(filled.notes)


def test_the_same_model_twice_on_a_task_has_two_rows_the_better_first() -> None:
    filled = table(
        "table-1",
        written("sst-2-a", "sst-2", [0.8]),
        written("sst-2-b", "sst-2", [0.9]),
        written("cola", "cola", [0.4]),
    )
    first, second = filled.rows
    assert first.entries == ("cola", "sst-2-b")
    assert second.entries == ("sst-2-a",)
    assert first.name == "phase-2, L=2 H=128 A=2 [dev] (cola, sst-2-b)"


def test_squad_has_a_row_of_single_models_and_one_of_their_ensemble() -> None:
    entries = written(
        "squad",
        "squad-1.1",
        [0.7, 0.72],
        ensemble=2,
        ensemble_value=0.75,
        more={"dev": {"em": 0.6}},
    )
    single, ensemble = table("table-2", entries).rows
    assert single.cells["dev F1"].text == "71.0 ± 1.4"
    assert "dev EM" not in single.cells  # the cells were not scored by it
    assert ensemble.name.endswith("ensemble of 2")
    assert {key: cell.text for key, cell in ensemble.cells.items()} == {
        "dev EM": "60.0",
        "dev F1": "75.0",
    }
