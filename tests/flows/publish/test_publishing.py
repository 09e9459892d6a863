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

from flows.publish.publishing import (
    CorpusRefusedError,
    Publication,
    publications,
    publish,
    roll_back,
    was_set_aside,
)
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from schemas.errors import ConfigError, PublishError
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
    store: ArtifactStore, recipe: Recipe, results: dict[str, Manifest], **given: Any
) -> Publication:
    return publish(recipe, results, store=store, **given)


def tokens_of(results: dict[str, Manifest]) -> str:
    return results["build-tokens"].artifact_id


def latest(store: ArtifactStore) -> Pointer:
    found = store.ref(LATEST)
    assert found is not None
    return found


def test_the_first_publication_leads_to_every_part(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    found = put(store, recipe, results)
    assert (found.outcome, found.replaced, found.comparison) == ("moved", "", None)
    assert found.kept_as == "corpus/tiny/20261001"
    assert latest(store).artifact_id == tokens_of(results)
    assert latest(store).parts == {label: made.manifest_path for label, made in results.items()}
    assert store.ref("corpus/tiny/20261001") == latest(store)


def test_the_next_one_moves_latest_and_the_old_one_stays(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(1010), date="20261101")
    put(store, recipe, first)
    found = put(store, recipe, second)
    assert (found.outcome, found.replaced) == ("moved", tokens_of(first))
    assert found.comparison is not None
    assert found.comparison.problems == ()
    assert latest(store).artifact_id == tokens_of(second)
    named = {ref: pointer.artifact_id for ref, pointer in publications(store, "corpus/tiny")}
    assert named == {
        "corpus/tiny/20261001": tokens_of(first),
        "corpus/tiny/20261101": tokens_of(second),
    }


def test_a_corpus_that_shrank_is_refused_with_the_figures(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(500), date="20261101")
    put(store, recipe, first)
    before = latest(store)
    with pytest.raises(CorpusRefusedError) as refused:
        put(store, recipe, second)
    text = str(refused.value)
    assert "build-tokens: tokens 70,000 -> 35,000 (-50.00 %; allowed -2 to +25 %)" in text
    assert f"bertloom diff {tokens_of(first)} {tokens_of(second)}" in text
    assert "--force" in text
    assert latest(store) == before
    assert store.ref("corpus/tiny/20261101") is None
    store.check_files(second["build-tokens"])
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.comparison) == (text, refused.value.comparison)


def test_force_publishes_it_and_says_so(store: ArtifactStore, recipe: Recipe) -> None:
    put(store, recipe, build(store, figures()))
    second = build(store, figures(500), date="20261101")
    found = put(store, recipe, second, force=True)
    assert found.forced
    assert latest(store).artifact_id == tokens_of(second)
    third = put(store, recipe, build(store, figures(505), date="20261201"), force=True)
    assert not third.forced


