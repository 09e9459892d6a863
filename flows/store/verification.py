"""Verification: compare the content of a store with what was written.

`verify` checks artifacts with their pointers and manifests, `check_records` all other files.
Corrupt artifacts are quarantined, so that the next run builds them again. Among other files, only
work item records can be deleted without loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from flows.store.artifacts import CARD, ArtifactStore
from flows.store.missing_files import Problem, find_missing_files, find_missing_items
from flows.store.pointers import Pointer
from flows.store.records import REMEDIES
from flows.store.shard_checks import ShardRows, read_rows
from flows.store.work_items import check_blobs, delete_item
from schemas.checksummed import load_json, load_page
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.fingerprint import cache_key, content_digest, logical_digest
from schemas.manifest import FileEntry, Manifest

_POINTER_FIELDS = ("artifact_id", "cache_key", "content_digest", "stage")


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

    corrupt_files: tuple[str, ...] = ()
    """Stored names of files with other bytes than were written."""

    is_inconsistent: bool = False
    """True if the manifest contradicts itself or unchanged files. The work item records that the
    artifact came from can then be wrong, too."""

    @property
    def is_ok(self) -> bool:
        return not self.errors


def verify(
    store: ArtifactStore, pointers: Sequence[Pointer], *, deep: bool = True, rows: bool = False
) -> list[VerifyResult]:
    """Check artifacts: the manifest against its pointer and itself, files, and inputs.

    Args:
        store: Artifact store.
        pointers: Artifacts to check.
        deep: Compare the digest of each file, not only its size.
        rows: Read tables and compare their schema and the digest of their rows as well.
    """
    reader = _Reader(store, rows=rows) if deep or rows else None
    return [_verify(store, pointer, reader=reader) for pointer in pointers]


def quarantine(store: ArtifactStore, results: Sequence[VerifyResult]) -> None:
    """Quarantine the artifacts with errors."""
    corrupt = [result for result in results if not result.is_ok]
    store.quarantine_artifacts(
        {result.artifact_id: "; ".join(result.errors) for result in corrupt},
        files={r.artifact_id: r.corrupt_files for r in corrupt if not r.is_inconsistent},
    )


def _verify(store: ArtifactStore, pointer: Pointer, *, reader: _Reader | None) -> VerifyResult:
    try:
        manifest = store.read_manifest(pointer.manifest)
    except (ArtifactCorruptError, ArtifactNotFoundError) as error:
        return VerifyResult(pointer.artifact_id, pointer.stage, (str(error),))
    corrupt, wrong_rows = _check_files(store, manifest, reader=reader)
    inconsistent = [*check_manifest(manifest), *wrong_rows]
    expected = {name: getattr(pointer, name) for name in _POINTER_FIELDS}
    errors = [
        *_differences(manifest, {**expected, "path": pointer.manifest}),
        *inconsistent,
        *corrupt.values(),
        *_check_inputs(store, manifest),
    ]
    return VerifyResult(
        manifest.artifact_id,
        manifest.stage,
        tuple(errors),
        len(manifest.files),
        manifest.size_bytes,
        corrupt_files=tuple(corrupt),
        is_inconsistent=bool(inconsistent),
    )


def check_manifest(manifest: Manifest) -> list[str]:
    """Return the fields of a manifest that contradict others, one text each."""
    computed = {
        "cache_key": cache_key(manifest.cache_key_inputs),
        "content_digest": content_digest(manifest.files),
        "rows_digest": logical_digest(manifest.files),
    }
    return _differences(manifest, computed)


def _differences(manifest: Manifest, expected: dict[str, str]) -> list[str]:
    return [
        f"manifest: {name}: expected {value}, got {getattr(manifest, name)}"
        for name, value in expected.items()
        if getattr(manifest, name) != value
    ]


def _check_files(
    store: ArtifactStore, manifest: Manifest, *, reader: _Reader | None
) -> tuple[dict[str, str], list[str]]:
    """Return the error of each corrupt file by its stored name, and errors in rows of ok files."""
    sizes = store.backend.sizes(manifest.data_path)
    corrupt: dict[str, str] = {}
    wrong_rows: list[str] = []
    for entry in manifest.files:
        size = sizes.get(entry.stored_name)
        if size is None:
            corrupt[entry.stored_name] = f"{entry.path}: {entry.stored_name} is missing"
        elif size != entry.size_bytes:
            error = f"{entry.path}: expected {entry.size_bytes:,} bytes, got {size:,}"
            corrupt[entry.stored_name] = error
        elif reader is not None:
            sha256, rows = reader.read(f"{manifest.data_path}/{entry.stored_name}", entry)
            if sha256 != entry.sha256:
                error = f"{entry.path}: expected sha256 {entry.sha256}, got {sha256}"
                corrupt[entry.stored_name] = error
            elif rows is not None:
                wrong_rows += [f"{entry.path}: {text}" for text in rows.errors(entry, manifest)]
    return corrupt, wrong_rows


def _check_inputs(store: ArtifactStore, manifest: Manifest) -> Iterator[str]:
    keyed = manifest.cache_key_inputs.get("inputs", {})
    for ref in manifest.inputs:
        try:
            content = store.read_manifest(ref.manifest).content_digest
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            yield f"input {ref.name}: {error}"
            continue
        if not content == ref.content_digest == keyed.get(ref.name, {}).get("content"):
            yield (
                f"input {ref.name}: expected the same content in {ref.manifest}, in the manifest "
                f"and in the cache key, got {content} and {ref.content_digest}"
            )


class _Reader:
    """Reads files. A file that artifacts share by hard links is read once."""

    def __init__(self, store: ArtifactStore, *, rows: bool) -> None:
        self._backend, self._rows = store.backend, rows
        self._results: dict[tuple[object, ...], tuple[str, ShardRows | None]] = {}

    def read(self, path: str, entry: FileEntry) -> tuple[str, ShardRows | None]:
        """Return the sha256 of a file and, if it is as expected and requested, its rows."""
        version = self._backend.version(path)
        if version not in self._results:
            self._results[version] = self._read(path, entry)
        return self._results[version]

    def _read(self, path: str, entry: FileEntry) -> tuple[str, ShardRows | None]:
        with self._backend.open(path) as source:
            digest = hashlib.file_digest(cast("Any", source), "sha256").hexdigest()
            if digest != entry.sha256 or entry.rows is None or not self._rows:
                return digest, None
            source.seek(0)
            return digest, read_rows(source)


# Other files


class RecordReport(NamedTuple):
    """Result for the files of a store that do not belong to artifacts."""

    checked: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def check_records(
    store: ArtifactStore, *, has_card: Callable[[Manifest], bool] = lambda _: False
) -> RecordReport:
    """Read every record, page and card, and find missing ones.

    Args:
        store: Artifact store.
        has_card: Whether the artifact of a manifest has a card.
    """
    paths = [
        path
        for folder in REMEDIES.keys() - {"keys", "artifacts"}
        for path in store.backend.names(folder)
        if not path.endswith(".blobs")
    ]  # checked with their record
    manifests = [
        item
        for item in store.manifests(pointer.manifest for pointer in store.pointers()).values()
        if isinstance(item, Manifest)
    ]
    cards = {f"{item.artifact_path}/{CARD}": item.artifact_id for item in manifests}
    problems = list(find_missing_files(store, manifests, has_card=has_card))
    checked = 0
    for path in sorted([*paths, *cards]):
        if (stored := store.backend.read_if_exists(path)) is None:
            continue
        checked += 1
        if error := _record_error(store, path, stored):
            remedy = REMEDIES[path.partition("/")[0]]
            if path in cards:
                remedy = f"run `bertloom card {cards[path]} --write`"
            problems.append(Problem(path, f"{error}; {remedy}"))
    return RecordReport(checked, tuple(problems), tuple(find_missing_items(store, manifests)))


def _record_error(store: ArtifactStore, path: str, stored: bytes) -> str:
    try:
        if path.endswith((".html", ".md")):
            load_page(stored)
            return ""
        record = load_json(stored)
    except ValueError as error:
        return str(error)
    return check_blobs(store.backend, path, record) if path.startswith("pieces/") else ""


def delete_corrupt_items(store: ArtifactStore, report: RecordReport) -> None:
    """Delete the corrupt work item records."""
    for problem in report.problems:
        if problem.path.startswith("pieces/"):
            delete_item(store.backend, problem.path)
