"""A corpus whose dump changed in one part is rebuilt: reused work items and log lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.corpus_builder import small_sample

from benchmarks.dump_parts import change_part, write_parts
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from schemas.corpus_configs import (
    DocumentsConfig,
    InstancesConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.recipe import Recipe

pytestmark = pytest.mark.slow


def run(recipe: Recipe, *, rebuild: tuple[str, ...] = ()) -> tuple[list[StepResult], list[str]]:
    lines: list[str] = []
    return run_recipe(recipe, log=lines.append, engine="local", rebuild=rebuild), lines


def reused(result: StepResult) -> float:
    reuse = result.manifest.produced_by.reuse
    assert reuse is not None
    return reuse.weight_reused / reuse.weight


def test_only_splits_of_changed_part_are_built_again(tmp_path: Path) -> None:
    parts = write_parts(small_sample(tmp_path / "raw"), tmp_path / "parts", parts=5)
    source = WikipediaSource(
        name="samplewiki", paths=(str(tmp_path / "parts/*.bz2"),), target_split_bytes=1 << 20
    )
    recipe = Recipe(
        name="parts",
        store=str(tmp_path / "store"),
        build_documents=DocumentsConfig(sources=(source,)),
        build_vocabulary=VocabularyConfig(vocab_size=400),
        build_instances={"short": InstancesConfig(max_seq_length=64, negative_pool_bytes=1024)},
    )
    first, lines = run(recipe)
    assert [reused(result) for result in first] == [0.0] * 4
    assert not any("reused" in line for line in lines)
    change_part(parts[2])
    second, lines = run(recipe)
    documents = second[0]
    assert not documents.was_cached
    assert reused(documents) > 0.7
    assert "4 of 5 work items reused" in lines[0]
    again, lines = run(recipe)
    assert all(result.was_cached for result in again)
    assert not any("reused" in line for line in lines)
    # A requested rebuild reuses nothing and builds equal contents.
    rebuilt, _ = run(recipe, rebuild=("all",))
    assert [reused(result) for result in rebuilt] == [0.0] * 4
    contents = [result.manifest.content_digest for result in second]
    assert [result.manifest.content_digest for result in rebuilt] == contents
    elsewhere, _ = run(recipe.model_copy(update={"store": str(tmp_path / "other")}))
    assert [result.manifest.content_digest for result in elsewhere] == contents
    store = ArtifactStore(recipe.store)
    assert store.ref("parts/build-documents").artifact_id == rebuilt[0].manifest.artifact_id
