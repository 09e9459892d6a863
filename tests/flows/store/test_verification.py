from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from support.store_builder import STAGE, damage, describe, input_from, published

from flows.store.artifacts import ArtifactStore
from flows.store.pointers import pointer_to
from flows.store.shard_checks import read_rows
from flows.store.verification import VerifyResult, verify
from pipelines.io.shards import ShardWriter
from schemas.arrow import tokens_schema
from schemas.checksummed import dump_json
from schemas.manifest import FileEntry, Manifest

SCHEMA = tokens_schema(100)
ROWS = {
    "document_id": ["a", "b"],
    "token_ids": [[1, 2], [3]],
    "sentence_lengths": [[2], [1]],
    "split_id": [None, None],
}


@pytest.fixture(params=["local", "memory"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    is_local = request.param == "local"
    return ArtifactStore(str(tmp_path) if is_local else f"memory://{tmp_path.name}/store")


def with_shard(store: ArtifactStore, schema: pa.Schema = SCHEMA, **changes: Any) -> Manifest:
    """An artifact with one shard; `changes` are of the shard's entry."""
    attempt = store.begin(STAGE)
    with ShardWriter("part-00000.arrow", schema=SCHEMA, output=attempt.output) as writer:
        writer.write(pa.record_batch(ROWS, schema=SCHEMA))
    entry = writer.entry()
    if schema is not SCHEMA:
        path = Path(attempt.output, entry.object)
        with pa.ipc.new_file(path, schema) as sink:
            sink.write(pa.record_batch(ROWS, schema=schema))
        entry = of_bytes(entry, path)
    entry = entry.model_copy(update=changes)
    return store.commit(describe(attempt, [entry], table="tokens")).manifest


def of_bytes(entry: FileEntry, path: Path) -> FileEntry:
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    return entry.model_copy(update={"size": len(data), "sha256": sha256})


def check(store: ArtifactStore, manifest: Manifest, *, rows: bool = True) -> VerifyResult:
    [verdict] = verify(store, [pointer_to(manifest)], read_rows=read_rows if rows else None)
    return verdict


def test_rows_that_are_as_they_should_be(store: ArtifactStore) -> None:
    assert check(store, with_shard(store)).is_ok
    assert check(store, published(store, spec={"seed": 3})).is_ok  # no table


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rows": 3}, "3 rows"),
        ({"logical": "0" * 32}, "expected rows with the digest"),
    ],
)
def test_rows_that_are_others_are_found(
    store: ArtifactStore, changes: dict[str, Any], problem: str
) -> None:
    manifest = with_shard(store, **changes)
    assert check(store, manifest, rows=False).is_ok
    [text] = check(store, manifest).errors
    assert text.startswith("part-00000.arrow: ")
    assert problem in text


def test_a_table_of_another_name_is_found(store: ArtifactStore) -> None:
    metadata = {**SCHEMA.metadata, b"bertloom.table": b"documents"}
    [text] = check(store, with_shard(store, SCHEMA.with_metadata(metadata))).errors
    assert "'documents'" in text


def test_a_column_of_another_type_is_found(store: ArtifactStore) -> None:
    column = pa.field("token_ids", pa.list_(pa.field("item", pa.int64(), nullable=False)))
    changed = SCHEMA.set(1, column)
    problems = check(store, with_shard(store, changed)).errors
    assert any("token_ids: list<item: int64" in text for text in problems)


def test_what_is_no_table_is_found(store: ArtifactStore) -> None:
    manifest = published(store)
    entry = manifest.files[0].model_copy(update={"rows": 1})
    attempt = store.begin(STAGE)
    Path(attempt.output, entry.object).write_bytes(b"one")
    changed = store.commit(describe(attempt, [entry], spec={"seed": 8})).manifest
    assert "expected an Arrow IPC file" in check(store, changed).errors[0]


def test_a_file_that_artifacts_share_is_read_once(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = with_shard(store)
    attempt = store.begin(STAGE)
    [entry] = first.files
    Path(attempt.output, "linked").hardlink_to(store.url(f"{first.data}/{entry.object}"))
    linked = entry.model_copy(update={"object": "linked"})
    made = describe(attempt, [linked], table="tokens", spec={"seed": 7})
    second = store.commit(made).manifest
    read: list[str] = []
    open_file = store.backend.open

    def record(path: str) -> IO[bytes]:
        read.append(path)
        return open_file(path)

    monkeypatch.setattr(store.backend, "open", record)
    verdicts = verify(store, [pointer_to(first), pointer_to(second)], read_rows=read_rows)
    assert all(verdict.is_ok for verdict in verdicts)
    assert len(read) == 1


def test_verifying_reads_every_byte(any_store: ArtifactStore) -> None:
    manifest = published(any_store)
    [verdict] = verify(any_store, list(any_store.pointers()))
    assert (verdict.is_ok, verdict.files, verdict.size) == (True, 1, 3)
    damage(any_store, manifest, b"onf")  # one bit, the same size
    assert verify(any_store, list(any_store.pointers()), deep=False)[0].is_ok
    [verdict] = verify(any_store, list(any_store.pointers()))
    assert "vocab.txt: expected sha256" in verdict.errors[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"key_spec": {"stage": STAGE, "seed": 9}}, "cache_key"),
        ({"content": f"sha256:{'0' * 64}"}, "content"),
        ({"logical_content": "3:0"}, "logical_content"),
        ({"artifact_id": "0" * 16}, "artifact_id"),
    ],
)
def test_verifying_finds_a_manifest_that_was_edited(
    any_store: ArtifactStore, change: dict[str, Any], problem: str
) -> None:
    manifest = published(any_store)
    edited = manifest.model_copy(update=change).model_dump(mode="json")
    any_store.backend.replace(manifest.path, dump_json(edited))
    [verdict] = verify(any_store, list(any_store.pointers()))
    assert any(problem in text for text in verdict.errors)


def test_verifying_follows_inputs(any_store: ArtifactStore) -> None:
    source = published(any_store)
    product = published(any_store, "two", **input_from(source))
    pointer = pointer_to(product)
    assert verify(any_store, [pointer])[0].is_ok
    any_store.backend.delete(source.path)
    assert "input documents" in verify(any_store, [pointer])[0].errors[0]
