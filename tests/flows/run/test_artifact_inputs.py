"""Artifacts that a step reads by path are inputs, in their own or in another store."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_runner import Cli
from support.fake_stages import FakeStages
from support.finetuning_builder import VOCAB, text_rows, write_checkpoint
from support.lineage_builder import put, raw_file
from support.store_builder import describe

from flows.cards.cards import card_of
from flows.lineage.queries import lineage
from flows.lineage.resolve import resolve
from flows.recipes.loader import load_recipe
from flows.run.artifact_inputs import find_artifact_files, input_ref
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.gc_roots import scan_store
from flows.store.verification import verify
from pipelines.io.file_systems import file_system
from pipelines.io.files import write_text_file
from pipelines.vocabulary.raw_inputs import raw_inputs
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import DocumentsConfig, TextSource, VocabularyConfig
from schemas.manifest import FileEntry, Manifest
from schemas.publish_configs import CardsConfig

CORPUS = raw_file("corpus.txt")


@pytest.fixture(params=["folder", "memory", "bucket"])
def any_root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Root of a store that does not exist."""
    if request.param == "bucket":
        return f"{request.getfixturevalue('bucket')}/models/store"
    name = f"{tmp_path.name}/other"
    return str(tmp_path / "other") if request.param == "folder" else f"memory://{name}"


def put_vocabulary(store: ArtifactStore) -> Manifest:
    """Publish the vocabulary of a corpus as `first/build-vocabulary`."""
    documents = put(store, "build-documents", raw=[CORPUS])
    attempt = store.begin("build-vocabulary")
    text = "".join(f"{token}\n" for token in VOCAB)
    entry = write_text_file(VOCAB_FILE, text, output=attempt.output)
    inputs = (input_ref("documents", documents),)
    fields: dict[str, Any] = {"stage": "build-vocabulary", "inputs": inputs}
    manifest = store.commit(describe(attempt, [entry], **fields)).manifest
    store.set_ref("first/build-vocabulary", manifest)
    return manifest


def put_pretrained(store: ArtifactStore, folder: Path) -> Manifest:
    """Publish a model that was pretrained on a corpus as `first/pretrain.one`."""
    documents = put(store, "build-documents", raw=[CORPUS])
    attempt = store.begin("pretrain")
    fs, output = file_system(attempt.output)
    files = []
    for path in sorted(Path(write_checkpoint(folder)).iterdir()):
        fs.pipe_file(f"{output}/{path.name}", path.read_bytes())
        entry = FileEntry.model_validate(
            {"path": path.name, "stored_name": path.name, "size_bytes": path.stat().st_size}
            | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        )
        files.append(entry)
    fields: dict[str, Any] = {
        "stage": "pretrain",
        "inputs": (input_ref("documents", documents),),
        "counters": {"steps": 70, "tokens": 3000},
        "statistics": {"objective": "mlm", "max_seq_length": 32, "held_out": {}},
    }
    manifest = store.commit(describe(attempt, files, **fields)).manifest
    store.set_ref("first/pretrain.one", manifest)
    return manifest


def file_url(store: ArtifactStore, manifest: Manifest, path: str) -> str:
    entry = manifest.file(path)
    assert entry is not None
    return store.url(f"{manifest.data_path}/{entry.stored_name}")


def test_vocabulary_in_artifact_is_input(any_root: str, tmp_path: Path) -> None:
    store, other = ArtifactStore(str(tmp_path / "store")), ArtifactStore(any_root)
    manifest = put_vocabulary(other)
    config = VocabularyConfig(vocab_file=file_url(other, manifest, VOCAB_FILE))
    raw = raw_inputs(config)
    for reader, root in ((store, other.root), (other, "")):
        files = find_artifact_files(raw, config=config, store=reader)
        assert files.inputs == (input_ref("vocab_file", manifest, store=root),)
        assert [item.input_name for item in files.mark(raw)] == ["vocab_file"]
    copy = tmp_path / "vocab.txt"
    copy.write_text("".join(f"{token}\n" for token in VOCAB))
    outside = config.model_copy(update={"vocab_file": str(copy)})
    [copied] = raw_inputs(outside)
    assert copied.key_digest == raw[0].key_digest
    assert find_artifact_files([copied], config=outside, store=store).inputs == ()


