"""Commands from a recipe to its artifacts, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli_runner import RECIPE, Cli, modules_loaded_by

from flows.cli.app import main
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest

TALES = (
    "The ferryman of Orrin kept a lantern in the window. Nobody knew who had lit it first.\n"
    "When the river rose, he rowed across and counted the bells. There were seven of them.\n\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BERTLOOM_STORE", "BERTLOOM_SAMPLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe, its texts, and the store of its run."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "texts").mkdir()
    words = ("stone", "harbor", "winter", "letter", "garden", "engine", "copper", "evening")
    for number, word in enumerate(words):
        text = "".join(
            TALES.replace("lantern", f"{word} {other}").replace("seven", f"{count + 2} and {word}")
            for count, other in enumerate(words[number % 3 :])
        )
        (folder / "texts" / f"{word}.txt").write_text(text)
    (folder / "recipe.yaml").write_text(f"{RECIPE}store: store\n")
    with pytest.raises(SystemExit) as end:
        main(["run", str(folder / "recipe.yaml"), "--engine", "local"])
    assert not end.value.code
    return folder


@pytest.fixture
def store(corpus: Path) -> tuple[str, str]:
    """Return the option with the store of the corpus."""
    return "--store", str(corpus / "store")


def read_manifest(corpus: Path, stage: str) -> Manifest:
    store = ArtifactStore(str(corpus / "store"), create=False)
    [pointer] = store.pointers(stage)
    return store.read_manifest(pointer.manifest)


def test_second_run_is_cached(cli: Cli, corpus: Path) -> None:
    result = cli("run", str(corpus / "recipe.yaml"), "--engine", "local")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["4", "steps", "cached"]
    assert f"store: {corpus / 'store'}" in lines
    rows = [line.split(maxsplit=2) for line in lines[lines.index("") :]]
    documents = read_manifest(corpus, "build-documents").counters["documents-kept"]
    assert ["build-documents", "cached", f"{documents} documents"] in rows


def test_dry_run_prints_plan_and_writes_nothing(cli: Cli, corpus: Path, folder: Path) -> None:
    recipe = str(corpus / "recipe.yaml")
    result = cli("run", recipe, "--dry-run", "--set", "build_instances.length-64.seed=3")
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()[1:5]]
    assert [row[2] for row in rows] == ["cached", "cached", "cached", "build"]
    assert rows[0][3] == read_manifest(corpus, "build-documents").artifact_id
    assert "seed 0 -> 3" in " ".join(rows[3])
    result = cli("run", recipe, "--dry-run", "--store", str(folder / "new"))
    assert "unknown" in result.out
    assert not (folder / "new").exists()


def test_show_prints_manifest(cli: Cli, corpus: Path, store: tuple[str, str]) -> None:
    manifest = read_manifest(corpus, "build-tokens")
    result = cli("show", "build-tokens", *store)
    assert result.code == 0
    for text in (
        manifest.artifact_id,
        manifest.cache_key,
        manifest.content_digest,
        manifest.produced_by.run_id,
        "documents",
        manifest.files[0].path,
        "remove_duplicates: true",
        "pyarrow",
    ):
        assert text in result.out
    assert cli("show", str(corpus / "store" / manifest.artifact_path)).out == result.out
    data = json.loads(cli("show", "build-tokens", "--json", *store).out)
    assert Manifest.model_validate(data) == manifest


def test_head_shows_masks(cli: Cli, corpus: Path, store: tuple[str, str]) -> None:
    result = cli("head", "build-instances", "-n", "4", *store)
    assert result.code == 0
    assert "[MASK→" in result.out
    assert "document notes:" in result.out
    manifest = read_manifest(corpus, "build-instances")
    entry = manifest.shards[0]
    path = corpus / "store" / manifest.data_path / entry.stored_name
    assert cli("head", str(path), "-n", "4").out == result.out
    assert cli("head", "build-instances:0", "-n", "4", *store).out == result.out
    later = cli("head", "build-instances", "-n", "1", "--start", "2", *store).out
    assert f"{entry.path} row 2" in later
    assert later.strip() in result.out


def test_head_decodes_every_table(cli: Cli, store: tuple[str, str]) -> None:
    assert "Nobody knew who had lit it first." in cli("head", "build-documents", *store).out
    assert "nobody knew who had lit it first ." in cli("head", "build-tokens", *store).out
    assert cli("head", "build-documents:duplicates.arrow", *store).code == 0
    assert "count:" in cli("head", "build-vocabulary:word-counts.arrow", *store).out
    assert "[UNK]" in cli("head", "build-vocabulary:tokenizer.json", *store).out
    result = cli("head", "build-vocabulary", "-n", "2", "--start", "101", *store)
    assert [line.split()[-1] for line in result.out.splitlines()[1:]] == ["[CLS]", "[SEP]"]
    result = cli("head", "build-tokens:part-99999.arrow", *store)
    assert result.code == 1
    assert "part-00000.arrow" in result.err


def test_rows_are_counted_across_shards(cli: Cli, store: tuple[str, str]) -> None:
    manifest = json.loads(cli("show", "build-instances", "--json", *store).out)
    shards = [file for file in manifest["files"] if file["path"].startswith("part-")]
    assert len(shards) > 1
    first, second = shards[:2]
    row = str(first["rows"] + 1)
    by_artifact = cli("trace", f"build-instances:{row}", *store)
    by_shard = cli("trace", f"build-instances:{second['path']}:1", *store)
    assert by_artifact.code == 0
    assert by_artifact.out == by_shard.out
    total = sum(shard["rows"] for shard in shards)
    assert cli("trace", f"build-instances:{total - 1}", *store).code == 0
    result = cli("trace", f"build-instances:{total}", *store)
    assert result.code == 1
    assert f"{total:,}" in result.err


BASIC = {"pyarrow", "numpy", "pydantic", "yaml", "flows.cli.run"}
HEAVY = {
    "apache_beam",
    "httpx",
    "matplotlib",
    "openlineage",
    "prefect",
    "scipy",
    "sklearn",
    "torch",
}


def test_commands_do_not_load_heavy_libraries(corpus: Path) -> None:
    absent = {  # in an order in which no command loads what a later one must not
        "--help": HEAVY | BASIC,
        "plan recipe.yaml": HEAVY | {"networkx"},
        "lineage build-tokens --json --store store": HEAVY | {"jinja2"},
        "head build-tokens --store store": HEAVY,
        "run recipe.yaml --engine local": HEAVY,  # all steps are cached
    }
    loaded = modules_loaded_by(*absent, folder=corpus)
    for (command, names), modules in zip(absent.items(), loaded, strict=True):
        assert "flows.cli.app" in modules
        assert modules & names == set(), command
