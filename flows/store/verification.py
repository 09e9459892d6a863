"""Verification: compare artifacts with what was written, and find missing records.

Corrupt artifacts are quarantined, so that the next run builds them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, cast

from flows.store.artifacts import ArtifactStore, size_error
from flows.store.backend import StoreBackend
from flows.store.pointers import Pointer, Ref
from flows.store.records import read_records
from flows.store.runs import read_runs, record_path
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.fingerprint import cache_key, content_digest
from schemas.manifest import FileEntry, Manifest

_Checked = dict[tuple[object, ...], str]
"""Errors of files, by version and expected digest; "" for an intact file."""


class VerifyResult(NamedTuple):
    """Result for one artifact."""

    artifact_id: str
    stage: str
    errors: tuple[str, ...]
    """Differences from what was written. Empty if the artifact is ok."""

    files: int = 0
    """Number of files in the manifest."""

    size: int = 0
    """Bytes of these files."""

    @property
    def is_ok(self) -> bool:
        return not self.errors


def verify(
    store: ArtifactStore, pointers: Sequence[Pointer], *, deep: bool = True
) -> list[VerifyResult]:
    """Check artifacts: the manifest against its pointer and itself, files, and inputs.

    Args:
        store: Artifact store.
        pointers: Artifacts to check.
        deep: Compare the digest of each file, not only its size.
    """
    checked: _Checked | None = {} if deep else None
    return [_verify(store, pointer, checked) for pointer in pointers]


def quarantine(store: ArtifactStore, results: Sequence[VerifyResult]) -> None:
    """Quarantine the artifacts with errors.

    Records of work items stay: a job that reuses an item compares the digest of its files.
    """
    corrupt = {result.artifact_id: result for result in results if not result.is_ok}
    for pointer in store.pointers():
        if (result := corrupt.get(pointer.artifact_id)) is not None:
            reason = "; ".join(result.errors)
            stored = store.backend.read_if_exists(pointer.path)
            if stored is not None and Pointer.from_json(stored) == pointer:
                store.quarantine(pointer.path, expected=stored, reason=reason)


def _verify(store: ArtifactStore, pointer: Pointer, checked: _Checked | None) -> VerifyResult:
    try:
        manifest = store.read_manifest(pointer.manifest)
    except (ArtifactCorruptError, ArtifactNotFoundError) as error:
        return VerifyResult(pointer.artifact_id, pointer.stage, (str(error),))
    expected = {
        "manifest_path": pointer.manifest,
        **pointer.model_dump(include={"artifact_id", "cache_key", "content_digest", "stage"}),
    }
    computed = {
        "cache_key": cache_key(manifest.cache_key_inputs),
        "content_digest": content_digest(manifest.files),
    }
    errors = [
        *_differences(manifest, expected),
        *_differences(manifest, computed),
        *_check_files(store, manifest, checked),
        *_check_inputs(store, manifest),
    ]
    return VerifyResult(
        manifest.artifact_id,
        manifest.stage,
        tuple(errors),
        len(manifest.files),
        manifest.size_bytes,
    )


def _differences(manifest: Manifest, expected: dict[str, str]) -> list[str]:
    return [
        f"manifest: {name}: expected {value}, got {getattr(manifest, name)}"
        for name, value in expected.items()
        if getattr(manifest, name) != value
    ]


def _check_files(
    store: ArtifactStore, manifest: Manifest, checked: _Checked | None
) -> Iterator[str]:
    """Yield the error of each corrupt file."""
    sizes = store.backend.sizes(manifest.data_path)
    for entry in manifest.files:
        if error := size_error(entry, sizes.get(entry.stored_name)):
            yield error
        elif checked is not None:
            path = f"{manifest.data_path}/{entry.stored_name}"
            key = (*store.backend.version(path), entry.sha256)
            if key not in checked:  # a file that artifacts share by hard links is read once
                checked[key] = _check_content(store.backend, path, entry)
            if checked[key]:
                yield f"{entry.path}: {checked[key]}"


def _check_inputs(store: ArtifactStore, manifest: Manifest) -> Iterator[str]:
    for ref in manifest.inputs:
        if ref.store:  # the loss of another store does not damage this one
            continue
        try:
            content = store.read_manifest(ref.manifest).content_digest
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            yield f"input {ref.name}: {error}"
        else:
            if content != ref.content_digest:
                yield f"input {ref.name}: expected content {ref.content_digest}, got {content}"


def _check_content(backend: StoreBackend, path: str, entry: FileEntry) -> str:
    """Return the error of a corrupt file, "" for none."""
    with backend.open(path) as source:
        sha256 = hashlib.file_digest(cast("Any", source), "sha256").hexdigest()
    return "" if sha256 == entry.sha256 else f"expected sha256 {entry.sha256}, got {sha256}"


# Records


def check_records(store: ArtifactStore) -> list[str]:
    """Return an error for each record that cannot be read, or that others refer to and is missing.

    Reports are not checked: they can be written again at any time.
    """
    backend = store.backend
    existing = set(backend.stat(""))
    pointers = read_records(backend, Pointer, _below("keys", existing))
    refs = read_records(backend, Ref, _below("refs", existing))
    run_ids = sorted({path.split("/")[1] for path in existing if path.startswith("runs/")})
    runs = read_runs(store, run_ids)
    records = (*pointers.values(), *refs.values(), *runs.values())
    errors = [str(record) for record in records if isinstance(record, ArtifactCorruptError)]
    expected = {record_path(run_id): "other files of the run exist" for run_id in run_ids}
    for ref in refs.values():
        if isinstance(ref, Ref):
            expected |= _files_of_ref(ref, existing)
    for path, reason in sorted(expected.items()):
        if path not in existing:
            errors.append(f"{store.url(path)}: missing: {reason}")
    return errors


def _below(folder: str, paths: Collection[str]) -> list[str]:
    """Return the JSON files below a folder, without hidden ones."""
    return sorted(
        path
        for path in paths
        if path.startswith(f"{folder}/") and path.endswith(".json") and "/." not in path
    )


def _files_of_ref(ref: Ref, existing: Collection[str]) -> dict[str, str]:
    """Return the manifests and the pointer that a ref needs, with the reason."""
    reason = f"ref {ref.name} points to it. Run the recipe again, or delete the ref"
    pointer = ref.pointer
    quarantined = f"quarantine/{pointer.stage}/{pointer.cache_key}-"
    paths = list(pointer.manifests)
    if pointer.manifest in existing and not any(p.startswith(quarantined) for p in existing):
        paths.append(pointer.path)
    return dict.fromkeys(paths, reason)