def second_recipe(fakes: FakeStages, store: str, path: str) -> Any:
    """Return a recipe that reads a file of another recipe's artifact."""
    sources = (TextSource(name="mine", paths=(path,)),)
    return fakes.recipe(store, name="second", build_documents=DocumentsConfig(sources=sources))


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("is_same", [False, True])
def test_lineage_goes_through_artifact_that_is_read_by_path(
    fakes: FakeStages, tmp_path: Path, *, is_same: bool, is_linked: bool
) -> None:
    first = tmp_path / "first"
    root = str(first if is_same else tmp_path / "second")
    before = {r.label: r.manifest for r in run_recipe(fakes.recipe(str(first)), engine="local")}
    tokens = before["build-tokens"]
    path = file_url(ArtifactStore(str(first)), tokens, "part-00000.txt")
    if is_linked:
        (tmp_path / "link.txt").symlink_to(path)
        path = str(tmp_path / "link.txt")
    after = {
        r.label: r.manifest for r in run_recipe(second_recipe(fakes, root, path), engine="local")
    }
    documents, store = after["build-documents"], ArtifactStore(root)
    assert documents.inputs == (input_ref("files", tokens, store="" if is_same else str(first)),)
    upstream = lineage(store, documents.artifact_id).graph
    downstream = lineage(store, before["build-documents"].raw_inputs[0].sha256).graph
    assert upstream is not None
    assert downstream is not None
    assert before["build-documents"].artifact_id in upstream.nodes
    assert documents.raw_inputs[0].sha256 not in str(upstream.nodes.keys())
    assert after["build-instances.two"].artifact_id in downstream.nodes
    if is_same:
        by_artifact = lineage(store, tokens.artifact_id, direction="downstream").graph
        assert by_artifact is not None
        assert documents.artifact_id in by_artifact.nodes


