"""Comparison of corpora, publishing, limits, races, rollback, the command."""

from __future__ import annotations

import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.publication_builder import LABELS, RECIPE, build, corpus_recipe, figures

from flows.publish.comparison import CorpusComparison, Row, compare_corpora
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
from schemas.corpus_configs import DecontaminateConfig, NearDuplicatesConfig
from schemas.errors import ArtifactCorruptError, PublishError, RefConflictError, StoreError
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import Manifest
from schemas.publish_configs import ChangeLimits
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


def test_next_version_moves_latest_and_keeps_old_version(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(1010), date="20261101")
    assert put(store, recipe, first, dry_run=True).outcome == "planned"
    assert store.ref(LATEST) is None
    result = put(store, recipe, first)
    assert (result.outcome, result.replaced, result.comparison) == ("published", "", None)
    assert result.version_ref == "corpus/tiny/20261001"
    assert latest(store).parts == {label: made.manifest_path for label, made in first.items()}
    assert store.ref(result.version_ref) == latest(store)
    result = put(store, recipe, second)
    assert (result.outcome, result.replaced) == ("published", tokens_of(first))
    assert result.comparison is not None
    assert result.comparison.problems == ()
    assert latest(store).artifact_id == tokens_of(second)
    assert versions(store) == {
        "corpus/tiny/20261001": tokens_of(first),
        "corpus/tiny/20261101": tokens_of(second),
    }


def test_corpus_with_excluded_documents_is_updated(store: ArtifactStore) -> None:
    recipe = corpus_recipe(store.root).model_copy(
        update={
            "find_near_duplicates": NearDuplicatesConfig(),
            "build_examples": {"sst-2": ExamplesConfig(task="sst-2", data_dir="nowhere")},
            "decontaminate": DecontaminateConfig(tasks=("sst-2",)),
        }
    )
    counters = {
        "find-near-duplicates": {
            "documents-in": 1000,
            "documents-kept": 990,
            "documents-dropped-near-duplicate": 10,
        },
        "find-contamination": {"documents-to-exclude": 3},
        "build-examples.sst-2": {"examples": 7},
    }
    for number, date in ((1000, "20261001"), (1010, "20261101")):
        corpus = build(store, {**figures(number), **counters}, date=date, recipe=recipe)
        result = put(store, recipe, corpus)
        assert (result.outcome, set(result.parts)) == ("published", {*LABELS, *counters})
    assert result.comparison is not None
    compared = {(row.step, row.metric) for row in result.comparison.rows}
    assert ("find-near-duplicates", "documents-dropped-near-duplicate") in compared
    assert ("find-contamination", "documents-to-exclude") in compared


@pytest.mark.parametrize("keep_versions", [1, 2])
def test_publishing_keeps_newest_versions(store: ArtifactStore, keep_versions: int) -> None:
    recipe = corpus_recipe(store.root, keep_versions=keep_versions)
    for month in range(1, 5):
        put(store, recipe, build(store, figures(1000 + month), date=f"20260{month}01"))
    kept = [f"corpus/tiny/20260{month}01" for month in range(5 - keep_versions, 5)]
    assert [*versions(store)] == kept


def test_version_that_latest_points_to_is_kept(store: ArtifactStore) -> None:
    recipe = corpus_recipe(store.root, keep_versions=2)
    first, second = build(store, figures()), build(store, figures(1010), date="20261101")
    put(store, recipe, first)
    put(store, recipe, second)
    roll_back(store, "corpus/tiny/20261001")
    assert set(versions(store)) == {"corpus/tiny/20261001", "corpus/tiny/20261101"}
    # A publisher with a lower limit that publishes nothing new deletes nothing either.
    assert put(store, corpus_recipe(store.root, keep_versions=1), first).outcome == "unchanged"
    assert len(versions(store)) == 2


