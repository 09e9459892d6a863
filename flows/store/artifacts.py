"""Artifact store: immutable folders, each published by a pointer under its cache key.

    FORMAT.json                                  layout and digest of the store
    artifacts/STAGE/ID/data/                     files, which the stage writes there
    artifacts/STAGE/ID/manifest.json             lists the files of the artifact
    artifacts/STAGE/ID/README.md                 card (`flows.cards`)
    keys/  refs/  pins/                          pointers (`flows.store.pointers`)
    runs/RUN_ID/                                 records of runs (`flows.store.runs`)
    leases/STAGE/CACHE_KEY.json                  run that builds a key (`flows.store.leases`)
    work/STAGE/CACHE_KEY/                        files from which a stopped stage resumes
    pieces/STAGE/DIGEST/                         finished work items (`flows.store.work_items`)
    quarantine/STAGE/CACHE_KEY-RANDOM.json       pointer of a corrupt artifact, with the reason
    quarantine/conflicts/STAGE/ID.json           two artifacts of one key that differ
    tombstones/ID.json                           artifact that garbage collection is deleting

Readers see an artifact only through a pointer. A folder without one is left over from a crash or a
lost race.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from flows.store.artifact import Artifact
from flows.store.backend import open_backend
from flows.store.pointers import Pointer, StorePointers, key_path, now, parse_pointer, pointer_to
from flows.store.records import parse_record, read_record
from flows.store.work_items import delete_items
from schemas.checksummed import dump_json, load_json
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError, DeterminismError, StoreError
from schemas.manifest import Manifest

_FORMAT = {"layout": 3, "digest": "sha256"}

CARD = "README.md"
"""Name of the card in an artifact's folder."""

_CONFLICTS = "quarantine/conflicts"
_MAX_SHOWN = 5


class Attempt(NamedTuple):
    """Folder for one execution of a stage."""

    artifact_id: str
    location: str
    """Path in the store."""

    output: str
    """URL of its `data/` folder, which exists."""


class Commit(NamedTuple):
    """Result of publishing an attempt."""

    manifest: Manifest
    """Published artifact: this attempt, or an equal one that was published first."""

    created: bool
    """True if this attempt was published."""

    replaced: Pointer | None = None
    """Earlier artifact of the key that a rebuild replaced."""


