from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, ValidationError
from support.store_builder import produced_by

from flows.reproduction.inputs import InputFile
from flows.store.pointers import Pointer
from flows.store.runs import StepRecord
from model.training.checkpoint_files import TensorFileEntry
from pipelines.beam.item_cache import CacheRecord
from schemas.manifest import Environment, FileEntry, InputRef, Manifest, path_order

DIGEST = "0" * 64


def entry(path: str = "part-00000.arrow", **changes: Any) -> FileEntry:
    return FileEntry(
        **{"path": path, "stored_name": f"{path}-x", "size_bytes": 3, "sha256": DIGEST, **changes}
    )


def manifest(**changes: Any) -> Manifest:
    reference = InputRef(
        name="documents",
        stage="build-documents",
        artifact_id="b" * 16,
        cache_key=DIGEST,
        content_digest=f"sha256:{DIGEST}",
        manifest="artifacts/build-documents/bbbbbbbbbbbbbbbb/manifest.json",
    )
    given: dict[str, Any] = {
        "artifact_id": "a" * 16,
        "stage": "build-tokens",
        "stage_version": 1,
        "cache_key": DIGEST,
        "cache_key_inputs": {"v": 1},
        "content_digest": f"sha256:{DIGEST}",
        "rows_digest": "",
        "artifact_path": "artifacts/build-tokens/aaaaaaaaaaaaaaaa",
        "files": (entry(), entry("part-00001.arrow", size_bytes=4)),
        "counters": {"documents-in": 1},
        "statistics": {},
        "table_name": "tokens",
        "notes": (),
        "raw_inputs": (),
        "inputs": (reference,),
        "produced_by": produced_by(),
        "environment": Environment(python="3.11.7", platform="Linux", packages={}),
        "config": {},
    }
    return Manifest(**{**given, **changes})


def test_it_survives_json() -> None:
    assert Manifest.model_validate_json(manifest().model_dump_json()) == manifest()


def test_its_json_schema_accepts_it_and_refuses_another() -> None:
    schema = Manifest.model_json_schema()
    good = manifest().model_dump(mode="json")
    jsonschema.validate(good, schema)
    with pytest.raises(jsonschema.ValidationError, match="content_digest"):
        jsonschema.validate({**good, "content_digest": "md5:1"}, schema)


def test_it_answers_by_name() -> None:
    found = manifest()
    assert found.manifest_path == "artifacts/build-tokens/aaaaaaaaaaaaaaaa/manifest.json"
    assert found.data_path == "artifacts/build-tokens/aaaaaaaaaaaaaaaa/data"
    assert found.size_bytes == 7
    assert found.file("part-00001.arrow") == entry("part-00001.arrow", size_bytes=4)
    assert found.file("part-00002.arrow") is None
    reference = found.input("documents")
    assert reference is not None
    assert reference.stage == "build-documents"
    assert found.input("tokens") is None


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        manifest().stage = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        {"size_bytes": -1},
        {"sha256": "abc"},
        {"sha256": DIGEST.upper().replace("0", "G")},
        {"rows_digest": "12"},
        {"rows": -1},
        {"colour": "blue"},
    ],
)
def test_a_file_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        entry(**wrong)


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


def test_path_order_is_the_order_of_the_plan_when_numbers_have_more_digits_than_the_names() -> None:
    shards = [
        f"part-{piece:05d}-{file:03d}.arrow"
        for piece in (7, 99_999, 100_000)
        for file in (999, 1000)
    ]
    paths = ["__held-out__/held-out-00000.arrow", "duplicates.arrow", *shards, "vocab.txt"]
    assert sorted(paths, key=path_order) == paths


def test_path_order_is_that_of_the_text_when_numbers_have_as_many_digits() -> None:
    paths = ["part-00010-000.arrow", "part-00009-001.arrow", "vocab.txt", "bucket-000010.arrow"]
    assert sorted(paths, key=path_order) == sorted(paths)
