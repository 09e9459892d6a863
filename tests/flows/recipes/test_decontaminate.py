"""Recipes that exclude the evaluation texts of their tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.cli_runner import Cli

from flows.bert import recipe_steps
from flows.lineage.resolve import resolve
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from schemas.errors import ConfigError

SHARED = "A long sentence that stands in the corpus and in the test of the task, word for word."


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with recipes, texts, and a task that shares a sentence with a text."""
    monkeypatch.chdir(tmp_path)
    rows = [f"Text number {n} tells of things of its own {n * n} times over." for n in range(12)]
    rows[7] += f" {SHARED.upper()}"
    lines = [
        json.dumps({"id": f"t{n}", "title": f"Title {n}", "text": t}) for n, t in enumerate(rows)
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    (tmp_path / "sst").mkdir()
    for split, last in (("train", "learnt from"), ("dev", SHARED)):
        some = [f"{n} is a sentence of {split} that stands nowhere else" for n in range(6)]
        examples = [f"{text}\t{n % 2}" for n, text in enumerate([*some, last])]
        (tmp_path / f"sst/{split}.tsv").write_text("\n".join(["sentence\tlabel", *examples]))
    columns = {"id_column": "id", "title_column": "title"}
    source = {"kind": "text", "name": "t", "paths": ["texts.jsonl"], **columns}
    recipe = {
        "name": "mine",
        "build_documents": {"sources": [source]},
        "build_vocabulary": {"vocab_size": 160, "min_frequency": 1},
    }
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(recipe))
    recipe |= {
        "build_examples": {"feelings": {"task": "sst-2", "data_dir": "sst"}},
        "decontaminate": {"tasks": ["feelings"]},
    }
    (tmp_path / "clean.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def test_examples_are_read_before_the_corpus_is_searched(here: Path) -> None:
    plain, clean = (load_recipe(f"{name}.yaml") for name in ("plain", "clean"))
    before = [step.label for step in recipe_steps(plain)]
    steps = recipe_steps(clean)
    assert [step.label for step in steps] == [
        before[0], "build-examples.feelings", "find-contamination", *before[1:],
    ]  # fmt: skip
    readers = {step.label for step in steps if "contamination" in step.inputs}
    assert readers == {"build-vocabulary", "build-tokens"}
    # The examples are part of the corpus, which does not wait for fine-tuning.
    corpus = {step.label for step in recipe_steps(clean, part="corpus")}
    assert "build-examples.feelings" in corpus
    with pytest.raises(ConfigError):
        load_recipe("clean.yaml", overrides=["decontaminate.tasks=[other]"])


@pytest.mark.slow
@pytest.mark.usefixtures("one_worker")
def test_found_text_is_excluded_from_the_corpus(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, store = Cli(capsys), str(here / "store")
    run = cli("run", "clean.yaml", "--store", store, "--engine", "local", "--until", "build-tokens")
    assert run.code == 0, run.err
    opened = ArtifactStore(store)
    for stage in ("build-vocabulary", "build-tokens"):
        counters = resolve(f"mine/{stage}", store=opened).counters
        assert counters["documents-dropped-contaminated"] == 1, stage
        assert (counters["documents-in"], counters["documents-kept"]) == (12, 11)
    report = opened.backend.read("reports/mine.html").decode()
    assert "1 of 7 texts are in 1 of 12 documents" in report
    assert SHARED[:-1] in report