class ArtifactStore(StorePointers):
    """Artifact store in a local folder or at an fsspec URL."""

    def __init__(self, root: str, *, create: bool = True) -> None:
        """Open a store, or create it.

        Raises:
            ArtifactNotFoundError: There is no store, and `create` is false.
            StoreError: It cannot be reached, or has another layout.
        """
        self.backend = open_backend(root)
        self._manifests: dict[str, Manifest] = {}
        try:
            self._open(create=create)
        except StoreError:
            raise
        except Exception as error:  # each client has its own exceptions
            raise self.backend.open_error(error) from error

    def _open(self, *, create: bool) -> None:
        stored = self.backend.read_if_exists("FORMAT.json")
        if stored is None:
            if not create:
                self.backend.check_reachable()
                raise ArtifactNotFoundError(
                    f"{self.root}: expected an artifact store, got no FORMAT.json. Set --store, or "
                    "create a store with `bertloom run`"
                )
            if self.backend.is_remote:
                self.backend.check_capabilities()
            self.backend.put_if_absent("FORMAT.json", dump_json(_FORMAT))
            stored = self.backend.read("FORMAT.json")
        try:
            layout = load_json(stored)
        except ValueError as error:
            raise StoreError(f"store {self.root}: FORMAT.json: {error}") from error
        if layout != _FORMAT:
            raise StoreError(
                f"store {self.root}: FORMAT.json: expected {_FORMAT}, got {layout}. Use another "
                "folder"
            )

    @property
    def root(self) -> str:
        """Absolute path or URL."""
        return self.backend.root

    def url(self, path: str) -> str:
        """Return the absolute path or URL of a path in the store."""
        return self.backend.url(path)

    # Reading

    def artifact(self, source: str | Pointer | Manifest) -> Artifact:
        """Return an artifact by its ref or id, by a pointer, or by its manifest.

        Raises:
            ArtifactNotFoundError: There is no such artifact.
            ArtifactCorruptError: Its pointer or manifest is corrupt.
        """
        if isinstance(source, Manifest):
            return Artifact(source, self)
        if isinstance(source, str):
            pointers = (item for item in self.pointers() if item.artifact_id == source)
            pointer = self.ref(source) or next(pointers, None)
            if pointer is None:
                raise ArtifactNotFoundError(
                    f"{self.root}: expected a ref or an artifact id, got {source!r}. "
                    "`bertloom ls` lists both"
                )
            source = pointer
        return Artifact(self.manifest(source.manifest), self)

    def lookup(self, stage: str, cache_key: str) -> Manifest | None:
        """Return the artifact of a cache key, None for an unpublished key.

        If a file is missing or has another size, the pointer is quarantined: the stage is built
        again.
        """
        path = key_path(stage, cache_key)
        stored = self.backend.read_if_exists(path)
        if stored is None:
            return None
        try:
            manifest = self.read_manifest(self._parse(path, stored).manifest)
            self.check_files(manifest)
            # Tells garbage collection that the artifact is in use. Fails if it took the pointer.
            self.backend.touch(path)
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            self._quarantine(stage, cache_key, stored=stored, reason=str(error))
            return None
        except FileNotFoundError:
            return None
        return self._cache(manifest)

    def read_manifest(self, path: str) -> Manifest:
        """Read a manifest.

        Raises:
            ArtifactNotFoundError: There is no such manifest.
            ArtifactCorruptError: It is corrupt.
        """
        try:
            stored = self.backend.read(path)
        except FileNotFoundError as error:
            raise ArtifactNotFoundError(
                f"{self.url(path)}: expected a manifest, got no file. Run the recipe again"
            ) from error
        return parse_record(Manifest, stored, backend=self.backend, path=path)

    def manifest(self, path: str) -> Manifest:
        """Return a manifest as `read_manifest` does. From S3 and GCS it is fetched only once."""
        return self._manifests.get(path) or self._cache(self.read_manifest(path))

    def manifests(self, paths: Iterable[str]) -> dict[str, Manifest | ArtifactCorruptError]:
        """Return the manifests that exist, by path, or the error of a corrupt one."""
        manifests: dict[str, Manifest | ArtifactCorruptError] = {}
        for path, stored in self.backend.read_many(dict.fromkeys(paths)).items():
            try:
                manifests[path] = parse_record(Manifest, stored, backend=self.backend, path=path)
            except ArtifactCorruptError as error:
                manifests[path] = error
        return manifests

    def _cache(self, manifest: Manifest) -> Manifest:
        if self.backend.is_remote:
            self._manifests[manifest.manifest_path] = manifest
        return manifest

    def check_files(self, manifest: Manifest) -> dict[str, int]:
        """Compare the sizes of an artifact's files with its manifest.

        Returns:
            Size of each file of the data folder, also of files that the manifest does not list.

        Raises:
            ArtifactCorruptError: A file is missing or has another size.
        """
        sizes = self.backend.sizes(manifest.data_path)
        for entry in manifest.files:
            size = sizes.get(entry.stored_name)
            if size != entry.size_bytes:
                got = "no file" if size is None else f"{size:,} bytes"
                url = self.url(f"{manifest.data_path}/{entry.stored_name}")
                raise ArtifactCorruptError(
                    f"{url}: expected {entry.path} with {entry.size_bytes:,} bytes, got {got}. "
                    "Run the recipe again"
                )
        return sizes

    # Building

    def begin(self, stage: str) -> Attempt:
        """Create a folder for an execution of a stage."""
        artifact_id = uuid.uuid4().hex[:16]
        location = f"artifacts/{stage}/{artifact_id}"
        return Attempt(artifact_id, location, self.backend.make_folder(f"{location}/data"))

    def abandon(self, attempt: Attempt) -> None:
        """Delete an attempt that will not be published."""
        self.backend.delete_folder(attempt.location)

    def work(self, stage: str, cache_key: str) -> str:
        """Create the folder from which a stage resumes, and return its URL."""
        return self.backend.make_folder(f"work/{stage}/{cache_key}")

    def clear_work(self, stage: str, cache_key: str) -> None:
        """Delete that folder. Only the holder of the lease may do so."""
        self.backend.delete_folder(f"work/{stage}/{cache_key}")

    def pieces(self, stage: str, digest: str) -> str:
        """Create the folder for the records of finished work items, and return its URL."""
        return self.backend.make_folder(f"pieces/{stage}/{digest}")

    # Publishing

    def commit(self, manifest: Manifest, *, replace: bool = False) -> Commit:
        """Publish an attempt whose files are complete.

        Args:
            manifest: Manifest of the attempt.
            replace: Quarantine the artifact that the key has now.

        Raises:
            ArtifactCorruptError: A file of the attempt is missing or has another size.
            DeterminismError: The key has an artifact with other content.
        """
        sizes = self.check_files(manifest)
        # Retried workers leave files behind. Readers that open the whole folder must not see them.
        for stray in sizes.keys() - {entry.stored_name for entry in manifest.files}:
            self.backend.delete(f"{manifest.data_path}/{stray}")
        stored = dump_json(manifest.model_dump(mode="json"))
        if not self.backend.put_if_absent(manifest.manifest_path, stored):
            raise StoreError(
                f"{self.url(manifest.manifest_path)}: expected a new attempt, got a manifest"
            )
        replaced = self.pointer(manifest.stage, manifest.cache_key) if replace else None
        if replaced is not None:
            self.quarantine(replaced, reason=f"rebuilt as {manifest.artifact_id}")
        path = key_path(manifest.stage, manifest.cache_key)
        while not self.backend.put_if_absent(path, pointer_to(manifest).to_json()):
            # Another run was first. If its artifact is corrupt, the lookup frees the key.
            winner = self.lookup(manifest.stage, manifest.cache_key)
            if winner is not None:
                self._check_same_content(winner, manifest)
                self.backend.delete_folder(manifest.artifact_path)
                return Commit(winner, created=False)
        return Commit(self._cache(manifest), created=True, replaced=replaced)

    def _check_same_content(self, winner: Manifest, loser: Manifest) -> None:
        """Record and raise a conflict if two artifacts of one key differ."""
        if winner.content_digest == loser.content_digest:
            return
        other, own = ({entry.path: entry.sha256 for entry in m.files} for m in (winner, loser))
        differing = [path for path in sorted({*other, *own}) if other.get(path) != own.get(path)]
        record = f"{_CONFLICTS}/{loser.stage}/{loser.artifact_id}.json"
        conflict = {
            "cache_key": loser.cache_key,
            "published": winner.manifest_path,
            "other": loser.manifest_path,
            "contents": [winner.content_digest, loser.content_digest],
            "differing_files": differing,
        }
        self.backend.put_if_absent(record, dump_json(conflict))
        is_equal = winner.rows_digest == loser.rows_digest
        raise DeterminismError(
            f"{loser.stage}: expected equal files for cache key {loser.cache_key[:12]}, got "
            f"{'the same rows in' if is_equal else 'other rows in'} other files "
            f"({', '.join(differing[:_MAX_SHOWN])}{' ...' if differing[_MAX_SHOWN:] else ''}): "
            f"{winner.artifact_id} is published, {loser.artifact_id} stays for comparison. The "
            f"stage depends on an input that is not part of its key; see {self.url(record)}"
        )

    def conflicts(self) -> list[dict[str, Any]]:
        """Return the recorded conflicts, each with the `stage` and the path of its `record`.

        Raises:
            ArtifactCorruptError: A record is corrupt.
        """
        return [
            {"stage": path.split("/")[2], "record": path, **read_record(self.backend, path)}
            for path in self.backend.names(_CONFLICTS)
        ]

    # Quarantine

    def quarantine(self, pointer: Pointer, *, reason: str) -> None:
        """Move the pointer of a key to quarantine, unless another run has replaced it."""
        stored = self.backend.read_if_exists(key_path(pointer.stage, pointer.cache_key))
        if stored is not None and parse_pointer(stored) == pointer:
            self._quarantine(pointer.stage, pointer.cache_key, stored=stored, reason=reason)

    def _quarantine(self, stage: str, cache_key: str, *, stored: bytes, reason: str) -> None:
        if self.backend.read_if_exists(key_path(stage, cache_key)) != stored:
            return
        record: dict[str, Any] = {"quarantined_at": now(), "reason": reason}
        if (pointer := parse_pointer(stored)) is not None:
            record["pointer"] = pointer.model_dump(exclude_defaults=True)
        name = f"{cache_key}-{uuid.uuid4().hex[:8]}"
        self.backend.put_if_absent(f"quarantine/{stage}/{name}.json", dump_json(record))
        self.backend.compare_and_delete(key_path(stage, cache_key), expected=stored)

    def quarantine_artifacts(
        self,
        reasons: Mapping[str, str],
        *,
        files: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Quarantine artifacts, and delete the records of the work items that they came from.

        Args:
            reasons: Reason by artifact id.
            files: Stored names of the corrupt files, of artifacts whose manifest is right: only
                the records of these files are deleted.
        """
        for pointer in list(self.pointers()):
            if pointer.artifact_id in reasons:
                location = pointer.manifest.rpartition("/")[0]
                objects = (files or {}).get(pointer.artifact_id)
                # First, because a run that finds no pointer builds from the records that are left.
                delete_items(self.backend, pointer.stage, location, objects=objects)
                self.quarantine(pointer, reason=reasons[pointer.artifact_id])
