"""The paper's claims, evaluated on written evaluations, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.evaluation_builder import BASE, SCRATCH, written
from support.store_builder import describe
from support.sweep_builder import FAIR, GOOD, POOR, source, steps_sweep, sweep_of
from typer.testing import CliRunner

from flows.cli.app import app
from flows.store.artifacts import ArtifactStore
from model.tables.claims import CLAIMS, LEVEL, JudgedClaim, Source, judge
from model.tables.document import JSON_FILE
from pipelines.io.files import write_text_file
from schemas.errors import ArtifactNotFoundError, UsageError

SAMPLE = {"data": "the sample world"}
FROZEN = {**BASE, "method": "feature-based"}


def claim(key: str, *sources: Source) -> JudgedClaim:
    return next(one for one in judge(sources) if one.key == key)


def of_tasks(base: list[float], no_nsp: list[float], one_way: list[float], **model: Any) -> Source:
    runs = {"bert-base": base, "no-nsp": no_nsp, "left-to-right": one_way}
    both = {variant: {"qnli": scores, "squad-1.1": scores} for variant, scores in runs.items()}
    return sweep_of("table-5", both, **model)


def test_there_are_seven_and_nothing_is_run_of_nothing() -> None:
    assert [one.key for one in CLAIMS] == [
        "glue", "both-directions", "next-sentences", "ensemble", "squad-2.0", "size", "features",
    ]  # fmt: skip
    assert {one.status for one in judge([])} == {"not run"}
    assert {one.status for one in judge([source(written("a", "rte", [0.6]))])} == {"not run"}


def test_directions_and_next_sentences_by_table_5() -> None:
    there = of_tasks(GOOD, FAIR, POOR)
    assert claim("both-directions", there).status == "shown"
    assert claim("next-sentences", there).status == "not shown"
    (found,) = claim("both-directions", there).findings
    assert found.of == "Table 5"
    assert "no-nsp 90.4, left-to-right 70.4: +20.0" in found.ours
    assert found.p < LEVEL
    (found,) = claim("both-directions", of_tasks(POOR, POOR, GOOD)).findings
    assert (found.status, found.high < 0) == ("not shown", True)
    one_restart = {"no-nsp": {"qnli": [0.9]}, "left-to-right": {"qnli": [0.1]}}
    assert claim("both-directions", sweep_of("table-5", one_restart)).status == "not run"
    assert claim("next-sentences", of_tasks(GOOD, POOR, POOR)).status == "shown"


def test_directions_by_the_last_step_of_figure_5() -> None:
    lower = [*FAIR[:4], 0.7]
    runs = {"masked-lm": {"5": POOR, "10": GOOD}, "left-to-right": {"5": lower, "10": lower}}
    found = claim("both-directions", steps_sweep(runs)).findings
    assert [one.of for one in found] == ["Figure 5"]
    assert found[0].ours.startswith("10, masked-lm 90.8, 10, left-to-right")


def test_size_is_the_largest_against_the_smallest() -> None:
    def of_size(last: list[float]) -> JudgedClaim:
        runs = {"1-64-2": {"mnli": POOR}, "2-64-2": {"mnli": GOOD}, "3-64-2": {"mnli": last}}
        return claim("size", sweep_of("table-6", runs))

    assert of_size(FAIR).status == "shown"
    assert of_size(POOR).status == "not shown"


def test_features_are_close_where_they_go_nine_tenths_of_the_way() -> None:
    def near(last: list[float], floor: tuple[float, ...] = (0.5, 0.52, 0.51, 0.5, 0.49)) -> str:
        frozen = {"concat-last-4": last, "embeddings": list(floor)}
        given = [
            written(f"ner-{layers}", "conll-2003", runs, model={**FROZEN, "feature_layers": layers})
            for layers, runs in frozen.items()
        ]
        return claim("features", source(written("ner", "conll-2003", GOOD), *given)).status

    assert near([0.90, 0.90, 0.91, 0.91, 0.90]) == "shown"
    assert near(POOR) == "not shown"
    # Fine-tuning is no better than embeddings alone: there is no way to go.
    assert near([0.98, 0.98, 0.99, 0.98, 0.98], floor=(0.98, 0.97, 0.98, 0.98, 0.97)) == "not shown"


def test_other_data_are_never_set_against_the_papers() -> None:
    on_world = [
        written("cola", "cola", GOOD, model=BASE | SAMPLE),
        written("cola-scratch", "cola", POOR, model=SCRATCH | SAMPLE),
    ]
    (found,) = claim("glue", source(*on_world)).findings
    assert (found.data, found.status) == ("the sample world", "shown")
    assert "before" not in found.ours
    assert claim("glue", source(on_world[0])).status == "not run"  # nothing to compare with
    (own,) = claim("glue", source(written("cola", "cola", GOOD))).findings
    assert own.data == ""
    assert "the best before 45.4 on test, mean of 1 of 9 columns" in own.ours
    assert own.status == "shown"
    assert claim("glue", source(written("cola", "cola", [0.3, 0.31, 0.32]))).status == "not shown"


def test_an_ensemble_is_above_its_single_models_and_the_best_before() -> None:
    def together(value: float, **more: Any) -> str:
        runs = [0.90, 0.905, 0.91, 0.902]
        given = written("s", "squad-1.1", runs, ensemble=4, ensemble_value=value, **more)
        return claim("ensemble", source(given)).status

    assert together(0.95) == "shown"
    assert together(0.911) == "not shown"
    assert claim("ensemble", source(written("s", "squad-1.1", GOOD))).status == "not run"


def test_several_ensembles_are_compared_with_single_models_by_their_means() -> None:
    def together(*values: float) -> JudgedClaim:
        runs = [0.55, 0.95, 0.7, 0.99, 0.8, 0.75, 0.62]  # one ensemble would prove nothing
        given = [
            written(f"s-{n}", "squad-1.1", runs, ensemble=7, ensemble_value=value)
            for n, value in enumerate(values)
        ]
        return claim("ensemble", source(*given))

    (found,) = together(0.97, 0.98, 0.99, 0.98).findings
    assert found.status == "shown"
    assert (
        "98.0 on dev of 7 models together, mean of 4 ensembles, 76.6 of single ones" in found.ours
    )
    assert found.low > 0
    assert together(0.93, 0.75, 0.6, 0.99).status == "not shown"
    assert together(0.99).status == "not shown"


def test_models_from_scratch_are_not_single_models_of_an_ensemble() -> None:
    runs = [0.93, 0.94]
    members = written("members", "squad-1.1", runs)
    both = written("both", "squad-1.1", runs, ensemble=2, ensemble_value=0.945)
    scratch = written("scratch", "squad-1.1", [0.1, 0.2], model=SCRATCH)
    (found,) = claim("ensemble", source(members, both, scratch)).findings
    assert "93.5 of single ones" in found.ours


def test_all_findings_have_to_show_it() -> None:
    both = claim("both-directions", of_tasks(GOOD, GOOD, POOR), of_tasks(GOOD, GOOD, GOOD))
    assert [one.status for one in both.findings] == ["shown", "not shown"]
    assert both.status == "not shown"


# The command.


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.chdir(tmp_path)
    opened = ArtifactStore(str(tmp_path / "kept"))
    text = of_tasks(GOOD, FAIR, POOR, **SAMPLE).tables.to_json().decode()
    attempt = opened.begin("tabulate")
    files = [write_text_file(JSON_FILE, text, output=attempt.output)]
    made = opened.commit(describe(attempt, files, stage="tabulate")).manifest
    opened.set_ref("mine/tabulate", made)
    return opened


def asked(store: ArtifactStore, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["claims", *arguments, "--store", store.root])


def test_command_reads_last_tables_of_each_recipe(store: ArtifactStore) -> None:
    result = asked(store)
    assert result.exit_code == 0, result.output
    assert "2. Both directions matter: a masked LM is above a left-to-right one: SHOWN" in (
        result.output.splitlines()
    )
    data = json.loads(asked(store, "--json").output)
    assert [claim["status"] for claim in data["claims"]][:3] == ["not run", "shown", "not shown"]
    assert data["recipes"] == ["mine"]
    [finding, *_] = data["claims"][1]["findings"]
    assert (finding["recipe"], finding["data"]) == ("mine", "the sample world")


def test_recipe_without_tables_is_named(store: ArtifactStore) -> None:
    for name in ("mine", "other"):
        text = f"name: {name}\nbuild_examples: {{cola: {{task: cola, data_dir: x}}}}\n"
        (Path.cwd() / f"{name}.yaml").write_text(text)
    data = json.loads(asked(store, "other.yaml", "mine.yaml", "--json").output)
    assert data["without_tables"] == ["other"]
    result = asked(store, "other.yaml")
    assert isinstance(result.exception, ArtifactNotFoundError)
    assert "other" in str(result.exception)
    assert isinstance(asked(store, "--run").exception, UsageError)


def test_missing_recipes_are_run_first(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    monkeypatch.setattr("flows.cli.claims.run_recipe", lambda recipe, **_: ran.append(recipe.name))
    text = "build_examples: {cola: {task: cola, data_dir: x}}\n"
    for name in ("mine", "other"):
        (Path.cwd() / f"{name}.yaml").write_text(f"name: {name}\n{text}")
    done = asked(store, "mine.yaml", "other.yaml", "--run")
    assert done.exit_code == 0, done.output
    assert ran == ["other"]
