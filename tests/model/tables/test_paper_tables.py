"""The paper's tables as data, and rows of ours below them."""

from __future__ import annotations

import pytest
from support.evaluation_builder import (
    BASE,
    SCRATCH,
    evaluations,
    glue_task,
    majority,
    results,
    written,
)

from model.monitoring.formatting import format_percent
from model.tables.filled_tables import FilledTable, fill_tables
from model.tables.paper_results import (
    GLUE_COLUMNS,
    GLUE_TABLE,
    PAPER_TABLES,
    PaperTable,
    glue_average,
)
from model.tables.results import result_rows
from model.tasks import TASKS as REAL_TASKS
from schemas.errors import ConfigError

MNLI = {"dev-mismatched": {"accuracy": 0.8}}
AVERAGES = {row.name: row.average for row in GLUE_TABLE.systems}
BEST_SQUAD = "BERT_LARGE (ensemble of 7 + TriviaQA)"


def table(key: str, *given: dict[str, object]) -> FilledTable:
    found = {filled.key: filled for filled in fill_tables(results(*given))}
    return found[key]


def system(key: str, name: str) -> dict[str, float | None]:
    paper = PAPER_TABLES[key]
    values = next(system.values for system in paper.systems if system.name == name)
    return dict(zip((c.key for c in paper.columns), values, strict=True))


def column(paper: PaperTable, key: str) -> list[float | None]:
    place = [item.key for item in paper.columns].index(key)
    return [system.values[place] for system in paper.systems]


def test_tables_of_the_paper_are_those_asked_for() -> None:
    assert list(PAPER_TABLES) == ["table-1", "table-2", "table-3", "table-4", "table-7"]
    for paper in PAPER_TABLES.values():
        keys = [item.key for item in paper.columns]
        assert len(set(keys)) == len(keys)
        for system in paper.systems:
            assert len(system.values) == len(keys)
            assert all(value is None or 0 < value < 100 for value in system.values)
            assert any(value is not None for value in system.values)
        assert len({system.average is None for system in paper.systems}) == 1


def test_averages_of_both_berts() -> None:
    assert (AVERAGES["BERT_BASE"], AVERAGES["BERT_LARGE"]) == (79.6, 82.1)
    # With MNLI's two sets as one column, BERT_BASE would have 79.05: they count as one each.
    base = system("table-1", "BERT_BASE")
    as_one = [value for key, value in base.items() if not key.startswith("MNLI")]
    as_one.append((base["MNLI-m"] + base["MNLI-mm"]) / 2)
    assert sum(as_one) / len(as_one) == pytest.approx(79.05)
    assert "WNLI" not in GLUE_COLUMNS


@pytest.mark.parametrize("name", AVERAGES)
def test_rows_of_table_1_give_the_averages_it_prints(name: str) -> None:
    # The paper prints 70.94 of BiLSTM+ELMo+Attn as 71.0.
    printed = 70.9 if name == "BiLSTM+ELMo+Attn" else AVERAGES[name]
    assert f"{glue_average(system('table-1', name)):.1f}" == f"{printed:.1f}"


@pytest.mark.parametrize(
    ("key", "sums"),
    [
        # Sums by column, added up from the paper's pages, so that a changed digit is noticed.
        (
            "table-1",
            dict(
                zip(
                    GLUE_COLUMNS,
                    (410.4, 406.9, 344.5, 432.7, 463.3, 229.0, 406.6, 431.4, 311.0),
                    strict=True,
                )
            ),
        ),
        ("table-2", {"dev EM": 502.3, "dev F1": 628.0, "test EM": 507.6, "test F1": 632.7}),
        ("table-3", {"dev EM": 165.0, "dev F1": 170.9, "test EM": 458.7, "test F1": 477.0}),
        ("table-4", {"dev": 279.2, "test": 449.2}),
        ("table-7", {"dev": 857.7, "test": 463.1}),
    ],
)
def test_sums_of_columns(key: str, sums: dict[str, float]) -> None:
    paper = PAPER_TABLES[key]
    found = {c.key: sum(v for v in column(paper, c.key) if v is not None) for c in paper.columns}
    assert found == pytest.approx(sums)


