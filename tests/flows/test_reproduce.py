"""`bertloom reproduce`: an artifact is built again in another store, and every step is compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.tiny_recipe import RECIPE, TEXTS

import bertloom
from flows.reproduce import reproduce
from flows.store.artifacts import ArtifactStore
from flows.store.runs import record_path, run_ids
from schemas.errors import ArtifactNotFoundError, BertloomError, ConfigError, InputError
from schemas.json_files import dump_json

LABELS = ["build-documents", "build-vocabulary", "build-tokens", "build-instances.length-32"]
SWEEP = """
sweep:
  length: {variants: {short: {}, shorter: {build_instances.length-32.max_seq_length: 24}}}
"""


def run_recipe(folder: Path, text: str, *, until: str = "") -> ArtifactStore:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    bertloom.run(str(path), until=until)
    return ArtifactStore(bertloom.load_recipe(str(path)).store)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the texts `raw/`, a store of one run, and `records/`: the store without data."""
    folder = tmp_path_factory.mktemp("original $5")  # `$` starts a variable in recipes
    (folder / "raw").mkdir()
    for number, text in enumerate(TEXTS):
        (folder / "raw" / f"{number}.txt").write_text(text, encoding="utf-8")
    text = RECIPE.replace("[texts.txt]", "[raw]").format(store="store")
    run_recipe(folder, text + SWEEP)
    shutil.copytree(folder / "store", folder / "records", ignore=shutil.ignore_patterns("data"))
    return folder


@pytest.fixture(scope="module")
def again(original: Path) -> str:
    """Another store, in which the last step was reproduced."""
    store = ArtifactStore(str(original / "store"))
    assert reproduce("tiny/build-instances.length-32", store=store, into=f"{original}/again").steps
    return f"{original}/again"


@pytest.fixture
def copy(original: Path, again: str, tmp_path: Path) -> Path:
    """Copy of the folder and its stores in another place."""
    assert again
    return Path(shutil.copytree(original, tmp_path / "copy"))


def moved_files(folder: Path) -> list[str]:
    return [f"build_documents.sources.own.paths=[{folder / 'raw'}]"]


def test_reproduction_is_equal_and_builds_nothing_else(
    cli: Cli, original: Path, again: str
) -> None:
    stores = ("--into", again, "--store", str(original / "store"))
    result = cli("reproduce", "tiny/build-instances.length-32", *stores, "--json")
    assert result.code == 0, result.err
    comparison = json.loads(result.out)
    assert comparison["is_equal"]
    assert [step["label"] for step in comparison["steps"]] == LABELS
    assert all(step["content"] == step["expected"] for step in comparison["steps"])
    assert "tiny/build-instances.length-32.shorter" in ArtifactStore(str(original / "store")).refs()
    assert len(ArtifactStore(again).pointers()) == len(LABELS)


def test_metric_is_compared(original: Path, again: str) -> None:
    store = ArtifactStore(str(original / "store"))
    result = reproduce("build-vocabulary:vocab_size", store=store, into=again)
    assert result.metrics == {"vocab_size": (150, 150)}
    assert any("vocab_size" in line for line in result.lines())


def test_records_and_moved_raw_files_are_enough(copy: Path, again: str) -> None:
    overrides = moved_files(copy)
    store = ArtifactStore(str(copy / "records"))
    assert reproduce("build-tokens", store=store, into=again, overrides=overrides).is_equal


def test_first_difference_has_its_changes(cli: Cli, copy: Path) -> None:
    stores = ("--into", str(copy / "again"), "--store", str(copy / "store"))
    changed = ("--set", "build_vocabulary.vocab_size=160")
    result = cli("reproduce", "build-tokens", *stores, *changed, "--json")
    assert result.code == 1
    steps = json.loads(result.out)["steps"]
    assert [step["is_equal"] for step in steps] == [True, False, False]
    assert steps[1]["changes"] == ["vocab_size 150 -> 160"]
    lines = cli("reproduce", "build-tokens", *stores, *changed).out.splitlines()
    [explanation] = [line for line in lines if "vocab_size" in line]
    assert "build-vocabulary" in explanation


