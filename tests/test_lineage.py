"""Lineage leads from the last artifact to the raw files."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_runs import small_recipe, small_sample

from flows.artifacts import ArtifactStore
from flows.engines import run_recipe
from flows.lineage import lineage_lines, upstream
from schemas.errors import ArtifactNotFoundError
from schemas.recipe import Recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, ArtifactStore]:
    folder = tmp_path_factory.mktemp("lineage")
    recipe = small_recipe(small_sample(folder / "sample")).model_copy(
        update={"store": str(folder / "store")}
    )
    run_recipe(recipe, say=lambda _: None, engine="local")
    return recipe, ArtifactStore(recipe.store)


def test_the_tree_ends_at_the_raw_files(run: tuple[Recipe, ArtifactStore]) -> None:
    recipe, store = run
    pointer = store.ref(f"{recipe.name}/build-instances.length-64")
    assert pointer is not None
    manifest = store.read_manifest(pointer.manifest)
    lines = lineage_lines(manifest, store=store)
    assert lines[0].startswith(f"build-instances {manifest.artifact_id}: ")
    text = "\n".join(lines)
    for stage in ("build-tokens", "build-vocabulary", "build-documents"):
        assert stage in text
    assert "samplewiki-20260101-pages-articles-multistream.xml.bz2" in text
    assert "verified sha1" in text
    assert "books.tar.gz" in text
    assert text.count("books.tar.gz") == 1  # a part that two ways lead to is shown once
    assert "(as above)" in text
    root = upstream(manifest, store=store)
    assert {parent.manifest.stage for parent in root.inputs} == {"build-tokens", "build-vocabulary"}


def test_a_lost_ancestor_is_named(run: tuple[Recipe, ArtifactStore]) -> None:
    recipe, store = run
    pointer = store.ref(f"{recipe.name}/build-tokens")
    assert pointer is not None
    manifest = store.read_manifest(pointer.manifest)
    path = Path(store.root) / manifest.inputs[0].manifest
    kept = path.read_bytes()
    path.unlink()
    try:
        with pytest.raises(ArtifactNotFoundError, match=r"manifest\.json"):
            lineage_lines(manifest, store=store)
    finally:
        path.write_bytes(kept)
