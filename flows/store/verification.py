"""Verification: that a store holds, to the byte, what was written.

`verify` checks artifacts with their pointers and manifests, `check_records` everything else: refs,
pins, runs, reports, leases, quarantine, tombstones, and records of pieces. `quarantine` takes
artifacts that are not sound back, so that the next run builds them again; of the other records only
those of pieces can be deleted without losing anything (`delete_damaged_pieces`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from flows.store.artifacts import CARD, ArtifactStore
from flows.store.backend import StoreBackend
from flows.store.pointers import Pointer
from flows.store.records import KINDS
from flows.store.work_items import check_blobs, delete_piece
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.fingerprint import cache_key, content_digest, logical_digest
from schemas.manifest import FileEntry, Manifest
from schemas.sealed import read_page, read_sealed

if TYPE_CHECKING:
    from flows.store.shard_checks import RowsFound

_DIGITS = re.compile(rb"[0-9a-f]{31}")
_POINTED = ("artifact_id", "cache_key", "content", "stage")


class VerifyResult(NamedTuple):
    """What was found about an artifact."""

    artifact_id: str
    stage: str
    problems: tuple[str, ...]
    """One text for each thing that is not as it should be; none for a sound artifact."""

    files: int = 0
    size: int = 0
    """Bytes that the manifest lists."""

    damaged_files: tuple[str, ...] = ()
    """Physical names of those whose bytes are not the ones that were written."""

    is_inconsistent: bool = False
    """Whether the artifact was sound in its bytes, and said of them what is not so: then what it
    came from, such as the records of its pieces, may say so too."""

    @property
    def is_ok(self) -> bool:
        return not self.problems


def verify(
    store: ArtifactStore, pointers: Sequence[Pointer], *, deep: bool = True, rows: bool = False
) -> list[VerifyResult]:
    """Check artifacts.

    Each manifest must fit its pointer and itself: digests over the files, the cache key over its
    specification. Each file must be there with its size and, if `deep`, its sha256; with `rows`,
    tables are also read: their schema must be that of the manifest's table, and the digest of
    their rows the one that is recorded. Each input's manifest must be there with the content that
    the key says. A file that several artifacts share is read once.
    """
    reader = _Reader(store, rows=rows) if deep or rows else None
    return [_verify(store, pointer, reader=reader) for pointer in pointers]


def quarantine(store: ArtifactStore, verdicts: Sequence[VerifyResult]) -> None:
    """Take the artifacts that are not sound back, so that the next run builds them again."""
    damaged = [verdict for verdict in verdicts if not verdict.is_ok]
    store.quarantine_artifacts(
        {verdict.artifact_id: "; ".join(verdict.problems) for verdict in damaged},
        files={v.artifact_id: v.damaged_files for v in damaged if not v.is_inconsistent},
    )


def _verify(store: ArtifactStore, pointer: Pointer, *, reader: _Reader | None) -> VerifyResult:
    try:
        manifest = store.read_manifest(pointer.manifest)
    except (ArtifactCorruptError, ArtifactNotFoundError) as error:
        return VerifyResult(pointer.artifact_id, pointer.stage, (str(error),))
    damaged, wrong_rows = _check_files(store, manifest, reader=reader)
    wrong = [*check_manifest(manifest), *wrong_rows]
    pointed = {name: getattr(pointer, name) for name in _POINTED}
    problems = [
        *_differences(manifest, {**pointed, "path": pointer.manifest}, "but the pointer says"),
        *wrong,
        *damaged.values(),
        *_check_inputs(store, manifest),
    ]
    return VerifyResult(
        manifest.artifact_id,
        manifest.stage,
        tuple(problems),
        len(manifest.files),
        manifest.size,
        damaged_files=tuple(damaged),
        is_inconsistent=bool(wrong),
    )


def check_manifest(manifest: Manifest) -> list[str]:
    """What in a manifest contradicts itself, one text each."""
    computed = {
        "cache_key": cache_key(manifest.key_spec),
        "content": content_digest(manifest.files),
        "logical_content": logical_digest(manifest.files),
    }
    return _differences(manifest, computed, "but what it says gives")


def _differences(manifest: Manifest, expected: dict[str, str], but: str) -> list[str]:
    return [
        f"manifest: {name} is {found}, {but} {value}"
        for name, value in expected.items()
        if (found := getattr(manifest, name)) != value
    ]


def _check_files(
    store: ArtifactStore, manifest: Manifest, *, reader: _Reader | None
) -> tuple[dict[str, str], list[str]]:
    """What is wrong with a file's bytes, by its physical name; what is untrue of sound bytes."""
    sizes = store.backend.sizes(manifest.data)
    damaged: dict[str, str] = {}
    wrong: list[str] = []
    for entry in manifest.files:
        found = sizes.get(entry.object)
        if found is None:
            damaged[entry.object] = f"{entry.path}: {entry.object} is missing"
        elif found != entry.size:
            problem = f"{entry.path}: expected {entry.size:,} bytes, found {found:,}"
            damaged[entry.object] = problem
        elif reader is not None:
            sha256, rows = reader.read(f"{manifest.data}/{entry.object}", entry)
            if sha256 != entry.sha256:
                problem = f"{entry.path}: expected sha256 {entry.sha256}, found {sha256}"
                damaged[entry.object] = problem
            elif rows is not None:
                wrong += [f"{entry.path}: {text}" for text in rows.problems(entry, manifest)]
    return damaged, wrong


