"""Names of artifacts and metrics: refs, parts of publications, ids, stages and paths."""

from __future__ import annotations

import pytest
from support.lineage_builder import put, put_recipe

from flows.lineage.resolve import resolve, resolve_name
from flows.store.artifact_paths import artifact_of_path
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import pointer_to
from schemas.errors import ArtifactNotFoundError


@pytest.mark.parametrize(
    "name",
    [
        "mine/build-tokens",
        "build-tokens",
        "{artifact_id}",
        "{artifact_id:.6}",
        "{cache_key}",
        "sha256:{cache_key:.12}",
        "{content_digest}",
        "{content_digest:.23}",
        "{folder}",
        "{folder}/manifest.json",
        "{folder}/data/{file}",
        "file://{folder}",
    ],
)
def test_names_of_an_artifact(store: ArtifactStore, name: str) -> None:
    manifest = put_recipe(store)["build-tokens"]
    folder, file = f"{store.root}/{manifest.artifact_path}", manifest.files[0].stored_name
    text = name.format(**manifest.model_dump(), folder=folder, file=file)
    assert resolve(text, store=store) == manifest
    if text.startswith("/"):
        artifact = artifact_of_path(text)
        assert artifact is not None
        assert artifact.store.root == store.root


def test_metric_of_artifact_by_content(store: ArtifactStore) -> None:
    scores = {
        "baseline": {"dev": {"entity-f1": 0.0}},
        "metrics": {"dev": {"entity-f1": 0.5, "entity-f1:LOC": 0.25}},
    }
    put(store, "evaluate", key="old", text="same", statistics=scores)
    newest = put(store, "evaluate", key="new", text="same", statistics=scores)
    assert resolve("evaluate", store=store) == newest
    digits = newest.content_digest.removeprefix("sha256:")[:16]
    for name, value in (("dev.entity-f1", 0.5), ("dev.entity-f1:LOC", 0.25)):
        resolved = resolve_name(f"{digits}:{name}", store=store)
        assert resolved.manifest == newest
        assert [(one.name, one.value) for one in resolved.metrics] == [(f"metrics.{name}", value)]


def test_publication_and_its_parts(store: ArtifactStore) -> None:
    made = put_recipe(store)
    parts = {label: one.manifest_path for label, one in made.items()}
    pointer = pointer_to(made["build-tokens"]).model_copy(update={"parts": parts})
    store.swap_ref("corpus/tiny/latest", pointer, expected=None)
    assert resolve("corpus/tiny/latest", store=store) == made["build-tokens"]
    for label, one in made.items():
        assert resolve(f"corpus/tiny/latest/{label}", store=store) == one
    with pytest.raises(ArtifactNotFoundError) as error:
        resolve("corpus/tiny/latest/build-instance", store=store)
    assert "'build-instances.short'" in str(error.value)


def test_ambiguous_prefix_is_an_error_that_lists_the_artifacts(store: ArtifactStore) -> None:
    made = [
        put(store, "s", key=str(number), artifact_id=f"abcd{number:012}") for number in range(3)
    ]
    with pytest.raises(ArtifactNotFoundError) as error:
        resolve("abcd", store=store)
    assert all(one.artifact_id in str(error.value) for one in made)
    assert resolve("abcd000000000002", store=store) == made[2]


def test_unknown_name_lists_a_few_similar_names(store: ArtifactStore) -> None:
    made = put_recipe(store, runs=30)
    for number in range(40):
        store.set_ref(f"other-{number}/x", made["build-documents"])
    with pytest.raises(ArtifactNotFoundError) as error:
        resolve("mine/finetune.colo", store=store)
    text = str(error.value)
    assert "mine/finetune.cola.TRIAL" in text
    assert "mine/evaluate.cola" in text
    assert len(text) < 700


@pytest.mark.parametrize("text", ["../../etc", "", "x//y", "s3x://nowhere/at"])
def test_invalid_names_are_not_found(store: ArtifactStore, text: str) -> None:
    with pytest.raises(ArtifactNotFoundError):
        resolve(text, store=store)