def test_corpus_over_limit_is_published_with_force_only(
    store: ArtifactStore, recipe: Recipe
) -> None:
    first, second = build(store, figures()), build(store, figures(500), date="20261101")
    put(store, recipe, first)
    before = latest(store)
    with pytest.raises(CorpusChangeLimitError):
        put(store, recipe, second, dry_run=True)
    with pytest.raises(CorpusChangeLimitError) as error:
        put(store, recipe, second)
    assert "tokens 70,000 -> 35,000 (-50.00 %; allowed -2 to +25 %)" in str(error.value)
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.comparison) == (str(error.value), error.value.comparison)
    assert latest(store) == before
    assert store.ref("corpus/tiny/20261101") is None
    put(store, recipe, second, force=True)
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
    undated = build(store, figures(), date="", run_id="20260101t000000-ffffffff")
    tokens, new = undated["build-tokens"], "20260201t000000-00000000"
    built = tokens.produced_by.model_copy(update={"run_id": new})
    undated["build-tokens"] = tokens.model_copy(update={"produced_by": built})
    assert put(store, recipe, undated).version_ref == f"corpus/tiny/{new}"


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


@pytest.mark.parametrize("ref", ["corpus/tiny/20270101", "corpus/tiny/latest", "tiny"])
def test_roll_back_refuses_unknown_version(store: ArtifactStore, recipe: Recipe, ref: str) -> None:
    put(store, recipe, build(store, figures()))
    with pytest.raises(PublishError):
        roll_back(store, ref)


def test_slower_of_two_publishers_is_refused(
    store: ArtifactStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, recipe, build(store, figures()))
    mine = build(store, figures(1010), date="20261101")
    other = build(store, figures(1020), date="20261201")
    swap, others = ArtifactStore.swap_ref, [other]

    def swap_late(self: ArtifactStore, name: str, pointer: Pointer, **options: Any) -> None:
        if name == LATEST and others:
            put(store, recipe, others.pop())
        swap(self, name, pointer, **options)

    monkeypatch.setattr(ArtifactStore, "swap_ref", swap_late)
    with pytest.raises(RefConflictError):
        put(store, recipe, mine)
    assert latest(store).artifact_id == tokens_of(other)
    assert store.ref("corpus/tiny/20261101") is None  # it was written before the race was lost
    assert not was_rolled_back(store, "corpus/tiny", "20261101")


def test_command_publishes_refuses_and_rolls_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cli, store = tmp_path / "a.yaml", Cli(capsys), ArtifactStore(str(tmp_path / "store"))
    file.write_text(f"{RECIPE}store: {store.root}\n")
    first = build(store, figures())
    result = cli("publish", str(file))
    assert result.code == 0, result.err
    for fact in (LATEST, tokens_of(first), "corpus/tiny/20261001"):
        assert fact in result.out

    second = build(store, figures(500), date="20261101")
    result = cli("publish", str(file))
    assert (result.code, "EXCEEDED" in result.out) == (1, True)
    result = cli("publish", str(file), "--json")
    assert (result.code, json.loads(result.out)["outcome"]) == (1, "refused")
    content = json.loads(cli("publish", str(file), "--force", "--json").out)
    assert content["outcome"] == "published"
    assert content["parts"]["build-tokens"].endswith(f"{tokens_of(second)}/manifest.json")

    version = ("--to", "corpus/tiny/20261001")
    assert tokens_of(first) in cli("publish", *version, "--store", store.root).out
    assert latest(store).artifact_id == tokens_of(first)
    assert cli("publish").code == cli("publish", str(file), *version).code == 2


def corpus(store: ArtifactStore, **options: Any) -> dict[str, Manifest]:
    documents, changes = options.pop("documents", 1000), options.pop("changes", {})
    return build(store, figures(documents, **changes), **options)


def compare(new: dict[str, Manifest], old: dict[str, Manifest]) -> CorpusComparison:
    return compare_corpora(new, old, limits=ChangeLimits())


def row(comparison: CorpusComparison, step: str, metric: str) -> Row:
    (match,) = [row for row in comparison.rows if (row.step, row.metric) == (step, metric)]
    return match


def exceeded(comparison: CorpusComparison) -> list[tuple[str, str]]:
    rows = [(row.step, row.metric) for row in comparison.rows if not row.is_within_limits]
    assert len(comparison.problems) == len(rows)
    return rows