def _check_inputs(store: ArtifactStore, manifest: Manifest) -> Iterator[str]:
    keyed = manifest.key_spec.get("inputs", {})
    for ref in manifest.inputs:
        try:
            found = store.read_manifest(ref.manifest)
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            yield f"input {ref.name}: {error}"
            continue
        if found.content != ref.content:
            other = f"{ref.manifest} has {found.content}"
            yield f"input {ref.name}: expected {ref.content}, but {other}"
        if keyed.get(ref.name, {}).get("content") != ref.content:
            yield f"input {ref.name}: its content is not the one in the cache key"


class _Reader:
    """Reads files, and each that several artifacts share only once."""

    def __init__(self, store: ArtifactStore, *, rows: bool) -> None:
        self._backend, self._rows = store.backend, rows
        self._known: dict[tuple[int, int, int], tuple[str, RowsFound | None]] = {}

    def read(self, path: str, entry: FileEntry) -> tuple[str, RowsFound | None]:
        """The sha256 of a file; where it is that of the entry and rows are read, those too."""
        known = self._backend.identity(path)
        if known is None:
            return self._read(path, entry)
        if known not in self._known:
            self._known[known] = self._read(path, entry)
        return self._known[known]

    def _read(self, path: str, entry: FileEntry) -> tuple[str, RowsFound | None]:
        with self._backend.open(path) as source:
            digest = hashlib.file_digest(cast("Any", source), "sha256").hexdigest()
            if digest != entry.sha256 or entry.rows is None or not self._rows:
                return digest, None
            from flows.store.shard_checks import read_rows  # start-up: 53 ms, pyarrow

            source.seek(0)
            return digest, read_rows(source)


# Records


class RecordProblem(NamedTuple):
    """A record that is not what was written."""

    path: str
    """Relative to the root of the store."""

    text: str
    """What is wrong, and what to do."""


class RecordReport(NamedTuple):
    """What was found of a store's records."""

    checked: int
    problems: tuple[RecordProblem, ...]
    notes: tuple[str, ...]


class _RecordFound(NamedTuple):
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_records(store: ArtifactStore) -> RecordReport:
    """Read every record of a store but pointers of keys and manifests, which `verify` checks.

    Cards are read as records are.
    """
    checked = 0
    problems: list[RecordProblem] = []
    notes: list[str] = []
    for folder, (_, remedy) in KINDS.items():
        if folder in ("keys", "artifacts"):
            continue
        for path in store.backend.names(folder):
            if path.endswith(".blobs"):
                continue  # with its record
            try:
                found = _check_record(store.backend, path)
            except FileNotFoundError:
                continue  # gone since it was listed
            checked += 1
            notes += found.notes
            problems += [RecordProblem(path, f"{text}; {remedy}") for text in found.problems]
    cards, damaged = _check_cards(store)
    checked, problems = checked + cards, [*problems, *damaged]
    return RecordReport(checked, tuple(problems), tuple(notes))


def _check_cards(store: ArtifactStore) -> tuple[int, list[RecordProblem]]:
    """How many artifacts have cards, and which of those are not what was written."""
    checked, problems = 0, list[RecordProblem]()
    for pointer in store.pointers():
        path = f"{pointer.manifest.rpartition('/')[0]}/{CARD}"
        stored = store.backend.read_if_exists(path)
        if stored is None:
            continue  # artifacts of this stage have no cards
        checked += 1
        try:
            read_page(stored)
        except ValueError as error:
            remedy = f"`bertloom card {pointer.artifact_id} --write` writes it again"
            problems.append(RecordProblem(path, f"{error}; {remedy}"))
    return checked, problems


def delete_damaged_pieces(store: ArtifactStore, report: RecordReport) -> None:
    """Delete the records of pieces that are damaged."""
    for problem in report.problems:
        if problem.path.startswith("pieces/"):
            delete_piece(store.backend, problem.path)


def _check_record(backend: StoreBackend, path: str) -> _RecordFound:
    stored = backend.read(path)
    if path.endswith(".ndjson"):
        return _check_lines(stored, path)
    try:
        if path.endswith(".html"):
            read_page(stored)
            return _RecordFound()
        value = read_sealed(stored)
    except ValueError as error:
        return _RecordFound((str(error),))
    problem = check_blobs(backend, path, value) if path.startswith("pieces/") else ""
    return _RecordFound((problem,) if problem else ())


def _check_lines(stored: bytes, path: str) -> _RecordFound:
    problems, notes = list[str](), list[str]()
    for number, line in enumerate(stored.split(b"\n"), start=1):
        if not line:
            continue
        try:
            read_sealed(line)
        except ValueError as error:
            # A line that a crash cut off does not end in a digest; one that was changed does, but
            # for a letter.
            if _DIGITS.search(line[-70:]):
                problems.append(f"line {number}: {error}")
            else:
                notes.append(f"{path}:{number}: cut off, as its writer was stopped in it")
    return _RecordFound(tuple(problems), tuple(notes))