def edit_manifest(store: ArtifactStore, ref: str, **fields: Any) -> None:
    pointer = store.ref(ref)
    assert pointer is not None
    manifest = store.read_manifest(pointer.manifest).model_copy(update=fields)
    store.backend.replace(pointer.manifest, dump_json(manifest.model_dump(mode="json")))


def test_other_code_and_versions_are_named(copy: Path, again: str) -> None:
    store = ArtifactStore(str(copy / "records"))
    pointer = store.ref("tiny/build-tokens")
    assert pointer is not None
    manifest = store.read_manifest(pointer.manifest)
    key, environment = manifest.cache_key_inputs, manifest.environment
    edit_manifest(
        store, "tiny/build-tokens",
        content_digest="sha256:" + "0" * 64,
        cache_key_inputs={**key, "environment": {**key["environment"], "tokenizers": "0.1"}},
        produced_by=manifest.produced_by.model_copy(update={"git_commit": "0" * 40}),
        environment=environment.model_copy(
            update={"python": "3.0.1", "packages": {**environment.packages, "pluggy": "0.2"}}
        ),
    )  # fmt: skip
    overrides = moved_files(copy)
    name = "tiny/build-instances.length-32"
    result = reproduce(name, store=store, into=again, overrides=overrides)
    assert [step.is_equal for step in result.steps] == [True, True, False, True]
    changes = result.steps[2].changes
    for start in ("environment.tokenizers 0.1 ->", f"git_commit {'0' * 40} ->", "python 3.0.1 ->"):
        assert any(change.startswith(start) for change in changes), start
    assert [change for change in changes if "packages" in change] == [
        f"packages.pluggy 0.2 -> {environment.packages['pluggy']}"
    ]
    assert all(step.changes == [] for step in result.steps if step.is_equal)


@pytest.mark.parametrize("change", ["gone", "changed", "new", "folder"])
def test_other_raw_file_is_named_before_anything_runs(
    copy: Path, tmp_path: Path, change: str
) -> None:
    path = copy / "raw" / "3.txt"
    if change == "gone":
        path.unlink()
    elif change == "changed":
        path.write_text("Another text.", encoding="utf-8")
    elif change == "new":
        path = path.with_name("new.txt")
        path.write_text("A new text.", encoding="utf-8")
    else:
        path = path.parent
        shutil.rmtree(path)
    store = ArtifactStore(str(copy / "records"))
    with pytest.raises(BertloomError) as caught:
        reproduce(
            "build-tokens", store=store, into=f"{tmp_path}/again", overrides=moved_files(copy)
        )
    assert str(path) in str(caught.value) or path.name in str(caught.value)
    assert not (tmp_path / "again").exists()


