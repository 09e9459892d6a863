"""Differences of artifacts and runs, and their text."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest
from support.cli_runner import Cli
from support.lineage_builder import put, raw_file

from flows.lineage.diff import Change, difference
from flows.store.artifacts import ArtifactStore
from pipelines.documents.records import text_digest
from pipelines.io.shards import ShardWriter
from schemas.arrow import DOCUMENTS
from schemas.manifest import Environment, Manifest


def put_documents(store: ArtifactStore, path: str, numpy: str, **fields: Any) -> Manifest:
    packages = {"numpy": numpy, "rich": path}
    return put(
        store,
        "build-documents",
        key=path,
        config={"sources": [{"name": "wiki", "paths": [path]}], "same": 1},
        cache_key_inputs={"environment": {"numpy": numpy}},
        environment=Environment(python=numpy, platform=path, packages=packages),
        **fields,
    )


def test_groups_have_the_values_that_differ(store: ArtifactStore) -> None:
    wiki = raw_file("wiki")
    before = put_documents(
        store, "a", "2.0", raw=[wiki, raw_file("books")],
        counters={"documents-in": 10, "documents-kept": 8},
        statistics={"metrics": {"dev": {"f1": 0.5}}},
    )  # fmt: skip
    after = put_documents(
        store, "b", "2.1", raw=[wiki],
        counters={"documents-in": 10, "documents-kept": 6},
        statistics={"metrics": {"dev": {"f1": 0.75}}},
    )  # fmt: skip
    result = difference(before, after)
    names = {group: [change.name for change in listed] for group, listed in result.groups.items()}
    assert names == {
        "configuration": ["sources.wiki.paths"],
        "raw files": ["books"],
        "counts": ["documents-kept"],
        "statistics": ["metrics.dev.f1"],
        "libraries": ["numpy", "python"],
        "other packages": ["rich"],
        "system": ["platform"],
        "files": ["made.txt"],
    }
    assert result.groups["configuration"] == [Change("sources.wiki.paths", ["a"], ["b"])]
    assert result.groups["raw files"][0].after is None
    assert (result.is_same_artifact, result.is_same_content) == (False, False)
    json.dumps(asdict(result))


def test_input_rebuilt_to_the_same_bytes_is_no_difference(store: ArtifactStore) -> None:
    documents = [
        put(store, "build-documents", key=key, text=text)
        for key, text in (("old", "same"), ("new", "same"), ("other", "other"))
    ]
    old, same, other = (
        put(store, "build-tokens", {"documents": one}, key=one.cache_key) for one in documents
    )
    assert "inputs" not in difference(old, same).groups
    assert [change.name for change in difference(old, other).groups["inputs"]] == ["documents"]


def test_lines_are_limited_unless_all_are_requested(store: ArtifactStore) -> None:
    made = [
        put(store, "s", key=str(value), counters={f"n{number:02}": value for number in range(20)})
        for value in (1, 2)
    ]
    result = difference(*made)
    short = result.lines()
    assert short[0] == f"s {made[0].artifact_id} -> {made[1].artifact_id}: other content"
    assert "  n00: 1 -> 2 (+1)" in short
    assert "  and 12 more (--all)" in short
    assert "  n19: 1 -> 2 (+1)" in result.lines(show_all=True)
    assert difference(made[0], made[0]).is_same_artifact


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (0.5, 0.75, "x: 0.5 -> 0.75 (+0.25)"),
        (1000, 1, "x: 1,000 -> 1 (-999)"),
        (None, 3, "x: none -> 3"),
        (True, False, "x: True -> False"),
    ],
)
def test_change_as_text(before: object, after: object, text: str) -> None:
    assert str(Change("x", before, after)) == text


def corpus(store: ArtifactStore, texts: dict[int, tuple[int, str]]) -> str:
    rows: list[dict[str, Any]] = [
        {
            "document_id": f"wiki:{page}:{revision}", "source": "wiki", "title": f"Page {page}",
            "sentences": [text], "digest": text_digest([text]), "file": "0" * 64, "byte_start": 0,
            "byte_end": 1, "page_id": page, "revision_id": revision, "timestamp": "",
        }
        for page, (revision, text) in texts.items()
    ]  # fmt: skip
    attempt = store.begin("build-documents")
    with ShardWriter("part-00000.arrow", schema=DOCUMENTS, output=attempt.output) as writer:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=DOCUMENTS))
    made = put(
        store, "build-documents", key=attempt.artifact_id, artifact_id=attempt.artifact_id,
        artifact_path=attempt.location, files=(writer.entry(),), table_name="documents",
    )  # fmt: skip
    return made.artifact_id


def test_added_removed_and_changed_documents(store: ArtifactStore, cli: Cli) -> None:
    old = {page: (page * 10, f"Text of page {page}.") for page in range(1, 9)}
    new = {**old, 3: (31, "Text of page three."), 9: (90, "A new one."), 4: (41, old[4][1])}
    del new[5]
    ids = [corpus(store, texts) for texts in (old, new)]
    result = cli("diff", *ids, "--store", store.root)
    assert result.code == 0, result.err
    assert "documents: 1 came, 1 went, 1 changed, 6 same" in result.out
    assert "came: Page 9 (wiki:9:90)" in result.out
    assert "went: Page 5 (wiki:5:50)" in result.out
    assert "changed: Page 3 (wiki:3:30 -> wiki:3:31)" in result.out
    assert "Text of page [-3.-] {+three.+}" in result.out
    assert "{+A new one.+}" in result.out
    assert "[-Text of page 5.-]" in result.out
    changes = json.loads(cli("diff", *ids, "--store", store.root, "--json", "--examples", "0").out)
    assert changes["documents"]["counts"] == {"came": 1, "went": 1, "changed": 1, "same": 6}
    assert changes["documents"]["examples"] == {}
