"""An item of a split that fills several shards, processed and restored."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.dump_builder import dump, page

from pipelines.counters import check_balance
from pipelines.documents import build_shard
from pipelines.documents.build_shard import BuildDocumentShard
from pipelines.documents.plan import plan
from pipelines.shard_job.item_cache import CachingShardFn, ItemCache
from pipelines.shard_job.work import WorkResult
from schemas.corpus_configs import DocumentsConfig, WikipediaSource


def _pages() -> list[str]:
    sentence = "The town of {0} is {{{{odd}}}} large. It lies by the sea, and it is {0} years old. "
    kept = [page(number, sentence.format(number) * 8) for number in range(1, 40)]
    return [*kept, page(40, "#REDIRECT [[Page 2]]"), page(41, "Short.")]


def _contents(result: WorkResult) -> Any:
    """Return what the launching process gets, except random names and reuse."""
    values = json.loads(result.to_json())
    del values["reused"]
    for entry in values["files"]:
        del entry["stored_name"]
    return values, result.blobs


def test_restored_item_of_several_shards_equals_processed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_shard, "_BATCH_CHARACTERS", 1_500)
    path = tmp_path / "xxwiki.xml.gz"
    path.write_bytes(gzip.compress(dump(_pages())))
    source = WikipediaSource(name="wiki", paths=(str(path),))
    config = DocumentsConfig(sources=(source,), max_shard_bytes=3_000, min_words=3)
    (item,) = plan(config)
    records = tmp_path / "pieces/build-documents/0"
    records.mkdir(parents=True)
    results = []
    for attempt in ("first", "second"):
        output = tmp_path / f"artifacts/build-documents/{attempt}/data"
        output.mkdir(parents=True)
        work = CachingShardFn(
            BuildDocumentShard(config, str(output)), ItemCache(str(records), str(output))
        )
        work.setup()
        results.append(work.process(item))
    processed, restored = results
    assert (processed.reused, restored.reused) == (False, True)
    assert _contents(restored) == _contents(processed)
    assert len(processed.files) > 3
    assert processed.blobs
    assert sum(entry.rows or 0 for entry in processed.files) == 39
    for records in ("pages", "documents"):
        check_balance(processed.counters, records, where="wiki")