def test_all_changed_files_are_named(copy: Path, tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (copy / "raw" / name).write_text(f"Another text {name}.", encoding="utf-8")
    store = ArtifactStore(str(copy / "records"))
    with pytest.raises(ConfigError) as caught:
        reproduce(
            "build-tokens", store=store, into=f"{tmp_path}/again", overrides=moved_files(copy)
        )
    assert all(name in str(caught.value) for name in ("1.txt", "2.txt"))
    assert "3.txt" not in str(caught.value)


@pytest.mark.parametrize("folder", ["store", "records"])
def test_store_with_the_original_is_refused(original: Path, folder: str) -> None:
    store = ArtifactStore(str(original / "store"))
    with pytest.raises(ConfigError, match=folder):
        reproduce("build-tokens", store=store, into=str(original / folder))


def test_artifact_needs_the_record_of_any_run_with_it(copy: Path, again: str) -> None:
    store = ArtifactStore(str(copy / "store"))
    bertloom.run(str(copy / "recipe.yaml"), until="build-documents")
    first, second = run_ids(store)
    store.backend.delete(record_path(first))
    assert reproduce("build-documents", store=store, into=again).is_equal
    with pytest.raises(ArtifactNotFoundError):
        reproduce("build-tokens", store=store, into=again)
    store.backend.replace(record_path(second), b"damaged")
    later = ArtifactStore(str(copy / "store"))  # the first one keeps the records that it has read
    with pytest.raises(ArtifactNotFoundError):
        reproduce("build-documents", store=later, into=again)


def test_only_one_artifact_is_reproduced(original: Path, tmp_path: Path) -> None:
    store = ArtifactStore(str(original / "store"))
    with pytest.raises(ArtifactNotFoundError):
        reproduce("3.txt", store=store, into=f"{tmp_path}/again")


def test_vocabulary_of_another_store_is_read_from_there(copy: Path, again: str) -> None:
    vocabulary = bertloom.open_store(again).artifact("build-vocabulary")
    recipe = (copy / "recipe.yaml").read_text(encoding="utf-8").replace(SWEEP, "")
    reused = str(vocabulary.file("vocab.txt")).replace("$", "$$")
    recipe = recipe.replace("{vocab_size: 150, min_frequency: 1}", f'{{vocab_file: "{reused}"}}')
    store = run_recipe(copy, recipe, until="build-vocabulary")
    assert reproduce("build-vocabulary", store=store, into=str(copy / "again")).is_equal
    manifest = bertloom.open_store(str(copy / "again")).artifact("build-vocabulary").manifest
    assert vocabulary.id in [ref.artifact_id for ref in manifest.inputs]
    assert manifest.raw_inputs[0].uri.endswith(str(vocabulary.file("vocab.txt")))


TASK_RECIPE = """\
name: tasks
store: store
build_examples: {cola: {task: cola, data_dir: cola}}
"""


def test_task_files_and_their_neighbors_are_compared(tmp_path: Path) -> None:
    (tmp_path / "cola").mkdir()
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        rows = [f"x\t{number % 2}\t\tThe goose of {name} flew." for number in range(4)]
        (tmp_path / "cola" / name).write_text("\n".join(rows), encoding="utf-8")
    label = tmp_path / "cola" / "data-label.txt"
    label.write_text("generated, as a trial", encoding="utf-8")
    store = run_recipe(tmp_path, TASK_RECIPE)
    assert reproduce("build-examples.cola", store=store, into=f"{tmp_path}/again").is_equal
    label.unlink()
    with pytest.raises(InputError, match=str(label)):
        reproduce("build-examples.cola", store=store, into=f"{tmp_path}/third")


BOOKS = {
    "shelf/ferry.txt": "The ferryman kept a lantern in the window. Nobody knew who had lit it.",
    "shelf/sea/salt.txt": "The ship carried salt to the east. It came back with tea and a sailor.",
    "other/ferry.txt": "The ferry sank in the spring. The people crossed by the new bridge.",
}
BOOK_RECIPE = """\
name: books
store: store
build_documents:
  sources: [{kind: books, name: own, language: en, paths: [shelf, other]}]
"""


def test_loose_books_of_one_name_are_traced_and_reproduced(cli: Cli, tmp_path: Path) -> None:
    for name, text in BOOKS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    store = run_recipe(tmp_path, BOOK_RECIPE, until="build-documents")
    texts = {}
    for row in range(len(BOOKS)):
        result = cli("trace", f"build-documents:{row}", "--raw", "--json", "--store", store.root)
        document = json.loads(result.out)["segments"]["document"]
        texts[document["raw_file"]["uri"]] = document["raw"]["text"].strip()
    assert texts == {str(tmp_path / name): text for name, text in BOOKS.items()}
    for path in texts:
        assert "build-documents" in cli("lineage", path, "--store", store.root).out
    assert reproduce("build-documents", store=store, into=f"{tmp_path}/again").is_equal
