"""The last lines of a run: at most 40, most important last, with commands that work."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.finetuning_builder import write_checkpoint, write_examples, write_tuned
from support.lineage_builder import put, put_recipe, raw_file
from support.report_builder import Written
from support.store_builder import describe
from support.sweep_builder import GOOD, POOR, sweep_of

from flows.cli.final_summary import LINES, WIDTH, summary_lines
from flows.run.step_execution import StepResult, input_ref
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from model.tables.document import JSON_FILE, Tables
from model.tables.verdicts import Verdict
from schemas.manifest import FileEntry, Manifest

REPORT = "/somewhere/reports/mine.html"
TEXT = 'it\'s a "fine" film; costs $HOME `now` !'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.chdir(tmp_path)
    return ArtifactStore(str(tmp_path / "kept"))


def results_of(made: Mapping[str, Manifest], **more: Any) -> list[StepResult]:
    return [StepResult(label, one, False, 1.0, **more) for label, one in made.items()]


def screen(
    results: list[StepResult], store: ArtifactStore, *, recipe: str = "mine", width: int = WIDTH
) -> list[str]:
    lines = summary_lines(results, store=store, recipe=recipe, report=REPORT, width=width)
    assert sum(-(-len(line) // width) or 1 for line in lines) <= LINES
    is_whole = ("  bertloom", "store: ", "report: ", "try next")
    assert [line for line in lines if len(line) > width and not line.startswith(is_whole)] == []
    return lines


def block(lines: list[str], title: str) -> list[str]:
    """Return the lines below a title, up to an empty one."""
    start = next(at for at, line in enumerate(lines) if line.startswith(title)) + 1
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


def compared(*verdicts: Verdict) -> Tables:
    return Tables(results=(), comparisons=(), tables=(), verdicts=verdicts)


def test_last_lines_are_headline_and_report(store: ArtifactStore) -> None:
    made = put_recipe(store)
    sentences = ("Pretraining helps on all 2 tasks", "Pretraining helps on CoLA")
    tables = compared(*(verdict("cola", sentence) for sentence in sentences))
    made["tabulate"] = put_tables(store, made, tables)
    lines = screen(results_of(made), store)
    assert lines[0] == f"mine: {len(made)} steps, {len(made)} built, 0 cached"
    assert lines[-3:] == ["store: kept", sentences[0], f"report: {REPORT}"]
    assert set(sentences) < set(lines[:-3])
    steps = [line.split()[0] for line in block(lines, "step")]
    assert steps[:2] == ["build-documents", "build-vocabulary"]
    assert "finetune.cola" in steps
    assert len(steps) < len(made)  # trials of a grid are one row


def test_lineage_leads_from_score_to_raw_files_in_eight_lines(store: ArtifactStore) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    rows = block(screen(results_of(made), store), "lineage of evaluate.cola")
    assert len(rows) <= 7
    assert [row.split()[0] for row in rows[:2]] == ["evaluate", "finetune"]
    assert made["evaluate.cola"].artifact_id in rows[0]
    assert "9,000 tokens, 2,000 word pieces" in rows[-2]
    assert "wiki.xml.bz2 (2.0 kB, verified sha1)" in rows[-1]


@pytest.mark.parametrize("width", [80, 100, 300])
def test_long_run_fits_and_names_what_is_missing(store: ArtifactStore, width: int) -> None:
    made = put_recipe(store)
    for number in range(20):
        made[f"pretrain.more-{number}"] = made["pretrain.phase-2"]
        made[f"build-instances.more-{number}"] = made["build-instances.short"]
    raw = [raw_file(f"part-{number}.xml.bz2") for number in range(40)]
    made["build-documents"] = put(store, "build-documents", raw=raw, key="many", text="many")
    notes = tuple(f"note {number} {'word ' * 40}" for number in range(9))
    made["build-tokens"] = put(store, "build-tokens", notes=notes, key="noted")
    sentences = [f"Pretraining helps on task {number} {'and so on ' * 9}" for number in range(30)]
    tables = compared(*(verdict("cola", sentence) for sentence in sentences))
    made["tabulate"] = put_tables(store, made, tables)
    lines = screen(results_of(made, warning="the loss rises"), store, width=width)
    assert any(line.startswith("... and ") and " verdicts: " in line for line in lines)
    assert any(line.startswith("... and ") and " warnings: " in line for line in lines)
    assert "warning: build-documents: the loss rises" in lines
    assert lines[-1] == f"report: {REPORT}"


def test_recorded_warnings_are_shown_once_for_cached_steps_too(store: ArtifactStore) -> None:
    made = put_recipe(store)
    text = "The classifier gives one answer only."
    evaluated, recorded = made["evaluate.cola"], [{"kind": "one-answer", "text": text}]
    statistics = {**evaluated.statistics, "warnings": recorded}
    warned = evaluated.model_copy(update={"statistics": statistics})
    results = [
        StepResult("build-documents", made["build-documents"], True, 0.0),
        StepResult("evaluate.cola", warned, True, 0.0, warning=text),
    ]
    lines = screen(results, store)
    assert lines.count(f"warning: evaluate.cola: {text}") == 1
    assert [line.split()[1] for line in block(lines, "step")] == ["cached", "cached"]


def test_sweep_ends_with_its_first_verdict(store: ArtifactStore) -> None:
    runs = {f"variant-{n}": {"mnli": GOOD, "qnli": GOOD if n else POOR} for n in range(12)}
    sentences = ["variant-1 is better: +40 points", "variant-2 is better: +40 points"]
    verdicts = [verdict("", text, kind="variants", first="variant-1") for text in sentences]
    made = put_recipe(store)
    swept = sweep_of("", runs).tables.model_copy(update={"verdicts": tuple(verdicts)})
    made["tabulate"] = put_tables(store, made, swept)
    assert screen(results_of(made), store)[-2] == sentences[0]


def test_run_without_tables_ends_with_its_last_score(store: ArtifactStore) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    assert screen(results_of(made), store)[-2].startswith("cola: matthews ")


def test_commands_name_the_activation_where_bertloom_is_unknown(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "try next (after: source env/bin/activate):" in screen(results_of(made), store)


# Commands


def commands(lines: list[str]) -> list[list[str]]:
    """Return the arguments of the printed commands, as a shell splits them."""
    return [shlex.split(line)[1:] for line in lines if line.startswith("  bertloom ")]


def put_files(
    store: ArtifactStore,
    label: str,
    folder: Path,
    inputs: Mapping[str, Manifest] | None = None,
    *,
    rows: int | None = None,
    **more: Any,
) -> Manifest:
    """Publish the files of a folder as an artifact of recipe `mine`."""
    attempt = store.begin(label.partition(".")[0])
    files = []
    for path in sorted(folder.iterdir()):
        content, digest = path.read_bytes(), hashlib.sha256(path.read_bytes()).hexdigest()
        store.backend.put_if_absent(f"{attempt.location}/data/{path.name}", content)
        entry = FileEntry(
            path=path.name, stored_name=path.name, size_bytes=len(content), sha256=digest, rows=rows
        )
        files.append(entry)
    fields = {
        "stage": label.partition(".")[0],
        "spec": {"label": label},
        "inputs": tuple(input_ref(name, one) for name, one in (inputs or {}).items()),
    }
    manifest = store.commit(describe(attempt, files, **fields, **more)).manifest
    store.set_ref(f"mine/{label}", manifest)
    return manifest


ROWS: dict[str, dict[str, Any]] = {
    "sst-2": {"text_a": TEXT, "label": "1"},
    "mrpc": {"text_a": TEXT, "text_b": "a song", "label": "1"},
    "swag": {"context": TEXT, "continuations": ["a", "-b", "c'", "d"], "label": 0},
    "squad-1.1": {
        "title": "A", "question": "what's fine ?", "context": TEXT, "answers": ["film"],
        "answer_starts": [14],
    },
    "conll-2003": {"sentence_lengths": [2, 1], "words": ["Anna's", "film", "more"], "tags": None},
}  # fmt: skip


@pytest.mark.parametrize("task", ROWS)
def test_printed_commands_work(store: ArtifactStore, tmp_path: Path, cli: Cli, task: str) -> None:
    rows, folder = [{"id": "0", **ROWS[task]}], tmp_path / "examples"
    examples = write_examples(folder, task, splits={"dev": rows}, labels=())
    Path(folder, examples.files[0].stored_name).rename(folder / "dev.arrow")
    outputs = {"squad-1.1": 2, "swag": 1}.get(task, 0)
    labels = () if outputs else ("O", "B-PER") if task == "conll-2003" else ("0", "1")
    trial = write_tuned(tmp_path / "trial", task=task, labels=labels, outputs=outputs)
    made = {
        "build-examples.x": put_files(store, "build-examples.x", folder, rows=1),
        "finetune.x.r0": put_files(store, "finetune.x.r0", Path(trial)),
    }
    (tmp_path / "empty").mkdir()
    made["evaluate.x"] = put_files(
        store, "evaluate.x", tmp_path / "empty",
        {"examples": made["build-examples.x"], "r0": made["finetune.x.r0"]},
        statistics={"task": task, "members": ["r0"], "threshold": 0.0},
    )  # fmt: skip
    printed = commands(screen(results_of(made), store))
    assert [words[0] for words in printed] == ["predict", "lineage", "show"]
    text = "Anna's film" if task == "conll-2003" else TEXT
    assert text in printed[0]
    for words in printed:
        said = cli(*words)
        assert said.code == 0, said.err


def test_printed_commands_of_corpus_and_model_work(
    reported_run: tuple[ArtifactStore, RunRecord], tmp_path: Path, cli: Cli
) -> None:
    original, record = reported_run
    shutil.copytree(original.root, tmp_path / "store")
    store = ArtifactStore(str(tmp_path / "store"))
    made = Written(store, record.model_copy(update={"steps": record.steps[:4]}))
    corpus = {step.label: made.manifest(step.label) for step in made.record.steps}
    of_corpus = commands(screen(results_of(corpus), store, recipe="test"))
    assert [words[0] for words in of_corpus] == ["lineage", "trace", "head"]
    folder = Path(write_checkpoint(tmp_path / "bert"))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    corpus["pretrain.last"] = made.publish("pretrain.last", files)
    store.set_ref("test/pretrain.last", corpus["pretrain.last"])
    of_model = commands(screen(results_of(corpus), store, recipe="test"))
    assert [words[0] for words in of_model] == ["fill", "lineage", "trace"]
    assert of_model[0][1].count("[MASK]") == 1
    for words in (*of_corpus, *of_model):
        said = cli(*words)
        assert said.code == 0, said.err
