"""Names of artifacts: refs, parts of publications, ids, stages, paths; and what is said if none."""

from __future__ import annotations

import pytest
from support.lineage_builder import put, put_recipe

from flows.lineage.resolve import artifact_of_path, resolve, resolve_name
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import pointer_to
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import Manifest


def _publish(store: ArtifactStore, made: dict[str, Manifest]) -> None:
    parts = {label: one.path for label, one in made.items()}
    pointer = pointer_to(made["build-tokens"]).model_copy(update={"parts": parts})
    store.swap_ref("corpus/tiny/latest", pointer, expected=None)


def test_every_way_to_name_one(store: ArtifactStore) -> None:
    made = put_recipe(store)
    wanted = made["build-tokens"]
    folder = f"{store.root}/{wanted.location}"
    for text in (
        "mine/build-tokens",
        wanted.artifact_id,
        wanted.artifact_id[:6],
        wanted.cache_key,
        f"sha256:{wanted.cache_key[:12]}",
        wanted.content,
        wanted.content.removeprefix("sha256:")[:16],
        "build-tokens",
        folder,
        f"{folder}/manifest.json",
        f"{folder}/data/{wanted.files[0].object}",
        f"file://{folder}",
    ):
        assert resolve(text, store=store) == wanted, text
    found = artifact_of_path(folder)
    assert found is not None
    assert found.store.root == store.root


def test_a_reference_of_tables_names_a_number_by_what_its_artifact_holds(
    store: ArtifactStore,
) -> None:
    scores = {
        "baseline": {"dev": {"entity-f1": 0.0}},
        "metrics": {"dev": {"entity-f1": 0.5, "entity-f1:LOC": 0.25}},
    }
    put(store, "evaluate", key="old", text="same", statistics=scores)
    newest = put(store, "evaluate", key="new", text="same", statistics=scores)
    digits = newest.content.removeprefix("sha256:")[:16]
    for name, value in (("dev.entity-f1", 0.5), ("dev.entity-f1:LOC", 0.25)):
        found = resolve_name(f"{digits}:{name}", store=store)
        assert found.manifest == newest
        assert [(one.name, one.value) for one in found.metrics] == [(f"metrics.{name}", value)]


def test_a_stage_is_its_newest_artifact(store: ArtifactStore) -> None:
    put(store, "s", key="old")
    newest = put(store, "s", key="new")
    assert resolve("s", store=store) == newest


def test_a_publication_and_its_parts(store: ArtifactStore) -> None:
    made = put_recipe(store)
    _publish(store, made)
    assert resolve("corpus/tiny/latest", store=store) == made["build-tokens"]
    for label, one in made.items():
        assert resolve(f"corpus/tiny/latest/{label}", store=store) == one


def test_a_part_that_a_publication_has_not(store: ArtifactStore) -> None:
    _publish(store, put_recipe(store))
    with pytest.raises(ArtifactNotFoundError, match="has no part 'build-instance'") as caught:
        resolve("corpus/tiny/latest/build-instance", store=store)
    assert "Did you mean 'build-instances.short'?" in str(caught.value)


def test_too_few_digits_name_several(store: ArtifactStore) -> None:
    made = [
        put(store, "s", key=str(number), artifact_id=f"abcd{number:012}") for number in range(3)
    ]
    with pytest.raises(ArtifactNotFoundError, match=r"'abcd' names 3 artifacts: .*more digits"):
        resolve("abcd", store=store)
    assert resolve("abcd000000000002", store=store) == made[2]


def test_names_in_an_error_are_few_and_like_the_text_and_in_order(store: ArtifactStore) -> None:
    made = put_recipe(store, runs=30)
    for number in range(40):
        store.set_ref(f"other-{number}/x", made["build-documents"])
    with pytest.raises(ArtifactNotFoundError) as caught:
        resolve("mine/finetune.colo", store=store)
    text = str(caught.value)
    listed = text.partition("one of the names ")[2].partition(" and ")
    names = listed[0].split(", ")
    assert "mine/finetune.cola.TRIAL" in names
    assert len(names) == 12
    assert names == sorted(names)
    assert listed[2].endswith(" more")
    assert "bs16-lr2e-05" not in listed[0]
    assert len(text) < 700


@pytest.mark.parametrize("text", ["../../etc", "a b", "", ".hidden", "x//y", "s3x://nowhere/at"])
def test_texts_that_name_nothing(store: ArtifactStore, text: str) -> None:
    with pytest.raises(ArtifactNotFoundError, match="which has none"):
        resolve(text, store=store)
