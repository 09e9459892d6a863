"""Summary of a run: most important last, with commands that work."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.finetuning_builder import write_checkpoint
from support.lineage_builder import put, put_recipe
from support.report_builder import Written
from support.sweep_builder import GOOD, POOR, sweep_of

from flows.cli.final_summary import MAX_MESSAGES, summary_parts
from flows.cli.tables import print_parts
from flows.run.step_execution import StepResult
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from model.tables.document import JSON_FILE, Tables
from model.tables.verdicts import Verdict
from schemas.manifest import Manifest

REPORT = "/somewhere/reports/mine.html"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.chdir(tmp_path)
    return ArtifactStore(str(tmp_path / "kept"))


def results_of(manifests: Mapping[str, Manifest], **fields: Any) -> list[StepResult]:
    return [StepResult(label, item, False, 1.0, **fields) for label, item in manifests.items()]


def summarize(
    results: list[StepResult], store: ArtifactStore, *, recipe: str = "mine"
) -> list[str]:
    """Return the lines that a pipe gets."""
    with redirect_stdout(StringIO()) as output:
        print_parts(*summary_parts(results, store=store, recipe=recipe, report=REPORT))
    return [line.rstrip() for line in output.getvalue().splitlines()]


def block(lines: list[str], title: str) -> list[str]:
    """Return the lines below a title, up to an empty one."""
    start = next(index for index, line in enumerate(lines) if line.startswith(title)) + 1
    return lines[start : lines.index("", start)]


def verdict(task: str, sentence: str, **changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "kind": "pretraining",
        "outcome": "better",
        "task": task,
        "title": task,
        "metric": "matthews",
        "first": task,
        "second": f"{task}-scratch",
        "difference": 0.5,
        "low": 0.4,
        "high": 0.6,
        "p": 0.001,
        "restarts": 3,
        "sentence": sentence,
    }
    return Verdict(**{**fields, **changes})


def put_tables(store: ArtifactStore, made: Mapping[str, Manifest], tables: Tables) -> Manifest:
    inputs = {"cola": made["evaluate.cola"]}
    manifest = put(store, "tabulate", inputs, key="tables", text=tables.to_json().decode())
    files = (manifest.files[0].model_copy(update={"path": JSON_FILE}),)
    return manifest.model_copy(update={"files": files})


def tables_of(*verdicts: Verdict) -> Tables:
    return Tables(results=(), comparisons=(), tables=(), verdicts=verdicts)


def test_last_lines_are_headline_and_report(store: ArtifactStore) -> None:
    made = put_recipe(store)
    sentences = ("Pretraining helps on all 2 tasks", "Pretraining helps on CoLA")
    tables = tables_of(*(verdict("cola", sentence) for sentence in sentences))
    made["tabulate"] = put_tables(store, made, tables)
    lines = summarize(results_of(made), store)
    assert lines[1] == f"mine: {len(made)} steps, {len(made)} built, 0 cached"
    assert lines[-3:] == ["store: kept", sentences[0], f"report: {REPORT}"]
    assert set(sentences) < set(lines[:-3])
    steps = [line.split()[0] for line in block(lines, "step")]
    assert steps[:2] == ["build-documents", "build-vocabulary"]
    assert len(steps) < len(made)  # one row per stage


def test_lineage_goes_from_score_to_raw_files(store: ArtifactStore) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    rows = block(summarize(results_of(made), store), "lineage of evaluate.cola")
    stages = [row.split()[0] for row in rows]
    assert stages[:2] == ["evaluate", "finetune"]
    assert stages[-2:] == ["build-documents", "raw"]
    assert made["evaluate.cola"].artifact_id in rows[0]
    assert "wiki.xml.bz2 (2.0 kB, verified sha1)" in rows[-1]


def test_summary_shows_few_of_many_verdicts(store: ArtifactStore) -> None:
    made = put_recipe(store)
    sentences = [f"Pretraining helps on task {number}" for number in range(30)]
    tables = tables_of(*(verdict("cola", sentence) for sentence in sentences))
    made["tabulate"] = put_tables(store, made, tables)
    lines = summarize(results_of(made), store)
    assert [line for line in lines if line in sentences[1:]] == sentences[1:MAX_MESSAGES]
    assert f"... and {30 - MAX_MESSAGES} more: see the report" in lines


def test_warnings_of_cached_steps_are_shown_once(store: ArtifactStore) -> None:
    made = put_recipe(store)
    text = "The classifier gives one answer only."
    evaluated, recorded = made["evaluate.cola"], [{"kind": "one-answer", "text": text}]
    statistics = {**evaluated.statistics, "warnings": recorded}
    warned = evaluated.model_copy(update={"statistics": statistics})
    results = [
        StepResult("build-documents", made["build-documents"], True, 0.0),
        StepResult("evaluate.cola", warned, True, 0.0, warning=text),
    ]
    lines = summarize(results, store)
    assert lines.count(f"warning: evaluate.cola: {text}") == 1
    assert [line.split()[1] for line in block(lines, "step")] == ["cached", "cached"]


def test_sweep_ends_with_its_first_verdict(store: ArtifactStore) -> None:
    runs = {f"variant-{n}": {"mnli": GOOD, "qnli": GOOD if n else POOR} for n in range(12)}
    sentences = ["variant-1 is better: +40 points", "variant-2 is better: +40 points"]
    verdicts = [verdict("", text, kind="variants", first="variant-1") for text in sentences]
    made = put_recipe(store)
    swept = sweep_of("", runs).tables.model_copy(update={"verdicts": tuple(verdicts)})
    made["tabulate"] = put_tables(store, made, swept)
    assert summarize(results_of(made), store)[-2] == sentences[0]


def test_run_without_tables_ends_with_its_last_score(store: ArtifactStore) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    assert summarize(results_of(made), store)[-2].startswith("cola: matthews ")


def test_activation_is_printed_if_shell_does_not_know_bertloom(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = summarize(results_of(made), store)
    assert "try next (after: source env/bin/activate):" in lines


# Commands


def commands(lines: list[str]) -> list[list[str]]:
    """Return the arguments of the printed commands, as a shell splits them."""
    return [shlex.split(line)[1:] for line in lines if line.startswith("  bertloom ")]


def test_printed_commands_of_corpus_and_model_work(
    reported_run: tuple[ArtifactStore, RunRecord], tmp_path: Path, cli: Cli
) -> None:
    original, record = reported_run
    shutil.copytree(original.root, tmp_path / "store")
    store = ArtifactStore(str(tmp_path / "store"))
    made = Written(store, record.model_copy(update={"steps": record.steps[:4]}))
    corpus = {step.label: made.manifest(step.label) for step in made.record.steps}
    of_corpus = commands(summarize(results_of(corpus), store, recipe="test"))
    assert [words[0] for words in of_corpus] == ["lineage", "trace", "head"]
    folder = Path(write_checkpoint(tmp_path / "bert"))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    corpus["pretrain.last"] = made.publish("pretrain.last", files, counters={"steps": 1})
    store.set_ref("test/pretrain.last", corpus["pretrain.last"])
    of_model = commands(summarize(results_of(corpus), store, recipe="test"))
    assert [words[0] for words in of_model] == ["fill", "lineage", "trace"]
    assert of_model[0][1].count("[MASK]") == 1
    for words in (*of_corpus, *of_model):
        result = cli(*words)
        assert result.code == 0, result.err
