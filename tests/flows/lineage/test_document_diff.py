"""Added, removed and changed documents of two corpora, by page and not by revision."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from support.cli_runner import Cli
from support.lineage_builder import put

from flows.store.artifacts import ArtifactStore
from pipelines.documents.records import text_digest
from pipelines.io.shards import ShardWriter
from schemas.arrow import DOCUMENTS


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
    assert "changed: Page 3 (wiki:3:31, revision 30 -> 31)" in result.out
    assert "Text of page [-3.-] {+three.+}" in result.out
    changes = json.loads(cli("diff", *ids, "--store", store.root, "--json", "--examples", "0").out)
    assert changes["documents"]["counts"] == {"came": 1, "went": 1, "changed": 1, "same": 6}
    assert changes["documents"]["examples"] == {}
