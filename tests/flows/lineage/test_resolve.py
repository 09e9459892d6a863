"""Names of artifacts and metrics: refs, parts of publications, ids, stages and paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lineage_builder import put, put_recipe, raw_file

from flows.lineage.queries import resolve_name
from flows.lineage.resolve import resolve
from flows.store.artifact_paths import artifact_of_path
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import pointer_to
from flows.store.runs import record_path
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
    assert "corpus/tiny/latest/build-instances.short" in str(error.value)


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
    assert "mine/finetune.cola" in text
    assert "mine/evaluate.cola" in text
    assert len(text) < 700


@pytest.mark.parametrize(
    ("text", "similar"),
    [
        ("evaluate.colla", "evaluate.cola"),
        ("build-token", "build-tokens"),
        ("mein/build-tokens", "mine/build-tokens"),
        ("corpus/tiny/latest/build-document", "corpus/tiny/latest/build-documents"),
        ("evaluate.colla:matthews", "evaluate.cola"),
        ("evaluate.cola:matthew", "metrics.dev.matthews"),
        ("zzz", "RECIPE/STEP"),
        ("0123456789abcdef", "cache key"),
    ],
)
def test_unknown_name_lists_similar_names_and_forms(
    store: ArtifactStore, text: str, similar: str
) -> None:
    made = put_recipe(store)
    parts = {"build-documents": made["build-documents"].manifest_path}
    pointer = pointer_to(made["build-tokens"]).model_copy(update={"parts": parts})
    store.swap_ref("corpus/tiny/latest", pointer, expected=None)
    with pytest.raises(ArtifactNotFoundError) as error:
        resolve_name(text, store=store)
    assert similar in str(error.value)
    assert repr(text.rpartition(":")[2]) in str(error.value) or repr(text) in str(error.value)


def test_unknown_name_is_reported_beside_corrupt_records(store: ArtifactStore) -> None:
    put_recipe(store)
    store.backend.replace("refs/mine/broken.json", b"{")
    store.backend.replace(record_path("20990101t000000000-00000001"), b"{")
    with pytest.raises(ArtifactNotFoundError, match="mine/build-tokens"):
        resolve("mine/build-token", store=store)


def test_names_in_folder_of_an_artifact_are_not_its_paths(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = put_recipe(store)
    tokens = made["build-tokens"]
    monkeypatch.chdir(f"{store.root}/{tokens.artifact_path}")
    assert resolve_name("mine/build-vocabulary", store=store).manifest == made["build-vocabulary"]
    assert resolve_name("manifest.json", store=store).manifest == tokens
    assert resolve_name(".", store=store).manifest == tokens
    with pytest.raises(ArtifactNotFoundError):
        resolve_name("mine/nothing", store=store)


def test_path_in_another_store_is_no_artifact_of_this_one(
    store: ArtifactStore, tmp_path: Path
) -> None:
    other = ArtifactStore(str(tmp_path / "other"))
    path = other.url(put(other, "build-documents").artifact_path)
    with pytest.raises(ArtifactNotFoundError) as error:
        resolve(path, store=store)
    assert other.root in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "http://mirror.example.org:8080/dump:2026.xml",
        "dump:2026.xml",
        "sha1:{sha1:.10}",
        "{sha1}",
        "SHA256:{sha256:.9}",
    ],
)
def test_names_of_a_raw_file(store: ArtifactStore, text: str) -> None:
    sha1 = "5d41402abc4b2a76b9719d911017c592ae2b4aef"
    uri = "http://mirror.example.org:8080/dump:2026.xml"
    raw = raw_file("dump:2026.xml", checksum=f"sha1:{sha1}").model_copy(update={"uri": uri})
    put(store, "build-documents", raw=[raw, raw_file("other.xml")])
    name = text.format(sha1=sha1, sha256=raw.sha256)
    assert resolve_name(name, store=store).file == raw


@pytest.mark.parametrize("text", ["../../etc", "", "x//y", "s3x://nowhere/at"])
def test_invalid_names_are_not_found(store: ArtifactStore, text: str) -> None:
    with pytest.raises(ArtifactNotFoundError):
        resolve(text, store=store)