@pytest.mark.parametrize(
    ("key", "column", "first", "second", "gain"),
    [
        # 4.1: 4.6 % on MNLI over GPT.
        ("table-1", "MNLI-m", "BERT_LARGE", "OpenAI GPT", 4.6),
        # 4.2: + 1.5 F1 over the best ensemble before, and TriviaQA gives 0.1 to 0.4 F1 on dev.
        ("table-2", "test F1", BEST_SQUAD, "best ensemble before (nlnet)", 1.5),
        ("table-2", "dev F1", BEST_SQUAD, "BERT_LARGE (ensemble of 7)", 0.4),
        ("table-2", "dev F1", "BERT_LARGE (single + TriviaQA)", "BERT_LARGE (single)", 0.2),
        # 4.3: + 5.1 F1 over the previous best system on SQuAD 2.0.
        ("table-3", "test F1", "BERT_LARGE (single)", "MIR-MRC (single)", 5.1),
        # 4.4: 27.1 % above ESIM+ELMo and 8.3 % above GPT on SWAG.
        ("table-4", "test", "BERT_LARGE", "ESIM+ELMo", 27.1),
        ("table-4", "test", "BERT_LARGE", "OpenAI GPT", 8.3),
        # 5.3: the best features are 0.3 F1 behind fine-tuning.
        ("table-7", "dev", "BERT_BASE, fine-tuned", "features: concat last four hidden", 0.3),
    ],
)
def test_gains_that_the_paper_states_in_words(
    key: str, column: str, first: str, second: str, gain: float
) -> None:
    assert system(key, first)[column] - system(key, second)[column] == pytest.approx(gain)


def test_average_gains_that_the_paper_states_in_words() -> None:
    # 4.1: BASE and LARGE gain 4.5 and 7.0 % on average over the prior state of the art.
    assert AVERAGES["BERT_BASE"] - AVERAGES["OpenAI GPT"] == pytest.approx(4.5)
    assert AVERAGES["BERT_LARGE"] - AVERAGES["OpenAI GPT"] == pytest.approx(7.0)


def test_average_needs_all_nine_columns() -> None:
    scores = dict.fromkeys(GLUE_COLUMNS, 0.5) | {"WNLI": 0.0}
    assert glue_average(scores) == 0.5  # WNLI has no part in it
    for gone in GLUE_COLUMNS:
        assert glue_average({key: v for key, v in scores.items() if key != gone}) is None


def test_every_task_names_cells_that_there_are() -> None:
    filled = set()
    for task in REAL_TASKS.values():
        for scored, (key, name) in task.paper.items():
            split, _, metric = scored.partition("/")
            column = PAPER_TABLES[key].column(name, split=split)
            if metric == column.metric and metric in task.metrics:
                filled.add((key, column.key))
    assert {("table-1", key) for key in GLUE_COLUMNS} <= filled
    assert {("table-2", "dev EM"), ("table-2", "dev F1")} <= filled
    assert {("table-3", "dev EM"), ("table-3", "dev F1")} <= filled
    assert {("table-4", "dev"), ("table-7", "dev"), ("table-7", "test")} <= filled


def test_metrics_of_the_paper_choose_the_model() -> None:
    for task in REAL_TASKS.values():
        metrics = {scored.partition("/")[2] for scored in task.paper}
        assert not metrics or task.metrics[0] in metrics


def test_a_column_that_is_not_there_is_refused_by_name() -> None:
    strange = {"cola": glue_task("cola", "CoLA", "matthews", column="COLA")}
    with pytest.raises(ConfigError, match=r"no column 'COLA'.*CoLA"):
        result_rows(evaluations(written("cola", "cola", [0.5])), tasks=strange)


def test_cells_are_times_100_with_the_deviation_of_restarts() -> None:
    (row,) = table("table-1", written("sst-2", "sst-2", [0.902, 0.911, 0.897])).rows
    assert row.cells["SST-2"].text == "90.3 ± 0.7"
    assert row.cells["SST-2"].value == pytest.approx((0.902 + 0.911 + 0.897) / 3)
    assert row.cells["SST-2"].runs == 3
    assert list(row.cells) == ["SST-2"]
    assert row.average is None


def test_one_restart_has_no_deviation() -> None:
    (row,) = table("table-1", written("sst-2", "sst-2", [0.8441])).rows
    assert row.cells["SST-2"].text == "84.4"
    assert format_percent(None) == ""