def test_the_same_content_moves_nothing(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    put(store, recipe, results)
    before = latest(store)
    again = put(store, recipe, results)
    assert (again.outcome, again.kept_as) == ("same", "")
    assert latest(store) == before
    assert [ref for ref, _ in publications(store, "corpus/tiny")] == ["corpus/tiny/20261001"]


def test_the_same_content_takes_the_place_of_a_damaged_one(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first = build(store, figures())
    put(store, recipe, first)
    made = first["build-tokens"]
    store.backend.delete(f"{made.data_path}/{made.files[0].stored_name}")
    assert store.lookup("build-tokens", made.cache_key) is None  # so it is built anew
    again = build(store, figures())
    assert put(store, recipe, again).outcome == "moved"
    assert latest(store).artifact_id == tokens_of(again) != made.artifact_id


def test_another_corpus_of_the_same_dump_is_named_by_its_run(
    store: ArtifactStore, recipe: Recipe
) -> None:
    put(store, recipe, build(store, figures()))
    assert put(store, recipe, build(store, figures(1001))).kept_as == f"corpus/tiny/{RUN}"
    third = build(store, figures(1002))
    found = put(store, recipe, third)
    assert found.kept_as == f"corpus/tiny/{RUN}-{tokens_of(third)}"


def test_a_damaged_part_is_not_published(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    made = results["build-instances.one"]
    store.backend.delete(f"{made.data_path}/{made.files[0].stored_name}")
    with pytest.raises(PublishError, match=r"build-instances\.one is not whole"):
        put(store, recipe, results)
    assert store.refs() == [name for name in store.refs() if name.startswith("tiny/")]


def test_parts_of_two_corpora_are_not_published(store: ArtifactStore, recipe: Recipe) -> None:
    first, second = build(store, figures()), build(store, figures(1010))
    with pytest.raises(PublishError, match="they are no one corpus"):
        put(store, recipe, {**first, "build-documents": second["build-documents"]})
    with pytest.raises(PublishError, match=r"without build-instances\.one"):
        put(store, recipe, dict(list(first.items())[:-1]))
    assert store.ref(LATEST) is None


def test_a_recipe_without_a_name_publishes_nothing(store: ArtifactStore, recipe: Recipe) -> None:
    silent = recipe.model_copy(update={"publish": None})
    with pytest.raises(ConfigError, match=r"publish: \{name: corpus/tiny\}"):
        put(store, silent, build(store, figures()))


def test_a_published_corpus_that_is_gone_is_not_passed_over(
    store: ArtifactStore, recipe: Recipe
) -> None:
    put(store, recipe, build(store, figures()))
    store.backend.delete(latest(store).parts["build-documents"])
    second = build(store, figures(1010), date="20261101")
    with pytest.raises(PublishError, match="build-documents of the published corpus cannot"):
        put(store, recipe, second)
    assert put(store, recipe, second, force=True).outcome == "moved"


def test_vocabularies_are_compared_piece_by_piece(store: ArtifactStore, recipe: Recipe) -> None:
    put(store, recipe, build(store, figures(), vocab="[PAD]\na\nb\nc\n"))
    second = build(store, figures(1001), date="20261101", vocab="[PAD]\na\nb\nd\n")
    compared = put(store, recipe, second).comparison
    assert compared is not None
    assert [r.new for r in compared.rows if "word pieces that" in r.figure] == [0.75]


def test_a_dry_run_changes_nothing(store: ArtifactStore, recipe: Recipe) -> None:
    results = build(store, figures())
    assert put(store, recipe, results, dry_run=True).outcome == "planned"
    assert store.ref(LATEST) is None
    put(store, recipe, results)
    with pytest.raises(CorpusRefusedError):
        put(store, recipe, build(store, figures(10), date="20261101"), dry_run=True)


def test_rollback(store: ArtifactStore, recipe: Recipe) -> None:
    first, second = build(store, figures()), build(store, figures(1010), date="20261101")
    put(store, recipe, first)
    put(store, recipe, second)
    assert roll_back(store, "corpus/tiny/20261001", dry_run=True).outcome == "planned"
    assert latest(store).artifact_id == tokens_of(second)
    found = roll_back(store, "corpus/tiny/20261001")
    assert (found.outcome, found.replaced) == ("moved", tokens_of(second))
    assert latest(store).parts == {label: made.manifest_path for label, made in first.items()}
    assert roll_back(store, "corpus/tiny/20261001").outcome == "same"
    assert len(list(publications(store, "corpus/tiny"))) == 2


@pytest.mark.parametrize("ref", ["corpus/tiny/20270101", "corpus/tiny/latest", "20261001", "tiny"])
def test_rollback_to_what_is_no_publication(store: ArtifactStore, recipe: Recipe, ref: str) -> None:
    put(store, recipe, build(store, figures()))
    with pytest.raises(PublishError, match="no publication"):
        roll_back(store, ref)


def test_who_comes_second_is_compared_with_who_came_first(
    store: ArtifactStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, recipe, build(store, figures()))
    mine = build(store, figures(1010), date="20261101")
    other = build(store, figures(2000), date="20261201")
    swap, others = ArtifactStore.swap_ref, [other]

    def swap_late(self: ArtifactStore, name: str, pointer: Pointer, **given: Any) -> None:
        if name == LATEST and others:
            put(store, recipe, others.pop(), force=True)
        swap(self, name, pointer, **given)

    monkeypatch.setattr(ArtifactStore, "swap_ref", swap_late)
    with pytest.raises(CorpusRefusedError, match="documents 2,000 -> 1,010"):
        put(store, recipe, mine)
    assert latest(store).artifact_id == tokens_of(other)
    # Its own name was written before it lost the race, and is no publication.
    assert store.ref("corpus/tiny/20261101") is None
    assert not was_set_aside(store, "corpus/tiny", "20261101")


def test_publishers_of_several_processes_take_turns(tmp_path: Path) -> None:
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
    assert {outcome for _, outcome, _, _ in reports} == {"moved"}
    # Each took the place of another: one chain from nothing to what is published now.
    after = {replaced: mine for mine, _, replaced, _ in reports}
    chain = [""]
    while chain[-1] in after:
        chain.append(after.pop(chain[-1]))
    assert not after
    assert latest(store).artifact_id == chain[-1]
    kept = {ref: pointer.artifact_id for ref, pointer in publications(store, "corpus/tiny")}
    assert kept == {ref: mine for mine, _, _, ref in reports}


def test_a_publication_without_a_date_is_named_by_the_newest_run(
    store: ArtifactStore, recipe: Recipe
) -> None:
    old, new = "20260101t000000-ffffffff", "20260201t000000-00000000"
    made = build(store, figures(), date="", run_id=old)
    tokens = made["build-tokens"]
    built = tokens.produced_by.model_copy(update={"run_id": new})
    made["build-tokens"] = tokens.model_copy(update={"produced_by": built})
    assert put(store, recipe, made).kept_as == f"corpus/tiny/{new}"


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(
        f"name: tiny\nstore: {tmp_path / 'store'}\n"
        "build_documents:\n  sources: [{kind: wikipedia, name: tinywiki, paths: [none.xml]}]\n"
        "build_instances: {one: {}}\npublish: {name: corpus/tiny}\n"
    )
    return file


def test_the_command(tmp_path: Path, recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli, store = Cli(capsys), ArtifactStore(str(tmp_path / "store"))
    first = build(store, figures())
    said = cli("publish", str(recipe_file))
    assert said.code == 0, said.err
    expected = f"{LATEST} leads to {tokens_of(first)} now, kept as corpus/tiny/20261001; the first"
    assert said.out.startswith(expected)
    assert "nothing was moved" in cli("publish", str(recipe_file)).out

    second = build(store, figures(500), date="20261101")
    said = cli("publish", str(recipe_file))
    assert said.code == 1
    assert "tokens 70,000 -> 35,000 (-50.00 %" in said.err
    assert "BEYOND" in said.out
    said = cli("publish", str(recipe_file), "--json")
    assert said.code == 1
    assert json.loads(said.out)["outcome"] == "refused"
    said = cli("publish", str(recipe_file), "--force", "--json")
    told = json.loads(said.out)
    assert (told["outcome"], told["forced"]) == ("moved", True)
    assert told["parts"]["build-tokens"].endswith(f"{tokens_of(second)}/manifest.json")

    where = ["--store", store.root]
    said = cli("publish", "--to", "corpus/tiny/20261001", *where)
    assert said.out.startswith(f"{LATEST} leads to {tokens_of(first)} now")
    assert latest(store).artifact_id == tokens_of(first)
    assert cli("publish").code == 2
    assert cli("publish", str(recipe_file), "--to", "corpus/tiny/20261001").code == 2
