"""Manifests find their files and inputs, and refuse invalid fields and paths."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, ValidationError
from support.store_builder import describe, file_entry

from flows.reproduction.inputs import InputFile
from flows.store.artifacts import Attempt
from flows.store.pointers import Pointer
from flows.store.runs import StepRecord
from model.training.checkpoint_files import TensorFileEntry
from pipelines.beam.item_cache import CacheRecord
from schemas.manifest import FileEntry, InputRef, Manifest, path_order

DIGEST = "0" * 64
INPUT = InputRef(
    name="documents",
    stage="build-documents",
    artifact_id="b" * 16,
    cache_key=DIGEST,
    content_digest=f"sha256:{DIGEST}",
    manifest="artifacts/build-documents/bbbbbbbbbbbbbbbb/manifest.json",
)


@pytest.fixture
def manifest() -> Manifest:
    attempt = Attempt("a" * 16, "artifacts/build-tokens/aaaaaaaaaaaaaaaa", "")
    files = (file_entry("part-00000.arrow"), file_entry("part-00001.arrow", size_bytes=4))
    return describe(attempt, files, inputs=(INPUT,))


def test_manifest_survives_json(manifest: Manifest) -> None:
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest


def test_json_schema_accepts_manifest_and_refuses_other_digest(manifest: Manifest) -> None:
    schema = Manifest.model_json_schema()
    fields = manifest.model_dump(mode="json")
    jsonschema.validate(fields, schema)
    with pytest.raises(jsonschema.ValidationError, match="content_digest"):
        jsonschema.validate({**fields, "content_digest": "md5:1"}, schema)


def test_manifest_finds_files_and_inputs_by_name(manifest: Manifest) -> None:
    assert manifest.manifest_path == "artifacts/build-tokens/aaaaaaaaaaaaaaaa/manifest.json"
    assert manifest.data_path == "artifacts/build-tokens/aaaaaaaaaaaaaaaa/data"
    assert manifest.size_bytes == 7
    assert manifest.file("part-00001.arrow") == manifest.files[1]
    assert manifest.file("part-00002.arrow") is None
    assert manifest.input("documents") == INPUT
    assert manifest.input("tokens") is None


@pytest.mark.parametrize(
    "fields",
    [{"size_bytes": -1}, {"sha256": "G" * 64}, {"rows_digest": "12"}, {"rows": -1}, {"color": "b"}],
)
def test_invalid_file_entry_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        file_entry("part-00000.arrow", **fields)


PATHS = [
    (FileEntry, "path"),
    (FileEntry, "stored_name"),
    (InputRef, "manifest"),
    (Manifest, "artifact_path"),
    (Pointer, "manifest"),
    (StepRecord, "manifest"),
    (InputFile, "path"),
    (TensorFileEntry, "path"),
    (CacheRecord, "created_in"),
]


@pytest.mark.parametrize(("model", "field"), PATHS)
@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a/.."])
def test_record_with_path_outside_of_its_folder_is_refused(
    model: type[BaseModel], field: str, path: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({field: path})
    assert [error["type"] for error in caught.value.errors() if error["loc"] == (field,)] == [
        "value_error"
    ]


def test_path_order_is_numeric_when_numbers_outgrow_their_width() -> None:
    shards = [
        f"part-{split:05d}-{file:03d}.arrow"
        for split in (7, 99_999, 100_000)
        for file in (999, 1000)
    ]
    paths = ["__held-out__/held-out-00000.arrow", "duplicates.arrow", *shards, "vocab.txt"]
    assert sorted(paths, key=path_order) == paths


def test_path_order_is_alphabetic_when_numbers_have_equal_width() -> None:
    paths = ["part-00010-000.arrow", "part-00009-001.arrow", "vocab.txt", "bucket-000010.arrow"]
    assert sorted(paths, key=path_order) == sorted(paths)