def test_the_mean_is_of_the_best_point_not_of_all_cells() -> None:
    given = written("sst-2", "sst-2", [0.9, 0.91], other_point=0.95)
    (row,) = table("table-1", given).rows
    assert row.cells["SST-2"].value == pytest.approx(0.905)


def all_of_glue(model: dict[str, object], value: float) -> list[dict[str, object]]:
    names = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "qnli", "rte")
    start = model["start"]
    given = [written(f"{name}-{start}", name, [value], model=model) for name in names]
    return [*given, written(f"mnli-{start}", "mnli", [value], model=model, more=MNLI)]


def test_a_row_is_one_model_over_its_tasks_and_has_an_average_when_all_are_there() -> None:
    given = [*all_of_glue(BASE, 0.7), *all_of_glue(SCRATCH, 0.6)[:-1]]
    given += [majority("wnli", "wnli", 0.56)]
    whole, rest = table("table-1", *given).rows
    assert whole.name == "phase-2, L=2 H=128 A=2 [dev]"
    assert set(whole.cells) == set(GLUE_COLUMNS)
    assert whole.average.value == pytest.approx((8 * 0.7 + 0.8) / 9)  # 0.8: MNLI-mm
    assert whole.average.split == "dev"
    assert rest.name == "from scratch, L=2 H=128 A=2 [dev]"
    assert len(rest.cells) == 7
    assert rest.average is None


def test_table_1_says_that_ours_are_on_dev_and_that_wnli_is_left_out() -> None:
    filled = table("table-1", written("sst-2", "sst-2", [0.9]))
    notes = " ".join(filled.notes)
    assert "test server" in notes
    assert "ours are on dev" in notes
    assert "leaves WNLI out" in notes
    assert filled.rows[0].name.endswith("[dev]")


def test_scores_on_test_stand_in_table_1_where_there_are_any() -> None:
    given = written("sst-2", "sst-2", [0.9, 0.92], more={"test": {"accuracy": 0.87}})
    filled = table("table-1", given)
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
    given = written(
        "squad",
        "squad-1.1",
        [0.7, 0.72],
        ensemble=2,
        ensemble_value=0.75,
        more={"dev": {"em": 0.6}},
    )
    single, ensemble = table("table-2", given).rows
    assert single.cells["dev F1"].text == "71.0 ± 1.4"
    assert "dev EM" not in single.cells  # the cells were not scored by it
    assert ensemble.name.endswith("ensemble of 2")
    assert {key: cell.text for key, cell in ensemble.cells.items()} == {
        "dev EM": "60.0",
        "dev F1": "75.0",
    }


def test_an_ensemble_over_entries_does_not_repeat_their_single_models() -> None:
    entry = written("squad", "squad-1.1", [0.7, 0.72])
    together = written(
        "together", "squad-1.1", [0.7, 0.72], ensemble=2, ensemble_value=0.75, prefix="squad."
    )
    rows = table("table-2", together, entry).rows
    assert sorted(row.entries for row in rows) == [("squad",), ("together",)]


def test_entities_have_dev_as_mean_and_test_of_the_chosen_model() -> None:
    given = written("ner", "conll-2003", [0.9, 0.92], more={"test": {"entity-f1": 0.87}})
    (row,) = table("table-7", given).rows
    assert row.cells["dev"].text == "91.0 ± 1.4"
    assert row.cells["test"].text == "87.0"
    assert row.cells["test"].runs == 0


def test_paper_values_of_features_are_those_of_the_same_layers() -> None:
    paper = PAPER_TABLES["table-7"]
    assert paper.value("BERT_BASE", "dev") == 96.4
    assert paper.value("embeddings", "dev") == 91.0
    assert paper.value("of-unnamed-layers", "dev") is None


def test_a_restart_without_a_value_leaves_no_mean() -> None:
    (row,) = table("table-1", written("sts-b", "sts-b", [0.8, None, 0.82])).rows
    assert row.cells["STS-B"].text == "82.0"  # of the best
    assert row.cells["STS-B"].runs == 0


def test_tables_without_ours_are_there_with_the_papers_rows() -> None:
    filled = table("table-3", written("sst-2", "sst-2", [0.9]))
    assert filled.rows == ()
    assert len(filled.paper) == 6
