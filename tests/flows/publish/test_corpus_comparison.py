from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from support.publication_builder import build, figures

from flows.publish.comparison import CorpusComparison, Limit, Row, compare_corpora, dump_dates
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest
from schemas.publish_configs import ChangeLimits


@pytest.fixture
def store() -> ArtifactStore:
    return ArtifactStore(f"memory://comparison-{uuid.uuid4().hex}")


def corpus(store: ArtifactStore, **given: Any) -> dict[str, Manifest]:
    documents = given.pop("documents", 1000)
    changes = given.pop("changes", {})
    return build(store, figures(documents, **changes), **given)


def row(comparison: CorpusComparison, step: str, figure: str) -> Row:
    (found,) = [r for r in comparison.rows if (r.step, r.figure) == (step, figure)]
    return found


def test_equal_corpora_have_no_change(store: ArtifactStore) -> None:
    old = corpus(store)
    compared = compare_corpora(old, old, limits=ChangeLimits())
    assert compared.problems == compared.differences == ()
    changes = {r.figure: r.change for r in compared.rows}
    assert set(changes.values()) == {0.0}
    assert row(compared, "build-tokens", "documents dropped").new == 0.01


def test_figures_come_from_each_step(store: ArtifactStore) -> None:
    old, new = corpus(store), corpus(store, documents=1100, date="20261101")
    compared = compare_corpora(new, old, limits=ChangeLimits())
    documents = row(compared, "build-documents", "documents")
    assert (documents.old, documents.new) == (1000, 1100)
    assert documents.change == pytest.approx(0.1)
    assert row(compared, "build-documents", "words").new == 55_000
    assert row(compared, "build-documents", "raw bytes").kind == "bytes"
    assert row(compared, "build-tokens", "tokens").new == 77_000
    assert row(compared, "build-tokens", "unknown tokens").old == pytest.approx(0.001)
    assert row(compared, "build-instances.one", "instances").new == 3300
    redirects = row(compared, "build-documents", "pages dropped, redirect")
    assert redirects.old == 0.375
    assert compared.problems == ()
    assert compared.files[0].startswith("tinywiki-20261001-")
    assert compared.files[1].startswith("tinywiki-20261101-")


@pytest.mark.parametrize(
    ("documents", "changes", "beyond"),
    [
        (1000, {}, []),
        (1000, {"tokens": 68_600}, []),  # just the limit
        (1000, {"tokens": 68_599}, ["build-tokens: tokens 70,000 -> 68,599"]),
        (1000, {"tokens": 90_000}, ["build-tokens: tokens 70,000 -> 90,000"]),
        (1000, {"instances": 100}, ["build-instances.one: instances 3,000 -> 100"]),
        (1000, {"unknown_tokens": 700}, ["build-tokens: unknown tokens 0.100 % -> 1.000 %"]),
        (
            1000,
            {"pages_dropped_redirect": 1000, "pages_dropped_namespace": 0},
            [
                "build-documents: pages dropped, namespace 12.500 % -> 0.000 %",
                "build-documents: pages dropped, redirect 37.500 % -> 50.000 %",
            ],
        ),
    ],
)
def test_limits(
    store: ArtifactStore, documents: int, changes: dict[str, int], beyond: list[str]
) -> None:
    old, new = corpus(store), corpus(store, documents=documents, changes=changes)
    problems = compare_corpora(new, old, limits=ChangeLimits()).problems
    assert [text.partition(" (")[0] for text in problems] == beyond


def test_half_a_corpus_is_beyond_several_limits(store: ArtifactStore) -> None:
    old, new = corpus(store), corpus(store, documents=500)
    compared = compare_corpora(new, old, limits=ChangeLimits())
    assert (
        "build-documents: documents 1,000 -> 500 (-50.00 %; allowed -2 to +25 %)"
        in compared.problems
    )
    assert len(compared.problems) == 4


