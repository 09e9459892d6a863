"""What a run ends with fits a screen, and leads to all the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lineage_writing import put, put_recipe, raw_file
from test_claims import sweep_of
from test_sweep_tables import GOOD, POOR

from flows.cli.last_screen import WIDTH, screen_lines
from flows.engine.steps import StepResult
from flows.store.artifacts import ArtifactStore
from model.tables.document import JSON_FILE, Tables
from model.tables.entry_comparison import EntryComparison
from model.tabulate import TEXT_FILE
from schemas.manifest import Manifest

SCREEN = 43  # lines of a terminal of 45, beside an empty one and the prompt
REPORT = "/somewhere/reports/mine.html"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.chdir(tmp_path)
    return ArtifactStore(str(tmp_path / "kept"))


def results_of(made: dict[str, Manifest], **more: Any) -> list[StepResult]:
    return [StepResult(label, one, False, 1.0, **more) for label, one in made.items()]


def screen(results: list[StepResult], store: ArtifactStore) -> list[str]:
    return screen_lines(results, store=store, recipe="mine", report=REPORT)


def compared(number: int, *, cut: tuple[str, ...] = ()) -> EntryComparison:
    return EntryComparison(
        task="cola",
        metric="matthews",
        first=f"cola-{number}",
        second="cola-scratch",
        first_mean=0.5,
        second_mean=0.1,
        first_runs=5,
        second_runs=5,
        low=0.3,
        high=0.5,
        p=0.001,
        first_cut=cut,
        second_cut=(),
    )


def tabulated(
    store: ArtifactStore,
    made: dict[str, Manifest],
    *items: EntryComparison,
    tables: Tables | None = None,
) -> Manifest:
    tables = tables or Tables(results=(), comparisons=items, tables=())
    text = tables.to_json().decode()
    found = put(store, "tabulate", {"cola": made["evaluate.cola"]}, key="tables", text=text)
    [entry] = found.files
    files = (entry.model_copy(update={"path": name}) for name in (JSON_FILE, TEXT_FILE))
    return found.model_copy(update={"files": tuple(files)})


def test_results_lineage_next_and_the_report(store: ArtifactStore) -> None:
    made = put_recipe(store)
    made["tabulate"] = tabulated(store, made, compared(1))
    lines = screen(results_of(made), store)
    assert lines[0] == f"mine: {len(made)} steps, {len(made)} built, 0 cached"
    assert any(line.startswith("pretrain.phase-2 ") for line in lines)
    at = lines.index("Entries on the same task")
    assert lines[at + 3].split()[:3] == ["cola", "cola-1", "cola-scratch"]
    assert "+30.0 to +50.0" in lines[at + 3]
    assert not any("Results" in line for line in lines)  # which are in the tables and the report
    answer = made["evaluate.cola"].artifact_id
    assert f"lineage of evaluate.cola, all of it: bertloom lineage {answer} --store kept" in lines
    for stage in ("evaluate", "finetune", "pretrain", "build-tokens", "build-documents"):
        assert any(line.startswith(f"  {stage} ") for line in lines), stage
    [dump] = [line for line in lines if "wiki.xml.bz2 (2.0 kB, sha256 " in line]
    assert dump.endswith(", verified sha1)")
    assert "  bertloom predict mine/evaluate.cola TEXT --store kept" in lines
    assert any(line.startswith("tables: kept/artifacts/tabulate/") for line in lines)
    assert lines[-1] == f"report: {REPORT}"


def test_a_long_run_fits_a_screen_and_says_what_is_left_out(store: ArtifactStore) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    for number in range(20):
        made[f"pretrain.more-{number}"] = made["pretrain.phase-2"]
        made[f"build-instances.more-{number}"] = made["build-instances.short"]
    raw = [raw_file(f"part-{number}.xml.bz2") for number in range(40)]
    made["build-documents"] = put(store, "build-documents", raw=raw, key="many", text="many")
    notes = tuple(f"note {number} {'word ' * 40}" for number in range(9))
    made["build-tokens"] = put(store, "build-tokens", notes=notes, key="noted")
    answers = put(store, "evaluate", made, statistics={}, key="all")
    del made["evaluate.cola"]
    made["evaluate.cola"] = answers  # the last number
    cut = ("4,000 of 67,349 rows of train",)
    items = [compared(number, cut=cut) for number in range(30)]
    made["tabulate"] = tabulated(store, made, *items)
    found = results_of({name: one for name, one in made.items() if name != "tabulate"})
    found.append(StepResult("tabulate", made["tabulate"], False, 1.0))
    lines = screen(found, store)
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= WIDTH
    assert "... and 19 before: bertloom ls" in lines
    assert "... and 24 more comparisons: see the tables" in lines
    assert any(line.startswith("† cola-0: 4,000 of 67,349") for line in lines)
    assert any("more on cut-down data" in line for line in lines)
    assert any(line.endswith("more notes: see the report") for line in lines)
    assert any("more raw files" in line for line in lines)
    small = screen_lines(found, store=store, recipe="mine", report=REPORT, size=(80, 24))
    assert sum(-(-len(line) // 80) for line in small) <= 23
    assert [line for line in small if len(line) > 80 and "bertloom lineage" not in line] == []
    assert "... and 28 more comparisons: see the tables" in small
    assert any(line.endswith("(the tables have more columns)") for line in small)
    assert small[-1] == f"report: {REPORT}"


def test_a_sweep_shows_its_directions_and_no_more_than_fits(store: ArtifactStore) -> None:
    runs = {f"variant-{n}": {"mnli": GOOD, "qnli": GOOD if n else POOR} for n in range(12)}
    made = put_recipe(store)
    made["tabulate"] = tabulated(store, made, tables=sweep_of("", runs).tables)
    lines = screen(results_of(made), store)
    at = lines.index("Sweep: axis: differences")
    assert lines[at + 3].split()[:4] == ["mean", "variant-0", "worse", "variant-1"]
    assert "... and 5 more comparisons: see the tables" in lines
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= WIDTH


def test_entries_that_nothing_compares_are_listed(store: ArtifactStore) -> None:
    made = put_recipe(store)
    made["tabulate"] = tabulated(store, made)
    lines = screen(results_of(made), store)
    assert any(line.startswith("evaluate.cola  matthews ") for line in lines)


def test_a_corpus_alone_has_its_steps_and_warnings_first(store: ArtifactStore) -> None:
    made = put_recipe(store)
    corpus = {name: made[name] for name in ("build-documents", "build-tokens")}
    corpus["build-instances.short"] = made["build-instances.short"]
    found = results_of(corpus)
    found[0] = found[0]._replace(warning="a conflict")
    counted = {"documents-in": 9, "documents-kept": 7, "documents-dropped-too-short": 2}
    noted = found[0].manifest.model_copy(
        update={"counters": counted, "notes": ("advice " * 40 + "and its end",)}
    )
    found[0] = found[0]._replace(manifest=noted)
    lines = screen(found, store)
    assert any("documents   9     7        2  too-short 2" in line for line in lines)
    assert any(line.endswith("and its end") for line in lines)  # whole, over several lines
    assert any(line.startswith("build-tokens ") and "9,000 tokens" in line for line in lines)
    assert "warning, build-documents: a conflict" in lines
    assert "  bertloom head mine/build-instances.short -n 1 --store kept" in lines
    assert not any("predict" in line or "finetune" in line for line in lines)


def test_a_model_without_tasks_is_to_be_fine_tuned(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = put_recipe(store)
    trained = {name: one for name, one in made.items() if "build" in name or "pretrain" in name}
    del trained["build-examples.cola"]
    monkeypatch.setenv("BERTLOOM_STORE", store.root)
    assert ("  bertloom finetune TASK --data FOLDER --checkpoint mine/pretrain.phase-2") in screen(
        results_of(trained), store
    )