def test_metrics_come_from_each_step(store: ArtifactStore) -> None:
    old = corpus(store)
    comparison = compare(old, old)
    assert comparison.problems == comparison.differences == ()
    assert {row.change for row in comparison.rows} == {0.0}
    comparison = compare(corpus(store, documents=1100), old)
    documents = row(comparison, "build-documents", "documents-kept")
    assert (documents.old, documents.new) == (1000, 1100)
    assert documents.change == pytest.approx(0.1)
    for step, metric, new in (
        ("build-documents", "words", 55_000),
        ("build-documents", "pages-dropped-redirect", 0.375),
        ("build-tokens", "unknown-tokens", 0.001),
        ("build-tokens", "documents-dropped", 0.01),
        ("build-instances.one", "instances", 3300),
    ):
        assert row(comparison, step, metric).new == pytest.approx(new)
    assert comparison.problems == ()
    assert not Row("build-tokens", "tokens", 0, 5, (0.1, 100.0)).is_within_limits


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"tokens": 68_600}, []),  # exactly the limit
        ({"tokens": 68_599}, [("build-tokens", "tokens")]),
        ({"tokens": 90_000}, [("build-tokens", "tokens")]),
        ({"unknown_tokens": 700}, [("build-tokens", "unknown-tokens")]),
        (
            {"pages_dropped_redirect": 1000, "pages_dropped_namespace": 0},
            [
                ("build-documents", "pages-dropped-namespace"),
                ("build-documents", "pages-dropped-redirect"),
            ],
        ),
    ],
)
def test_changes_over_a_limit_are_problems(
    store: ArtifactStore, changes: dict[str, int], rows: list[tuple[str, str]]
) -> None:
    assert exceeded(compare(corpus(store, changes=changes), corpus(store))) == rows


def test_lost_source_is_a_problem_even_if_another_grew(store: ArtifactStore) -> None:
    counts = figures()
    counts["build-documents"] |= {"documents-kept@wiki": 700, "documents-kept@books": 300}
    old = build(store, counts)
    counts["build-documents"] |= {"documents-kept@wiki": 1000, "documents-kept@books": 0}
    assert exceeded(compare(build(store, counts), old)) == [
        ("build-documents", "documents-kept@books"),
        ("build-documents", "documents-kept@wiki"),
    ]


def test_record_type_of_one_corpus_is_not_compared(store: ArtifactStore) -> None:
    learned = figures()
    learned["build-vocabulary"] |= {"documents-in": 100, "documents-kept": 70}
    assert compare(corpus(store), build(store, learned)).problems == ()


def test_missing_step_is_a_problem_and_new_step_is_a_difference(store: ArtifactStore) -> None:
    whole = corpus(store)
    part = {label: made for label, made in whole.items() if label != "build-instances.one"}
    (problem,) = compare(part, whole).problems
    assert problem.startswith("build-instances.one: ")
    comparison = compare(whole, part)
    assert comparison.problems == ()
    assert comparison.differences == ("build-instances.one: not in the published corpus",)


def test_differences_name_changed_fields(store: ArtifactStore) -> None:
    before = {"vocab_size": 3, "sources": [{"name": "a", "language": "en"}]}
    sources = [{"name": "b", "language": "de"}, {"name": "a", "language": "it"}]
    after = {"vocab_size": 4, "sources": sources}
    old = corpus(store, configs=dict.fromkeys(LABELS, before))
    new = corpus(store, configs=dict.fromkeys(LABELS, after), vocab="[PAD]\na\nc\n")
    texts = compare(new, old).differences
    assert {
        "build-tokens: vocab_size 3 -> 4",
        "build-documents: sources.a.language en -> it",
        "build-documents: sources.b.language (none) -> de",
        "build-vocabulary: another vocabulary",
    } <= {*texts}
    assert not any("sources.a.name" in text for text in texts)


def test_text_and_json_have_the_same_values(store: ArtifactStore) -> None:
    comparison = compare(corpus(store, documents=500), corpus(store))
    cells = [line.split() for line in comparison.lines()]
    expected = "build-tokens tokens 70,000 35,000 -50.00 % -2 to +25 % EXCEEDED"
    assert expected.split() in cells
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    (tokens,) = [item for item in content["rows"] if item["metric"] == "tokens"]
    assert (tokens["old"], tokens["new"], tokens["change"]) == (70_000, 35_000, -0.5)
    assert (tokens["limits"], tokens["is_within_limits"]) == ([0.02, 0.25], False)