def test_gc_retains_artifact_that_is_read_by_path(fakes: FakeStages, tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    first = {r.label: r.manifest for r in run_recipe(fakes.recipe(store.root), engine="local")}
    path = file_url(store, first["build-tokens"], "part-00000.txt")
    run_recipe(second_recipe(fakes, store.root, path), engine="local")
    for label in first:
        name = f"fake/{label}"
        pointer = store.ref(name)
        assert pointer is not None
        store.delete_ref(name, expected=pointer)
    shutil.rmtree(tmp_path / "store" / "runs")
    scan = scan_store(store, keep_runs=0, grace_seconds=-3600)
    retained = {label for label in first if first[label].artifact_path in scan.reachable}
    assert retained == {"build-documents", "build-vocabulary", "build-tokens"}


def test_deleted_other_store_ends_lineage_only(fakes: FakeStages, tmp_path: Path, cli: Cli) -> None:
    first, root = tmp_path / "first", str(tmp_path / "second")
    before = {r.label: r.manifest for r in run_recipe(fakes.recipe(str(first)), engine="local")}
    path = file_url(ArtifactStore(str(first)), before["build-tokens"], "part-00000.txt")
    run_recipe(second_recipe(fakes, root, path), engine="local")
    shutil.rmtree(first)
    store = ArtifactStore(root)
    graph = lineage(store, "second/build-documents").graph
    assert graph is not None
    node = graph.nodes[before["build-tokens"].artifact_id]
    assert node.manifest is None
    assert all(result.is_ok for result in verify(store, store.pointers()))


# Names of steps in recipes


def loaded(folder: Path, store: str, section: str, entry: Any) -> Any:
    recipe = {"name": "mine", "store": store, section: entry}
    if section == "finetune":
        recipe["build_examples"] = {"task": {"task": "sst-2", "data_dir": "SST-2"}}
    else:
        recipe["build_documents"] = {"sources": [{"name": "a", "kind": "text", "paths": ["a"]}]}
    file = folder / "recipes" / "mine.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(recipe))
    return load_recipe(str(file))


@pytest.mark.parametrize("form", ["{name}", "{root}/{name}"])
def test_name_of_step_is_path_of_its_artifact(any_root: str, tmp_path: Path, form: str) -> None:
    other = ArtifactStore(any_root)
    vocabulary, model = put_vocabulary(other), put_pretrained(other, tmp_path / "bert")
    store = other.root if form == "{name}" else str(tmp_path / "store")
    text = form.format(name="first/build-vocabulary", root=other.root)
    recipe = loaded(tmp_path, store, "build_vocabulary", {"vocab_file": text})
    assert recipe.build_vocabulary.vocab_file == file_url(other, vocabulary, VOCAB_FILE)
    entry = {
        "examples": "task",
        "init_checkpoint": form.format(name="first/pretrain.one", root=other.root),
    }
    recipe = loaded(tmp_path, store, "finetune", {"task": entry})
    assert recipe.finetune["task"].init_checkpoint == other.url(model.data_path)


def test_folder_named_like_a_step_is_a_folder(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    put_pretrained(store, tmp_path / "bert")
    folder = tmp_path / "recipes" / "first" / "pretrain.one"
    folder.mkdir(parents=True)
    entry = {"examples": "task", "init_checkpoint": "first/pretrain.one"}
    recipe = loaded(tmp_path, store.root, "finetune", {"task": entry})
    assert recipe.finetune["task"].init_checkpoint == str(folder)


@pytest.mark.parametrize("text", ["none/pretrain.one", "s3://no-such-bucket-at-all"])
def test_unknown_step_stays_a_path(tmp_path: Path, text: str) -> None:
    entry = {"examples": "task", "init_checkpoint": text}
    recipe = loaded(tmp_path, str(tmp_path / "no-store"), "finetune", {"task": entry})
    path = text if "://" in text else str(tmp_path / "recipes" / text)
    assert recipe.finetune["task"].init_checkpoint == path


# Fine-tuning


def write_task(folder: Path) -> None:
    folder.mkdir()
    for split in ("train", "dev"):
        rows = text_rows(16, split=split)
        lines = ["sentence\tlabel", *(f"{row['text_a']}\t{row['label']}" for row in rows)]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.usefixtures("one_worker")
@pytest.mark.parametrize("name", ["{id}", "{root}/first/pretrain.one"])
def test_fine_tuned_model_has_its_pretraining_as_input(tmp_path: Path, name: str, cli: Cli) -> None:
    is_other = name.startswith("{root}")
    store = ArtifactStore(str(tmp_path / "store"))
    other = ArtifactStore(str(tmp_path / "models")) if is_other else store
    model = put_pretrained(other, tmp_path / "bert")
    write_task(tmp_path / "SST-2")
    arguments = (
        "finetune", "sst-2", "--data-dir", str(tmp_path / "SST-2"), "--checkpoint",
        name.format(id=model.artifact_id, root=other.root), "--batch-size", "8",
        "--learning-rate", "1e-3", "--num-epochs", "1", "--max-seq-length", "32",
        "--store", store.root, "--name", "mine", "--engine", "local",
        "--set", "finetune.sst-2.num_threads=1",
    )  # fmt: skip
    assert cli(*arguments).code == 0
    evaluation = resolve("mine/evaluate.sst-2", store=store)
    [trial] = [ref for ref in evaluation.inputs if ref.stage == "finetune"]
    inputs = {ref.name: ref for ref in store.read_manifest(trial.manifest).inputs}
    root = other.root if is_other else ""
    assert inputs["init_checkpoint"] == input_ref("init_checkpoint", model, store=root)
    downstream = lineage(store, CORPUS.sha256, direction="downstream").graph
    assert downstream is not None
    assert evaluation.artifact_id in downstream.nodes
    card = card_of(evaluation, store=store, cards=CardsConfig())
    assert model.artifact_id in card
    assert "70 steps" in card
    assert "did not train" not in card
