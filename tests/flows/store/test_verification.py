"""`verify` compares artifacts with their manifests, and the rows of tables on request."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from support.store_builder import STAGE, damage, describe, input_from, published

from flows.store.artifacts import ArtifactStore
from flows.store.pointers import pointer_to
from flows.store.verification import verify
from pipelines.io.shards import ShardWriter
from schemas.arrow import tokens_schema
from schemas.checksummed import dump_json
from schemas.manifest import Manifest

SCHEMA = tokens_schema(100)
ROWS = {
    "document_id": ["a", "b"],
    "token_ids": [[1, 2], [3]],
    "sentence_lengths": [[2], [1]],
    "split_id": [None, None],
}


def publish_shard(store: ArtifactStore, *, data: bytes = b"", **fields: Any) -> Manifest:
    """Publish an artifact with one shard.

    Args:
        store: Artifact store.
        data: Content that the shard has instead of rows.
        **fields: Changed fields of the shard's entry.
    """
    attempt = store.begin(STAGE)
    with ShardWriter("part-00000.arrow", schema=SCHEMA, output=attempt.output) as writer:
        writer.write(pa.record_batch(ROWS, schema=SCHEMA))
    entry = writer.entry()
    path = Path(attempt.output, entry.stored_name)
    if data:
        path.write_bytes(data)
    stored = path.read_bytes()
    digest = {"size_bytes": len(stored), "sha256": hashlib.sha256(stored).hexdigest()}
    entry = entry.model_copy(update={**digest, **fields})
    return store.commit(describe(attempt, [entry], table_name="tokens")).manifest


def find_errors(store: ArtifactStore, manifest: Manifest, *, rows: bool = False) -> tuple[str, ...]:
    [result] = verify(store, [pointer_to(manifest)], rows=rows)
    assert result.is_ok == (not result.errors)
    return result.errors


# Files, manifests and inputs


def test_deep_verification_reads_every_byte(any_store: ArtifactStore) -> None:
    manifest = published(any_store)
    pointers = any_store.pointers()
    [result] = verify(any_store, pointers)
    assert (result.is_ok, result.files, result.size) == (True, 1, 3)
    damage(any_store, manifest, b"onf")  # one bit, the same size
    assert verify(any_store, pointers, deep=False)[0].is_ok
    [error] = find_errors(any_store, manifest)
    assert "vocab.txt" in error
    assert manifest.files[0].sha256 in error


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_key_inputs": {"stage": STAGE, "seed": 9}},
        {"content_digest": f"sha256:{'0' * 64}"},
        {"rows_digest": "3:0"},
        {"artifact_id": "0" * 16},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_edited_manifest_is_found(any_store: ArtifactStore, fields: dict[str, Any]) -> None:
    manifest = published(any_store)
    pointers = any_store.pointers()
    edited = manifest.model_copy(update=fields).model_dump(mode="json")
    any_store.backend.replace(manifest.manifest_path, dump_json(edited))
    name = next(iter(fields)).replace("_key_inputs", "_key")
    assert any(f"manifest: {name}" in error for error in verify(any_store, pointers)[0].errors)


def test_missing_input_is_found(any_store: ArtifactStore) -> None:
    source = published(any_store)
    product = published(any_store, "two", **input_from(source))
    assert find_errors(any_store, product) == ()
    any_store.backend.delete(source.manifest_path)
    [error] = find_errors(any_store, product)
    assert error.startswith("input documents: ")


def test_hard_linked_file_is_read_once(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish_shard(store)
    attempt = store.begin(STAGE)
    [entry] = first.files
    Path(attempt.output, "linked").hardlink_to(store.url(f"{first.data_path}/{entry.stored_name}"))
    linked = entry.model_copy(update={"stored_name": "linked"})
    second = store.commit(
        describe(attempt, [linked], table_name="tokens", spec={"seed": 7})
    ).manifest
    paths: list[str] = []
    open_file = store.backend.open

    def open_and_record(path: str) -> IO[bytes]:
        paths.append(path)
        return open_file(path)

    monkeypatch.setattr(store.backend, "open", open_and_record)
    pointers = [pointer_to(first), pointer_to(second)]
    assert all(result.is_ok for result in verify(store, pointers, rows=True))
    assert len(paths) == 1


# Rows


def test_rows_as_written_are_ok(store: ArtifactStore) -> None:
    assert find_errors(store, publish_shard(store), rows=True) == ()
    assert find_errors(store, published(store, spec={"seed": 3}), rows=True) == ()  # no table


@pytest.mark.parametrize(
    ("fields", "expected"), [({"rows": 3}, "expected 3"), ({"rows_digest": "0" * 32}, "0" * 32)]
)
def test_other_rows_are_found(store: ArtifactStore, fields: dict[str, Any], expected: str) -> None:
    manifest = publish_shard(store, **fields)
    assert find_errors(store, manifest) == ()
    [error] = find_errors(store, manifest, rows=True)
    assert error.startswith("part-00000.arrow: ")
    assert expected in error


def test_file_that_is_no_table_is_found(store: ArtifactStore) -> None:
    [error] = find_errors(store, publish_shard(store, data=b"one"), rows=True)
    assert error.startswith("part-00000.arrow: ")
