"""Publishing: refs of versions and `latest`, limits, races, rollback, the command."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.publication_builder import build, corpus_recipe, figures
from support.publisher_races import race

from flows.publish.publish import (
    CorpusChangeLimitError,
    Publication,
    list_versions,
    publish,
    roll_back,
    was_rolled_back,
)
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError, ConfigError, PublishError, StoreError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

LATEST = "corpus/tiny/latest"
RUN = "20261002t030000-00000001"


@pytest.fixture
def store() -> ArtifactStore:
    return ArtifactStore(f"memory://publishing-{uuid.uuid4().hex}")


@pytest.fixture
def recipe(store: ArtifactStore) -> Recipe:
    return corpus_recipe(store.root)


def put(
    store: ArtifactStore, recipe: Recipe, results: dict[str, Manifest], **options: Any
) -> Publication:
    return publish(recipe, results, store=store, **options)


def tokens_of(results: dict[str, Manifest]) -> str:
    return results["build-tokens"].artifact_id


def latest(store: ArtifactStore) -> Pointer:
    pointer = store.ref(LATEST)
    assert pointer is not None
    return pointer


def versions(store: ArtifactStore) -> dict[str, str]:
    return {ref: pointer.artifact_id for ref, pointer in list_versions(store, "corpus/tiny")}


def delete_file(store: ArtifactStore, manifest: Manifest) -> None:
    store.backend.delete(f"{manifest.data_path}/{manifest.files[0].stored_name}")


def test_first_version_points_to_every_step(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    result = put(store, recipe, results)
    assert (result.outcome, result.replaced, result.comparison) == ("published", "", None)
    assert result.version_ref == "corpus/tiny/20261001"
    assert latest(store).artifact_id == tokens_of(results)
    assert latest(store).parts == {label: made.manifest_path for label, made in results.items()}
    assert store.ref(result.version_ref) == latest(store)


def test_next_version_moves_latest_and_keeps_old_version(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(1010), date="20261101")
    put(store, recipe, first)
    result = put(store, recipe, second)
    assert (result.outcome, result.replaced) == ("published", tokens_of(first))
    assert result.comparison is not None
    assert result.comparison.problems == ()
    assert latest(store).artifact_id == tokens_of(second)
    assert versions(store) == {
        "corpus/tiny/20261001": tokens_of(first),
        "corpus/tiny/20261101": tokens_of(second),
    }


def test_corpus_over_limit_is_published_with_force_only(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(500), date="20261101")
    put(store, recipe, first)
    before = latest(store)
    with pytest.raises(CorpusChangeLimitError) as error:
        put(store, recipe, second)
    assert "build-tokens: tokens 70,000 -> 35,000 (-50.00 %; allowed -2 to +25 %)" in str(
        error.value
    )
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.comparison) == (str(error.value), error.value.comparison)
    assert latest(store) == before
    assert store.ref("corpus/tiny/20261101") is None
    store.check_files(second["build-tokens"])
    result = put(store, recipe, second, force=True)
    assert result.comparison is not None
    assert result.comparison.problems
    assert latest(store).artifact_id == tokens_of(second)


def test_same_content_moves_no_ref(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    put(store, recipe, results)
    before = latest(store)
    result = put(store, recipe, results)
    assert (result.outcome, result.version_ref) == ("unchanged", "")
    assert latest(store) == before
    assert [*versions(store)] == ["corpus/tiny/20261001"]


def test_same_content_replaces_corrupt_version(store: ArtifactStore, recipe: Recipe) -> None:
    first = build(store, figures())
    put(store, recipe, first)
    made = first["build-tokens"]
    delete_file(store, made)
    assert store.lookup("build-tokens", made.cache_key) is None  # so that it is built again
    second = build(store, figures())
    assert put(store, recipe, second).outcome == "published"
    assert latest(store).artifact_id == tokens_of(second) != made.artifact_id


def test_further_versions_of_a_dump_are_named_by_run(store: ArtifactStore, recipe: Recipe) -> None:
    put(store, recipe, build(store, figures()))
    second, third = build(store, figures(1001)), build(store, figures(1002))
    assert put(store, recipe, second).version_ref == f"corpus/tiny/{RUN}"
    assert put(store, recipe, third).version_ref == f"corpus/tiny/{RUN}-{tokens_of(third)}"


def test_version_without_date_is_named_by_newest_run(store: ArtifactStore, recipe: Recipe) -> None:
    old, new = "20260101t000000-ffffffff", "20260201t000000-00000000"
    made = build(store, figures(), date="", run_id=old)
    tokens = made["build-tokens"]
    built = tokens.produced_by.model_copy(update={"run_id": new})
    made["build-tokens"] = tokens.model_copy(update={"produced_by": built})
    assert put(store, recipe, made).version_ref == f"corpus/tiny/{new}"


def test_incomplete_or_corrupt_corpus_is_not_published(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(1010))
    with pytest.raises(PublishError, match="build-documents"):
        put(store, recipe, {**first, "build-documents": second["build-documents"]})
    with pytest.raises(PublishError, match=r"build-instances\.one"):
        put(store, recipe, dict(list(first.items())[:-1]))
    delete_file(store, first["build-instances.one"])
    with pytest.raises(ArtifactCorruptError):
        put(store, recipe, first)
    assert store.ref(LATEST) is None
    assert versions(store) == {}


def test_recipe_without_publish_is_config_error(store: ArtifactStore, recipe: Recipe) -> None:
    with pytest.raises(ConfigError):
        put(store, recipe.model_copy(update={"publish": None}), build(store, figures()))


def test_unreadable_published_corpus_is_replaced_with_force_only(
    store: ArtifactStore, recipe: Recipe
) -> None:
    put(store, recipe, build(store, figures()))
    store.backend.delete(latest(store).parts["build-documents"])
    second = build(store, figures(1010), date="20261101")
    with pytest.raises(StoreError) as error:
        put(store, recipe, second)
    assert "build-documents" in error.value.__notes__[0]
    assert put(store, recipe, second, force=True).outcome == "published"


def test_dry_run_moves_no_ref(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    assert put(store, recipe, results, dry_run=True).outcome == "planned"
    assert store.ref(LATEST) is None
    put(store, recipe, results)
    with pytest.raises(CorpusChangeLimitError):
        put(store, recipe, build(store, figures(10), date="20261101"), dry_run=True)


def test_roll_back_moves_latest_to_earlier_version(store: ArtifactStore, recipe: Recipe) -> None:
    first, second = build(store, figures()), build(store, figures(1010), date="20261101")
    put(store, recipe, first)
    put(store, recipe, second)
    assert roll_back(store, "corpus/tiny/20261001", dry_run=True).outcome == "planned"
    assert latest(store).artifact_id == tokens_of(second)
    result = roll_back(store, "corpus/tiny/20261001")
    assert (result.outcome, result.replaced) == ("published", tokens_of(second))
    assert latest(store).parts == {label: made.manifest_path for label, made in first.items()}
    assert roll_back(store, "corpus/tiny/20261001").outcome == "unchanged"
    assert len(versions(store)) == 2


@pytest.mark.parametrize("ref", ["corpus/tiny/20270101", "corpus/tiny/latest", "20261001", "tiny"])
def test_roll_back_refuses_unknown_version(store: ArtifactStore, recipe: Recipe, ref: str) -> None:
    put(store, recipe, build(store, figures()))
    with pytest.raises(PublishError):
        roll_back(store, ref)


def test_slower_publisher_is_compared_with_faster_one(
    store: ArtifactStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, recipe, build(store, figures()))
    mine = build(store, figures(1010), date="20261101")
    other = build(store, figures(2000), date="20261201")
    swap, others = ArtifactStore.swap_ref, [other]

    def swap_late(self: ArtifactStore, name: str, pointer: Pointer, **options: Any) -> None:
        if name == LATEST and others:
            put(store, recipe, others.pop(), force=True)
        swap(self, name, pointer, **options)

    monkeypatch.setattr(ArtifactStore, "swap_ref", swap_late)
    with pytest.raises(CorpusChangeLimitError, match="documents-kept 2,000 -> 1,010"):
        put(store, recipe, mine)
    assert latest(store).artifact_id == tokens_of(other)
    assert store.ref("corpus/tiny/20261101") is None  # it was written before the race was lost
    assert not was_rolled_back(store, "corpus/tiny", "20261101")


def test_publishers_of_several_processes_replace_each_other(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    corpora = [
        build(store, figures(1000 + number), date=f"2026100{number}", set_refs=False)
        for number in range(1, 4)
    ]
    context = multiprocessing.get_context("spawn")
    start, queue = context.Barrier(len(corpora)), context.Queue()
    racers = [
        context.Process(
            target=race,
            args=(store.root, [made.manifest_path for made in results.values()], start, queue),
        )
        for results in corpora
    ]
    for racer in racers:
        racer.start()
    reports = [queue.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(60)
    assert {outcome for _, outcome, _, _ in reports} == {"published"}
    # Each replaced another one: a chain from nothing to the published corpus.
    after = {replaced: mine for mine, _, replaced, _ in reports}
    chain = [""]
    while chain[-1] in after:
        chain.append(after.pop(chain[-1]))
    assert not after
    assert latest(store).artifact_id == chain[-1]
    assert versions(store) == {ref: mine for mine, _, _, ref in reports}


def test_command_publishes_refuses_and_rolls_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cli, store = tmp_path / "a.yaml", Cli(capsys), ArtifactStore(str(tmp_path / "store"))
    file.write_text(
        f"name: tiny\nstore: {store.root}\n"
        "build_documents:\n  sources: [{kind: wikipedia, name: tinywiki, paths: [none.xml]}]\n"
        "build_instances: {one: {}}\npublish: {name: corpus/tiny}\n"
    )
    first = build(store, figures())
    result = cli("publish", str(file))
    assert result.code == 0, result.err
    for fact in (LATEST, tokens_of(first), "corpus/tiny/20261001"):
        assert fact in result.out

    second = build(store, figures(500), date="20261101")
    result = cli("publish", str(file))
    assert result.code == 1
    assert "tokens 70,000 -> 35,000 (-50.00 %" in result.err
    assert "EXCEEDED" in result.out
    result = cli("publish", str(file), "--json")
    assert (result.code, json.loads(result.out)["outcome"]) == (1, "refused")
    result = cli("publish", str(file), "--force", "--json")
    content = json.loads(result.out)
    assert content["outcome"] == "published"
    assert content["parts"]["build-tokens"].endswith(f"{tokens_of(second)}/manifest.json")

    version = ("--to", "corpus/tiny/20261001")
    assert tokens_of(first) in cli("publish", *version, "--store", store.root).out
    assert latest(store).artifact_id == tokens_of(first)
    assert cli("publish").code == cli("publish", str(file), *version).code == 2
