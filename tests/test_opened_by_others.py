"""Artifacts opened as data sets by other people's tools, the way that comes to mind first."""

from __future__ import annotations

from pathlib import Path

import datasets
import pyarrow.dataset
import pytest
from corpus_runs import small_recipe, small_sample

from flows.bert import run_recipe
from flows.lineage.names import artifact_of_file
from flows.store.artifacts import ArtifactStore
from flows.store.verification import verify
from schemas.manifest import Manifest

STEPS = ("build-documents", "build-tokens", "build-instances.length-64")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    folder = tmp_path_factory.mktemp("opened")
    recipe = small_recipe(small_sample(folder / "sample"))
    recipe = recipe.model_copy(update={"store": str(folder / "store")})
    run_recipe(recipe, say=lambda _: None, engine="local")
    return ArtifactStore(recipe.store)


def artifact(corpus: ArtifactStore, step: str) -> tuple[Manifest, Path]:
    pointer = corpus.ref(f"test/{step}")
    assert pointer is not None
    manifest = corpus.read_manifest(pointer.manifest)
    return manifest, Path(corpus.url(manifest.data))


def training_rows(manifest: Manifest) -> int:
    """Of the artifact's own table, without what is held out and what is said of duplicates."""
    return sum(entry.rows or 0 for entry in manifest.files if entry.path.startswith("part-"))


@pytest.mark.parametrize("step", STEPS)
def test_a_folder_opened_with_pyarrow_has_the_training_rows(
    corpus: ArtifactStore, step: str
) -> None:
    manifest, folder = artifact(corpus, step)
    opened = pyarrow.dataset.dataset(folder, format="ipc")
    assert opened.count_rows() == training_rows(manifest) > 50
    assert len(manifest.files) > len(opened.files) or step == "build-tokens"


@pytest.mark.parametrize("step", STEPS)
def test_a_folder_opened_with_datasets_has_the_training_rows(
    corpus: ArtifactStore, step: str, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, step)
    opened = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    assert {name: part.num_rows for name, part in opened.items()} == {
        "train": training_rows(manifest)
    }


def test_no_held_out_instance_is_among_the_rows_opened(corpus: ArtifactStore) -> None:
    manifest, folder = artifact(corpus, STEPS[2])
    beside = [entry for entry in manifest.files if entry.statistics["part"] == "held-out"]
    assert sum(entry.rows or 0 for entry in beside) > 10
    opened = pyarrow.dataset.dataset(folder, format="ipc").to_table().to_pylist()
    told = {(str(row["input_ids"]), str(row["masked_lm_positions"])) for row in opened}
    for entry in beside:
        [url] = [folder / entry.object]
        rows = pyarrow.dataset.dataset(url, format="ipc").to_table().to_pylist()
        found = {(str(row["input_ids"]), str(row["masked_lm_positions"])) for row in rows}
        assert not found & told
        # A file one folder deeper is known as a part of its artifact all the same.
        known = artifact_of_file(str(url))
        assert known is not None
        assert known[2] == entry


def test_what_a_repeated_worker_left_is_gone_once_an_artifact_is_published(
    corpus: ArtifactStore, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, STEPS[2])
    store = ArtifactStore(str(tmp_path / "store"))
    attempt = store.begin(manifest.stage)
    output = Path(attempt.output)
    for entry in manifest.files:
        (output / entry.object).parent.mkdir(exist_ok=True)
        (output / entry.object).write_bytes((folder / entry.object).read_bytes())
    first = manifest.files[0]
    (output / "part-00000-pass-00-0123456789ab.arrow").write_bytes(
        (folder / first.object).read_bytes()
    )
    update = {"artifact_id": attempt.artifact_id, "location": attempt.location}
    store.commit(manifest.model_copy(update=update))
    opened = pyarrow.dataset.dataset(output, format="ipc")
    assert opened.count_rows() == training_rows(manifest)
    assert {entry.object for entry in manifest.files} == store.backend.sizes(
        f"{attempt.location}/data"
    ).keys()


def test_verify_finds_damage_in_the_folders_beside(corpus: ArtifactStore) -> None:
    for step, name in ((STEPS[0], "__duplicates__/"), (STEPS[2], "__held-out__/")):
        manifest, folder = artifact(corpus, step)
        [entry, *_] = [entry for entry in manifest.files if entry.path.startswith(name)]
        path = folder / entry.object
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        try:
            told = {
                text
                for verdict in verify(corpus, list(corpus.pointers()))
                for text in verdict.problems
            }
            assert any(text.startswith(f"{entry.path}: expected sha256") for text in told)
        finally:
            path.write_bytes(kept)
