"""Verification: compare artifacts with what was written, and find missing records.

Corrupt artifacts are quarantined, so that the next run builds them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from flows.store.artifacts import ArtifactStore, Conflict, size_error
from flows.store.backend import StoreBackend
from flows.store.pointers import Pointer, Ref
from flows.store.records import read_records
from flows.store.runs import read_runs, record_path
from flows.store.work_items import delete_items
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.fingerprint import cache_key, content_digest, logical_digest
from schemas.manifest import FileEntry, Manifest

_Checked = dict[tuple[object, ...], tuple[str, list[str]]]
"""Errors of files and of their rows, by version of the file and what it was compared with."""


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

    is_inconsistent: bool = False
    """True if the manifest contradicts itself or unchanged files. The work item records that the
    artifact came from can then be wrong, too."""

    @property
    def is_ok(self) -> bool:
        return not self.errors


def verify(
    store: ArtifactStore,
    pointers: Sequence[Pointer],
    *,
    deep: bool = True,
    rows: bool = False,
) -> list[VerifyResult]:
    """Check artifacts: the manifest against its pointer and itself, files, and inputs.

    Args:
        store: Artifact store.
        pointers: Artifacts to check.
        deep: Compare the digest of each file, not only its size.
        rows: Also compare the number and the digest of the rows of tables; requires `deep`.
    """
    checked: _Checked | None = {} if deep else None
    return [_verify(store, pointer, checked, rows=rows) for pointer in pointers]


def quarantine(store: ArtifactStore, results: Sequence[VerifyResult]) -> None:
    """Quarantine the artifacts with errors.

    The records of the work items of an inconsistent artifact are deleted. Other records stay: a job
    that reuses an item compares the digest of its files.
    """
    corrupt = {result.artifact_id: result for result in results if not result.is_ok}
    for pointer in store.pointers():
        if (result := corrupt.get(pointer.artifact_id)) is not None:
            if result.is_inconsistent:  # first: a run that finds no pointer reads these records
                delete_items(store.backend, pointer.stage, pointer.location)
            reason = "; ".join(result.errors)
            stored = store.backend.read_if_exists(pointer.path)
            if stored is not None and Pointer.from_json(stored) == pointer:
                store.quarantine(pointer.path, expected=stored, reason=reason)


def _verify(
    store: ArtifactStore, pointer: Pointer, checked: _Checked | None, *, rows: bool
) -> VerifyResult:
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
        "rows_digest": logical_digest(manifest.files),
    }
    corrupt, wrong_rows = _check_files(store, manifest, checked, rows=rows)
    inconsistent = [*_differences(manifest, computed), *wrong_rows]
    errors = [
        *_differences(manifest, expected),
        *inconsistent,
        *corrupt,
        *_check_inputs(store, manifest),
    ]
    return VerifyResult(
        manifest.artifact_id,
        manifest.stage,
        tuple(errors),
        len(manifest.files),
        manifest.size_bytes,
        is_inconsistent=bool(inconsistent),
    )


def _differences(manifest: Manifest, expected: dict[str, str]) -> list[str]:
    return [
        f"manifest: {name}: expected {value}, got {getattr(manifest, name)}"
        for name, value in expected.items()
        if getattr(manifest, name) != value
    ]


def _check_files(
    store: ArtifactStore, manifest: Manifest, checked: _Checked | None, *, rows: bool
) -> tuple[list[str], list[str]]:
    """Return the error of each corrupt file, and the errors in rows of files that are ok."""
    sizes = store.backend.sizes(manifest.data_path)
    corrupt: list[str] = []
    wrong_rows: list[str] = []
    for entry in manifest.files:
        if error := size_error(entry, sizes.get(entry.stored_name)):
            corrupt.append(error)
        elif checked is not None:
            path = f"{manifest.data_path}/{entry.stored_name}"
            key = (*store.backend.version(path), entry.sha256, entry.rows, entry.rows_digest)
            if key not in checked:  # a file that artifacts share by hard links is read once
                checked[key] = _check_content(store.backend, path, entry, rows=rows)
            error, row_errors = checked[key]
            corrupt += [f"{entry.path}: {error}"] if error else []
            wrong_rows += [f"{entry.path}: {text}" for text in row_errors]
    return corrupt, wrong_rows


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


def _check_content(
    backend: StoreBackend, path: str, entry: FileEntry, *, rows: bool
) -> tuple[str, list[str]]:
    """Return the error of a corrupt file, "" for none, and the errors of the rows."""
    with backend.open(path) as source:
        sha256 = hashlib.file_digest(cast("Any", source), "sha256").hexdigest()
        if sha256 != entry.sha256:
            return f"expected sha256 {entry.sha256}, got {sha256}", []
        if entry.rows is None or not rows:
            return "", []
        source.seek(0)
        return "", _check_rows(source, entry)


def _check_rows(source: IO[bytes], entry: FileEntry) -> list[str]:
    """Return what differs between the rows of an Arrow IPC file and its entry."""
    import pyarrow as pa  # a run, which verifies no rows, does not load it

    from pipelines.io.row_digest import MODULUS, rows_digest

    num_rows = digest = 0
    try:
        with pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                num_rows += batch.num_rows
                digest += rows_digest(batch)
    except (pa.ArrowException, ValueError) as error:
        return [f"expected an Arrow IPC file: {error}"]
    actual = {"rows": num_rows, "rows_digest": f"{digest % MODULUS:032x}"}
    return [
        f"{name}: expected {getattr(entry, name)}, got {value}"
        for name, value in actual.items()
        if getattr(entry, name) not in ("", value)
    ]


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
    conflicts = read_records(backend, Conflict, _below("quarantine/conflicts", existing))
    records = (*pointers.values(), *refs.values(), *runs.values(), *conflicts.values())
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