def test_a_source_that_vanished_is_seen_behind_one_that_grew(store: ArtifactStore) -> None:
    counts = figures()
    counts["build-documents"] |= {"documents-kept@wiki": 700, "documents-kept@books": 300}
    old = build(store, counts)
    counts["build-documents"] |= {"documents-kept@wiki": 1000, "documents-kept@books": 0}
    new = build(store, counts)
    problems = compare_corpora(new, old, limits=ChangeLimits()).problems
    assert [text.partition(" (")[0] for text in problems] == [
        "build-documents: documents of books 300 -> 0",
        "build-documents: documents of wiki 700 -> 1,000",
    ]


def test_a_vocabulary_that_is_taken_drops_nothing(store: ArtifactStore) -> None:
    learnt = figures()
    learnt["build-vocabulary"] |= {"documents-in": 100, "documents-dropped-duplicate": 30}
    compared = compare_corpora(corpus(store), build(store, learnt), limits=ChangeLimits())
    assert compared.problems == ()


def test_a_step_that_is_gone_is_a_problem_and_one_more_is_not(store: ArtifactStore) -> None:
    whole = corpus(store)
    less = {label: found for label, found in whole.items() if label != "build-instances.one"}
    (problem,) = compare_corpora(less, whole, limits=ChangeLimits()).problems
    assert problem.startswith("build-instances.one: the published corpus has it")
    more = compare_corpora(whole, less, limits=ChangeLimits())
    assert more.problems == ()
    assert more.differences == ("build-instances.one: the published corpus has none",)


def test_another_configuration_is_said(store: ArtifactStore) -> None:
    old = corpus(store, config={"vocab_size": 3, "sources": [{"name": "a", "language": "en"}]})
    sources = [{"name": "b", "language": "de"}, {"name": "a", "language": "it"}]
    new = corpus(store, config={"vocab_size": 4, "sources": sources})
    texts = compare_corpora(new, old, limits=ChangeLimits()).differences
    assert "build-tokens: vocab_size 3 -> 4" in texts
    assert "build-documents: sources.a.language en -> it" in texts
    assert "build-documents: sources.b.language (none) -> de" in texts
    assert not any("sources.a.name" in text for text in texts)


def test_vocabularies(store: ArtifactStore) -> None:
    old, same = corpus(store), corpus(store, date="20261101")
    figure = "published word pieces that are kept"
    compared = compare_corpora(same, old, limits=ChangeLimits())
    assert row(compared, "build-vocabulary", figure).new == 1.0
    other = corpus(store, vocab="[PAD]\na\nc\n")
    compared = compare_corpora(other, old, limits=ChangeLimits())
    assert figure not in [r.figure for r in compared.rows]
    compared = compare_corpora(other, old, limits=ChangeLimits(), vocabulary_overlap=0.66)
    assert row(compared, "build-vocabulary", figure).new == 0.66


def test_growth_from_nothing_is_beyond_any_limit() -> None:
    grown = Row("build-tokens", "tokens", "count", 0, 5, Limit(0.1, 100.0))
    assert grown.change == float("inf")
    assert not grown.is_within
    assert Row("build-tokens", "tokens", "count", 0, 0, Limit(0.1, 0.1)).is_within


def test_dump_dates(store: ArtifactStore) -> None:
    assert dump_dates(corpus(store)) == {"tinywiki": "20261001"}
    assert dump_dates({}) == {}


def test_lines_json_and_markdown_tell_the_same(store: ArtifactStore) -> None:
    old, new = corpus(store), corpus(store, documents=500)
    compared = compare_corpora(new, old, limits=ChangeLimits())
    lines = compared.lines()
    (line,) = [line for line in lines if re.match(r"build-tokens +tokens ", line)]
    shown = " ".join(line.split()[2:])
    assert shown == "70,000 35,000 -50.00 % -2 to +25 % BEYOND"
    told = json.loads(json.dumps(compared.to_json(), allow_nan=False))
    (tokens,) = [r for r in told["rows"] if r["figure"] == "tokens"]
    assert (tokens["published"], tokens["new"], tokens["within"]) == (70_000, 35_000, False)
    assert tokens["limit"] == [0.02, 0.25]
    page = compared.markdown(title="a | b", verdict="Refused <b>")
    assert "| build-tokens | tokens | 70,000 | 35,000 | -50.00 % |" in page
    assert page.startswith("# a \\| b\n\nRefused &lt;b>")
