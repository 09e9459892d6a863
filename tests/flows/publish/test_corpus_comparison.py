"""Comparison of corpora: metrics of each step, their changes, and exceeded limits."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from support.publication_builder import build, figures

from flows.publish.comparison import CorpusComparison, Row, compare_corpora, dump_dates
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest
from schemas.publish_configs import ChangeLimits


@pytest.fixture
def store() -> ArtifactStore:
    return ArtifactStore(f"memory://comparison-{uuid.uuid4().hex}")


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


def test_equal_corpora_have_no_change(store: ArtifactStore) -> None:
    old = corpus(store)
    comparison = compare(old, old)
    assert comparison.problems == comparison.differences == ()
    assert {row.change for row in comparison.rows} == {0.0}


def test_metrics_come_from_each_step(store: ArtifactStore) -> None:
    comparison = compare(corpus(store, documents=1100), corpus(store))
    documents = row(comparison, "build-documents", "documents-kept")
    assert (documents.old, documents.new) == (1000, 1100)
    assert documents.change == pytest.approx(0.1)
    assert row(comparison, "build-documents", "words").new == 55_000
    assert row(comparison, "build-tokens", "tokens").new == 77_000
    assert row(comparison, "build-tokens", "unknown-tokens").old == pytest.approx(0.001)
    assert row(comparison, "build-tokens", "documents-dropped").new == 0.01
    assert row(comparison, "build-instances.one", "instances").new == 3300
    assert row(comparison, "build-documents", "pages-dropped-redirect").old == 0.375
    assert comparison.problems == ()


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, []),
        ({"tokens": 68_600}, []),  # exactly the limit
        ({"tokens": 68_599}, [("build-tokens", "tokens")]),
        ({"tokens": 90_000}, [("build-tokens", "tokens")]),
        ({"instances": 100}, [("build-instances.one", "instances")]),
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
    learned["build-vocabulary"] |= {
        "documents-in": 100,
        "documents-kept": 70,
        "documents-dropped-duplicate": 30,
    }
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
    old = corpus(store, config={"vocab_size": 3, "sources": [{"name": "a", "language": "en"}]})
    sources = [{"name": "b", "language": "de"}, {"name": "a", "language": "it"}]
    new = corpus(store, config={"vocab_size": 4, "sources": sources}, vocab="[PAD]\na\nc\n")
    texts = compare(new, old).differences
    assert "build-tokens: vocab_size 3 -> 4" in texts
    assert "build-documents: sources.a.language en -> it" in texts
    assert "build-documents: sources.b.language (none) -> de" in texts
    assert "build-vocabulary: another vocabulary" in texts
    assert not any("sources.a.name" in text for text in texts)


def test_growth_from_zero_exceeds_any_limit() -> None:
    assert not Row("build-tokens", "tokens", 0, 5, (0.1, 100.0)).is_within_limits
    assert Row("build-tokens", "tokens", 0, 0, (0.1, 0.1)).is_within_limits


def test_dump_dates_are_from_names_of_raw_files(store: ArtifactStore) -> None:
    assert dump_dates(corpus(store)) == {"tinywiki": "20261001"}
    assert dump_dates({}) == {}


def test_text_and_json_have_the_same_values(store: ArtifactStore) -> None:
    comparison = compare(corpus(store, documents=500), corpus(store))
    cells = [line.split() for line in comparison.lines()]
    expected = "build-tokens tokens 70,000 35,000 -50.00 % -2 to +25 % EXCEEDED"
    assert expected.split() in cells
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    (tokens,) = [item for item in content["rows"] if item["metric"] == "tokens"]
    assert (tokens["old"], tokens["new"], tokens["change"]) == (70_000, 35_000, -0.5)
    assert (tokens["limits"], tokens["is_within_limits"]) == ([0.02, 0.25], False)
