"""`bertloom` as a Python package: names, event loops, Prefect flows, packages with equal names."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest
from support.paths import ROOT
from support.tiny_recipe import TEXTS, write_tiny

import bertloom
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
from schemas.errors import ArtifactNotFoundError


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe, the store of its run, and a small vocabulary."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    words = ("the", "rain", "fell", "river", "rose", ".")
    (folder / "vocab.txt").write_text(vocab_text([*FIXED_TOKENS, *words]), encoding="utf-8")
    bertloom.run(str(folder / "tiny.yaml"))
    return folder


def python(code: str, *, path: Path | None = None, cwd: Path = ROOT) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*([path] if path else []), ROOT]))}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_import_loads_only_standard_library_and_has_the_public_names() -> None:
    code = (
        "import sys; before = set(sys.modules); import bertloom\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    assert python(code).split() == ["bertloom"]
    assert {name for name in dir(bertloom) if name in bertloom.__all__} == set(bertloom.__all__)
    assert all(callable(getattr(bertloom, name)) for name in bertloom.__all__)


def test_plan_loads_neither_beam_nor_torch_nor_prefect(tiny: Path) -> None:
    code = (
        "import sys, bertloom\n"
        f"print([step.state for step in bertloom.plan({str(tiny / 'tiny.yaml')!r})])\n"
        "print(sorted({'apache_beam', 'prefect', 'torch', 'typer'} & set(sys.modules)))"
    )
    assert python(code).splitlines() == ["['cached', 'cached', 'cached', 'cached']", "[]"]


def test_import_error_names_other_package_of_the_same_name(tmp_path: Path) -> None:
    for name in ("schemas", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
        message = python("import bertloom", path=tmp_path, cwd=tmp_path)
        assert message.startswith("ImportError: ")
        assert all(part in message for part in (repr(name), str(tmp_path / name), str(ROOT)))
        (tmp_path / name / "__init__.py").unlink()
        (tmp_path / name).rmdir()
    (tmp_path / "flows.py").write_text("", encoding="utf-8")
    assert f"{tmp_path / 'flows.py'}" in python("import bertloom", path=tmp_path, cwd=tmp_path)


def test_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['jinja2'] = None; import bertloom; bertloom.run"
    message = python(code)
    assert message.startswith("ImportError: bertloom.run: jinja2")
    assert message.endswith("pip install 'bertloom[flows]'")


def test_second_run_is_cached_also_within_event_loop(tiny: Path) -> None:
    lines: list[str] = []

    async def cell() -> dict[str, bertloom.Artifact]:
        return bertloom.run(str(tiny / "tiny.yaml"), log=lines.append)

    built = asyncio.run(cell())
    assert list(built) == [
        "build-documents", "build-vocabulary", "build-tokens", "build-instances.length-32",
    ]  # fmt: skip
    store = bertloom.open_store(str(tiny / "store"))
    assert [artifact.id for artifact in store.artifacts()] == [
        artifact.id for artifact in reversed(built.values())
    ]
    assert len(lines) == 4
    assert all("cached" in line for line in lines)


def test_artifacts_load_as_their_content(tiny: Path) -> None:
    store = bertloom.open_store(str(tiny / "store"))
    instances = store.artifact("tiny/build-instances.length-32")
    rows = instances.load()
    assert isinstance(rows, ds.Dataset)
    ids = rows.to_table(columns=["input_ids"]).column("input_ids").to_pylist()
    assert {row[0] for row in ids} == {101}
    assert max(map(len, ids)) <= 32
    documents = store.artifact("build-documents")
    assert documents.load().count_rows() == len(TEXTS)
    assert documents.dataset("duplicates").count_rows() == 1
    vocabulary = store.artifact("tiny/build-vocabulary")
    assert vocabulary.load() == vocabulary.path()
    assert len(vocabulary.file("vocab.txt").read_text(encoding="utf-8").split()) == 150
    with pytest.raises(ArtifactNotFoundError):
        instances.dataset("held-out")
    with pytest.raises(ArtifactNotFoundError):
        vocabulary.file("x")


def test_artifact_is_shown_in_one_line_and_as_table(tiny: Path) -> None:
    tokens = bertloom.open_store(str(tiny / "store")).artifact("tiny/build-tokens")
    assert repr(tokens) == f"Artifact(build-tokens {tokens.id}: {tokens.summary})"
    rows = dict(re.findall("<tr><th>(.*?)</th><td>(.*?)</td></tr>", tokens._repr_html_()))
    assert rows["artifact"] == f"build-tokens {tokens.id}"
    assert "build-documents" in rows["inputs"]
    assert rows["store"] == str(tiny / "store")


def test_lineage_and_trace_take_an_artifact(tiny: Path) -> None:
    store = str(tiny / "store")
    tokens = bertloom.open_store(store).artifact("tiny/build-tokens")
    by_name = bertloom.lineage("tiny/build-tokens", store=store)
    assert bertloom.lineage(tokens).graph.nodes == by_name.graph.nodes
    traced = bertloom.trace("tiny/build-tokens", 0, store=store)
    assert bertloom.trace(tokens, 0).segments == traced.segments


def test_version_is_that_of_the_distribution() -> None:
    assert bertloom.__version__ == importlib.metadata.version("bertloom")


@pytest.mark.slow
def test_run_works_within_prefect_flow(tiny: Path, prefect_server: None) -> None:
    from prefect import flow

    @flow
    def theirs() -> list[str]:
        return list(bertloom.run(str(tiny / "tiny.yaml"), engine="local"))

    assert len(theirs()) == 4


# The examples of the documentation.


@pytest.mark.slow
def test_examples_run(real_data: Path, tmp_path: Path) -> None:
    dump = real_data / "wikibooks" / "WikiDumpPart45.xml.bz2"
    vocab = real_data / "vocab" / "bert-base-uncased" / "vocab.txt"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "BERTLOOM_DATA": str(real_data)}

    def run(name: str, *arguments: object) -> list[str]:
        command = [sys.executable, f"examples/{name}", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    lines = run("notebook.py")
    assert lines[:2] == ["build-documents build", "build-vocabulary unknown"]
    rows, first, *_ = lines[8].split()
    assert int(rows) > 100
    assert first == "[101,"
    assert [line.split()[0] for line in lines[9:]] == ["a", "b"]
    assert all(line.endswith(dump.name) for line in lines[9:])

    run("beam_pipeline.py", dump, vocab, tmp_path / "out" / "tokens")
    table = ds.dataset(tmp_path / "out", format="parquet").to_table()
    ids = table.column("document_id").to_pylist()
    assert len(ids) == len(set(ids)) > 20
    tokens = np.array(table.column("token_ids").combine_chunks().flatten())
    assert len(tokens) > 10_000
    assert 103 < tokens.max() < 30_522


def test_examples_equal_those_in_the_docs() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in ("notebook.py", "beam_pipeline.py"):
        text = (ROOT / "examples" / name).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 16, name
        assert f"```python\n{text}```" in page, name


MODULES = [
    "bertloom.api",
    "flows.formatting",
    "flows.lineage.document_diff",
    "flows.nested_values",
    "flows.plots",
    "pipelines.arrays",
    "pipelines.counters",
    "pipelines.documents.records",
    "pipelines.instances",
    "pipelines.runners.registry",
    "pipelines.seeds",
    "pipelines.documents.sentences",
    "pipelines.transforms",
    "pipelines.wordpiece.tokenizer",
    "schemas.manifest",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny)
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0, f"{name}: no example"
    assert found.failed == 0
