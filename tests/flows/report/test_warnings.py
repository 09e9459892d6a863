"""Display of training warnings: after a step, at the end of a run, on the page of the run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from support.fake_stages import FakeStages
from support.lineage_builder import put
from support.report_builder import Written

from flows.report.page import report_page
from flows.report.run_steps import Built, collect_warnings
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord

TEXT = "The masked-LM loss (6.91) is no better than that of <word> frequencies alone (6.88)"


def warned(text: str = TEXT, kind: str = "unigram-loss") -> dict[str, Any]:
    return {"warnings": [{"kind": kind, "text": text}]}


def test_warnings_of_evaluated_trials_are_omitted(store: ArtifactStore) -> None:
    phase = put(store, "pretrain", statistics=warned())
    evaluated = put(store, "finetune", key="read", statistics=warned("one restart", "chance"))
    alone = put(store, "finetune", key="alone", statistics=warned("alone", "chance"))
    evaluation = put(
        store,
        "evaluate",
        {"r0": evaluated},
        statistics=warned("1 of 3 restarts: one restart", "chance"),
    )
    built = [
        Built("pretrain.phase-1", phase),
        Built("finetune.a.r0", evaluated),
        Built("finetune.b.r0", alone),
        Built("evaluate.a", evaluation),
    ]
    assert [tuple(warning) for warning in collect_warnings(built)] == [
        ("pretrain.phase-1", "unigram-loss", TEXT),
        ("finetune.b.r0", "chance", "alone"),
        ("evaluate.a", "chance", "1 of 3 restarts: one restart"),
    ]


def test_step_reports_its_warnings_when_it_is_built_and_not_when_cached(
    fakes: FakeStages, store: ArtifactStore
) -> None:
    warnings = repr(warned()["warnings"])
    text = (fakes.package / "stages.py").read_text()
    made = 'statistics={"vocab_size": config.vocab_size'
    fakes.write("stages", text.replace(made, f'{made}, "warnings": {warnings}'))
    recipe = fakes.recipe(store.root)
    first, second = list[str](), list[str]()
    run_recipe(recipe, log=first.append, engine="local")
    results = run_recipe(recipe, log=second.append, engine="local")
    assert first.count(f"  warning: {TEXT}") == 1
    assert not any("warning" in line for line in second)
    assert [result.label for result in results if result.warnings] == ["build-vocabulary"]


def test_page_has_a_box_of_warnings_after_its_summary(
    reported_run: tuple[ArtifactStore, RunRecord], tmp_path: Path
) -> None:
    store, record = reported_run
    assert 'id="warnings"' not in report_page(store, record)
    shutil.copytree(store.root, tmp_path / "copy")
    copy = ArtifactStore(str(tmp_path / "copy"))
    changed = Written(copy, record)
    changed.publish("pretrain.third", statistics=warned(), counters={"steps": 5, "tokens": 9})
    page = report_page(copy, changed.record)
    assert page.index('id="summary"') < page.index('id="warnings"') < page.index('id="corpus"')
    assert TEXT.replace("<", "&lt;").replace(">", "&gt;") in page
    assert "<strong>pretrain.third</strong>" in page
