"""A corpus whose dump changed in one part is rebuilt: reused work items and log lines."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from support.corpus_builder import small_sample

from benchmarks.dump_parts import change_part, write_parts
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
from schemas.corpus_configs import (
    DocumentsConfig,
    InstancesConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.recipe import Recipe

pytestmark = pytest.mark.slow


def run(recipe: Recipe, *, rebuild: tuple[str, ...] = ()) -> tuple[list[float], list[str], str]:
    """Run a recipe; return the reused share of each step, the log and the content digests."""
    log: list[str] = []
    results = run_recipe(recipe, log=log.append, engine="local", rebuild=rebuild)
    reuses = [result.manifest.produced_by.reuse for result in results if not result.was_cached]
    shares = [reuse.weight_reused / reuse.weight for reuse in reuses if reuse is not None]
    digests = "\n".join(result.manifest.content_digest for result in results)
    return shares, log, digests


def test_only_splits_of_changed_part_are_built_again(tmp_path: Path) -> None:
    parts = write_parts(small_sample(tmp_path / "raw"), tmp_path / "parts", parts=5)
    source = WikipediaSource(
        name="samplewiki", paths=(str(tmp_path / "parts/*.bz2"),), target_split_bytes=1 << 20
    )
    letters = [mark + letter for mark in ("", "##") for letter in string.ascii_lowercase]
    vocab = tmp_path / "vocab.txt"
    vocab.write_text(vocab_text([*FIXED_TOKENS, *letters]), encoding="utf-8")
    recipe = Recipe(
        name="parts",
        store=str(tmp_path / "store"),
        build_documents=DocumentsConfig(sources=(source,)),
        build_vocabulary=VocabularyConfig(vocab_file=str(vocab)),
        build_instances={"short": InstancesConfig(max_seq_length=64, negative_pool_bytes=1024)},
    )
    shares, log, _ = run(recipe)
    assert shares == [0.0] * 3
    assert not any("reused" in line for line in log)
    change_part(parts[2])
    shares, log, contents = run(recipe)
    assert [share > 0.5 for share in shares] == [True] * 3
    assert "4 of 5 work items reused" in log[0]
    shares, log, _ = run(recipe)
    assert shares == []
    assert not any("reused" in line for line in log)
    # A requested rebuild reuses nothing and builds equal contents, as does another store.
    assert run(recipe, rebuild=("all",))[::2] == ([0.0] * 3, contents)
    store, execution = str(tmp_path / "other"), ExecutionConfig(workers=2)
    elsewhere = recipe.model_copy(update={"store": store, "execution": execution})
    assert run(elsewhere)[2] == contents
    assert ArtifactStore(store).ref("parts/build-documents")
