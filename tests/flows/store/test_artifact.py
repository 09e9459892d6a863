"""`Artifact` compares the digest of each file before its first use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.corpus_builder import small_recipe
from support.store_builder import damage, describe, file_of, input_from, published

import bertloom
from flows.running import run_recipe
from flows.sample import write_sample
from flows.store.artifacts import ArtifactStore
from model.training.artifact_files import write_file
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError


def test_artifact_opens_its_files(any_store: ArtifactStore) -> None:
    manifest = published(any_store, "one")
    any_store.set_ref("fake/tokens", manifest)
    for source in ("fake/tokens", manifest):
        artifact = any_store.artifact(source)
        with artifact.open("vocab.txt") as file:
            assert file.read() == b"one"
    assert artifact.files == ("vocab.txt",)
    with pytest.raises(ArtifactNotFoundError):
        artifact.open("other.txt")
    with pytest.raises(ArtifactNotFoundError):
        any_store.artifact("fake/other")


def test_artifact_returns_its_inputs(any_store: ArtifactStore) -> None:
    source = published(any_store)
    product = any_store.artifact(published(any_store, "two", **input_from(source)))
    assert product.upstream()["documents"].manifest == source
    assert product.input("vocabulary") is None


@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_corrupt_file_is_an_error(
    any_store: ArtifactStore, is_missing: bool, is_known: bool
) -> None:
    manifest = published(any_store, "one")
    artifact = any_store.artifact(manifest)
    if is_known:
        artifact.url("vocab.txt")
    if is_missing:
        any_store.backend.delete(file_of(any_store, manifest))
    else:
        damage(any_store, manifest, b"onf")
    for use in (artifact.open, artifact.url, lambda _: artifact.folder()):
        with pytest.raises(ArtifactCorruptError, match=manifest.files[0].stored_name):
            use("vocab.txt")
    assert artifact.folder(exclude=("vocab.txt",)) == any_store.url(manifest.data_path)


def test_file_is_digested_once(store: ArtifactStore) -> None:
    manifest = published(store, "one")
    path = Path(store.artifact(manifest).url("vocab.txt"))
    path.chmod(0)  # digesting it again is an error for every user but root
    assert store.artifact(manifest).url("vocab.txt") == str(path)


# Commands


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    folder = tmp_path_factory.mktemp("corpus")
    sample = write_sample(str(folder / "sample"), articles=30, tales=1, pages_per_stream=20)
    recipe = small_recipe(sample).model_copy(update={"store": f"{folder}/store"})
    run_recipe(recipe, log=lambda _: None, engine="local")
    return ArtifactStore(recipe.store)


@pytest.fixture
def copied(corpus: ArtifactStore, tmp_path: Path) -> ArtifactStore:
    shutil.copytree(corpus.root, tmp_path / "copy")
    return ArtifactStore(str(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("command", "name", "stage"),
    [
        (("head", "build-tokens"), "part-00000.arrow", "build-tokens"),
        (("head", "build-tokens"), "vocab.txt", "build-vocabulary"),
        (("trace", "build-tokens:0:0"), "part-00000.arrow", "build-tokens"),
    ],
)
def test_command_shows_no_rows_of_corrupt_artifact(
    copied: ArtifactStore, cli: Cli, command: tuple[str, str], name: str, stage: str
) -> None:
    manifest = copied.read_manifest(copied.pointers(stage)[0].manifest)
    entry = manifest.file(name)
    assert entry is not None
    path = Path(copied.url(f"{manifest.data_path}/{entry.stored_name}"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    result = cli(*command, "--store", copied.root)
    assert (result.code, entry.stored_name in result.err) == (1, True), result


def test_library_reads_no_corrupt_rows(copied: ArtifactStore) -> None:
    artifact = bertloom.open_store(copied.root).artifact("build-tokens")
    entry = artifact.manifest.shards[0]
    Path(copied.url(f"{artifact.manifest.data_path}/{entry.stored_name}")).write_bytes(
        b"x" * entry.size_bytes
    )
    for read in (artifact.dataset, artifact.path, lambda: artifact.file(entry.path)):
        with pytest.raises(ArtifactCorruptError, match=entry.stored_name):
            read()


@pytest.mark.parametrize("is_path", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        ("fill", "a [MASK]", "--model", "MODEL"),
        ("predict", "MODEL", "a"),
        ("finetune", "sst-2", "--data-dir", "x", "--checkpoint", "MODEL"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_uses_no_corrupt_model(
    store: ArtifactStore, cli: Cli, arguments: tuple[str, ...], is_path: bool
) -> None:
    attempt = store.begin("pretrain")
    names = ("config.json", "model.safetensors", "optimizer.safetensors")
    files = [write_file(name, [b"{}"], output=attempt.output) for name in names]
    manifest = store.commit(describe(attempt, files, stage="pretrain")).manifest
    weights = Path(attempt.output, "model.safetensors")
    weights.write_bytes(b"[]")
    model = attempt.output if is_path else manifest.artifact_id
    command = [model if argument == "MODEL" else argument for argument in arguments]
    result = cli(*command, "--store", store.root)
    assert (result.code, str(weights) in result.err) == (1, True), result
