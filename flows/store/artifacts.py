"""The artifact store: immutable directories, made visible by a pointer under their cache key.

    FORMAT.json                             layout and digest of the store
    artifacts/STAGE/ATTEMPT/data/           files, written there by the stage itself, never renamed
    artifacts/STAGE/ATTEMPT/manifest.json   names the files that count
    keys/STAGE/AA/CACHE_KEY.json            pointer to a manifest, put-if-absent: THE commit
    refs/NAME.json                          names that move on, such as RECIPE/build-tokens
    pins/ARTIFACT_ID.json                   what is kept though no name leads to it
    runs/RUN_ID/run.json                    what a run did
    leases/STAGE/CACHE_KEY.json             who is building a key, see `flows.store.leases`
    work/STAGE/CACHE_KEY/                   where a long stage keeps what it needs to go on
    pieces/STAGE/DIGEST/                    which pieces of work earlier artifacts hold
    quarantine/                             pointers taken back, and what was wrong with them
    tombstones/ARTIFACT_ID.json             being deleted, see `flows.store.garbage`

An attempt that no pointer leads to (a crash, a lost race) does not exist for readers.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from flows.store.backend import StoreBackend
from flows.store.names import StoreNames
from flows.store.piece_records import withdraw_records
from flows.store.pointers import (
    Pointer,
    key_path,
    now,
    parse_manifest,
    parse_pointer,
    pointer_to,
    to_json,
)
from flows.store.quarantine import conflicts, refuse_conflict, take_back
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    StoreError,
)
from schemas.manifest import Manifest
from schemas.sealed import read_sealed

__all__ = [
    "ArtifactStore",
    "Attempt",
    "Commit",
    "Pointer",
    "key_path",
    "now",
    "parse_manifest",
    "pointer_to",
    "to_json",
]

_LOGGER = logging.getLogger(__name__)

LAYOUT = 2
"""In layout 1 records had no digests of their own; such a store is read and written on."""

_LAYOUTS = ((1, False), (LAYOUT, True))


class Attempt(NamedTuple):
    """A folder of its own for one execution of a stage."""

    artifact_id: str
    location: str
    """Relative to the root of the store."""

    output: str
    """URL of its `data/` folder, which is there."""


class Commit(NamedTuple):
    """What publishing came to."""

    manifest: Manifest
    """The one that readers of the key find: this attempt's, or an equal one that was first."""

    won: bool
    replaced: Pointer | None = None
    """What the key led to before, where a rebuild put something else in its place."""


class ArtifactStore(StoreNames):
    """A store at a local folder or an fsspec URL."""

    def __init__(self, root: str, *, create: bool = True) -> None:
        """Open a store, and make it where there is none.

        Raises:
            StoreError: it cannot be reached, is none (`create=False`), or has another layout.
        """
        self.backend = StoreBackend(root)
        self._manifests: dict[str, Manifest] = {}
        try:
            self._open(create=create)
        except StoreError:
            raise
        except Exception as error:  # each cloud's client has exceptions of its own
            kind = type(error).__name__
            raise StoreError(f"store {self.root}: cannot be opened: {kind}: {error}") from error

    def _open(self, *, create: bool) -> None:
        try:
            stored = self.backend.read("FORMAT.json")
        except FileNotFoundError:
            if not create:
                raise ArtifactNotFoundError(
                    f"{self.root}: there is no artifact store (no FORMAT.json). Name it with "
                    "--store, or make one with `bertloom run`"
                ) from None
            if self.backend.is_remote:
                self.backend.probe()
            self.backend.create("FORMAT.json", to_json({"layout": LAYOUT, "digest": "sha256"}))
            stored = self.backend.read("FORMAT.json")
        try:
            found, is_sealed = read_sealed(stored)
        except ValueError as error:
            raise StoreError(f"store {self.root}: FORMAT.json: {error}") from error
        self.layout = found.get("layout")
        if found.get("digest") != "sha256" or (self.layout, is_sealed) not in _LAYOUTS:
            raise StoreError(
                f"store {self.root}: expected a store of layout 1 or {LAYOUT}, found {found} in "
                "FORMAT.json. It was made by another version of bertloom, or the file is damaged; "
                "use that version, put the file right, or use another folder"
            )

    @property
    def root(self) -> str:
        """Absolute path or URL."""
        return self.backend.root

    def url(self, path: str) -> str:
        """Of something in the store, given relative to its root."""
        return self.backend.url(path)

    # Reading

    def lookup(self, stage: str, cache_key: str) -> Manifest | None:
        """The artifact under a key, or None.

        Every file is looked for and must have its size; where one is missing, the pointer goes to
        quarantine, so that the stage is built again.
        """
        try:
            pointer = self.pointer(stage, cache_key)
        except ArtifactCorruptError as error:
            stored = self._stored_pointer(stage, cache_key)
            if stored is not None and parse_pointer(stored) is None:
                record = {"reason": str(error)}
                take_back(self.backend, stage, cache_key, stored=stored, record=record)
            return None
        if pointer is None:
            return None
        try:
            manifest = self.read_manifest(pointer.manifest)
            self.check_files(manifest)
            # For the collector of garbage: what was found just now is in use. If it took the
            # pointer away since it was read, nothing was found.
            self.backend.touch(key_path(stage, cache_key))
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            self.withdraw(pointer, reason=str(error))
            return None
        except FileNotFoundError:
            return None
        return self._remembered(manifest)

    def pointer(self, stage: str, cache_key: str) -> Pointer | None:
        """What a key leads to, unchecked; None where there is nothing."""
        stored = self._stored_pointer(stage, cache_key)
        return None if stored is None else self._parsed(key_path(stage, cache_key), stored)

    def _parsed(self, path: str, stored: bytes) -> Pointer:
        if (pointer := parse_pointer(stored)) is None:
            raise ArtifactCorruptError(
                f"{self.url(path)}: expected a pointer to a manifest. Delete "
                "the file, or run the recipe again; the stage is then built anew"
            )
        return pointer

    def _stored_pointer(self, stage: str, cache_key: str) -> bytes | None:
        try:
            return self.backend.read(key_path(stage, cache_key))
        except FileNotFoundError:
            return None

    def pointers(self, stage: str | None = None) -> Iterator[Pointer]:
        """Every published key, of one stage or of all, in no particular order.

        A pointer that cannot be read is passed over with a warning; see `damaged_pointers`.
        """
        paths = self.backend.names(f"keys/{stage}" if stage else "keys")
        for path, stored in self.backend.read_many(paths).items():
            try:
                yield self._parsed(path, stored)
            except ArtifactCorruptError as error:
                _LOGGER.warning("passed over: %s", error)

    def damaged_pointers(self) -> dict[tuple[str, str], str]:
        """What is wrong with each pointer that cannot be read, by its stage and cache key.

        A `lookup` of the key takes such a pointer back.
        """
        found = {}
        for path, stored in self.backend.read_many(self.backend.names("keys")).items():
            try:
                self._parsed(path, stored)
            except ArtifactCorruptError as error:
                _, stage, *_, name = path.split("/")
                found[stage, name.removesuffix(".json")] = str(error)
        return found

    def read_manifest(self, path: str) -> Manifest:
        """The manifest at a path relative to the root.

        Raises:
            ArtifactNotFoundError: there is none.
            ArtifactCorruptError: it is not a manifest, or one of another version.
        """
        try:
            stored = self.backend.read(path)
        except FileNotFoundError as error:
            raise ArtifactNotFoundError(f"{self.url(path)}: the manifest is gone") from error
        return parse_manifest(stored, where=self.url(path))

    def manifest(self, path: str) -> Manifest:
        """As `read_manifest`; from S3 or GCS each is fetched once, as what is published stays."""
        if path not in self._manifests:
            return self._remembered(self.read_manifest(path))
        return self._manifests[path]

    def _remembered(self, manifest: Manifest) -> Manifest:
        if self.backend.is_remote:
            self._manifests[manifest.path] = manifest
        return manifest

    def check_files(self, manifest: Manifest) -> dict[str, int]:
        """Compare which files are there, and how long they are, with the manifest.

        Returns:
            the size of every file of the data folder, of those too that the manifest does not name.

        Raises:
            ArtifactCorruptError: one is missing or has another size.
        """
        sizes = self.backend.sizes(manifest.data)
        for entry in manifest.files:
            found = sizes.get(entry.object)
            if found != entry.size:
                where = self.url(f"{manifest.data}/{entry.object}")
                what = "nothing" if found is None else f"{found:,} bytes"
                raise ArtifactCorruptError(
                    f"{where}: expected {entry.size:,} bytes of {entry.path}, found {what}"
                )
        return sizes

    # Writing

    def begin(self, stage: str) -> Attempt:
        """A new folder for a stage to write to."""
        artifact_id = uuid.uuid4().hex[:16]
        location = f"artifacts/{stage}/{artifact_id}"
        self.backend.make_folder(f"{location}/data")
        return Attempt(artifact_id, location, self.url(f"{location}/data"))

    def abandon(self, attempt: Attempt) -> None:
        """Take back an attempt that will not be published."""
        self.backend.delete_folder(attempt.location)

    def commit(self, manifest: Manifest, *, replace: bool = False) -> Commit:
        """Publish an attempt under its cache key.

        Args:
            manifest: describes the attempt; all its files are written.
            replace: take back what the key leads to, as a rebuild does.

        Raises:
            ArtifactCorruptError: a file of the attempt is missing or has another size.
            DeterminismError: the key leads to an artifact with other content.
        """
        sizes = self.check_files(manifest)
        # What a repeated worker left there would be read by whoever opens the folder as a whole.
        for stray in sizes.keys() - {entry.object for entry in manifest.files}:
            self.backend.delete(f"{manifest.data}/{stray}")
        if not self.backend.create(manifest.path, to_json(manifest.model_dump(mode="json"))):
            raise StoreError(f"{self.url(manifest.path)}: this attempt is published already")
        replaced = None
        if replace and (old := self.pointer(manifest.stage, manifest.cache_key)):
            self.withdraw(old, reason=f"rebuilt as {manifest.artifact_id}")
            replaced = old
        pointer = pointer_to(manifest)
        path = key_path(manifest.stage, manifest.cache_key)
        while not self.backend.create(path, pointer.to_json()):
            # Another run was faster. What it published may have been damaged since: then it is
            # withdrawn by the lookup, and the key is free again.
            winner = self.lookup(manifest.stage, manifest.cache_key)
            if winner is not None:
                refuse_conflict(self.backend, winner, manifest)
                self.backend.delete_folder(manifest.location)
                return Commit(winner, won=False)
        return Commit(self._remembered(manifest), won=True, replaced=replaced)

    def withdraw(self, pointer: Pointer, *, reason: str) -> None:
        """Take a pointer back: it moves to quarantine, with the reason."""
        stage, cache_key = pointer.stage, pointer.cache_key
        stored = self._stored_pointer(stage, cache_key)
        if stored is None or parse_pointer(stored) != pointer:
            return  # withdrawn by another run already, and perhaps built again
        record = {"reason": reason, "pointer": read_sealed(stored).value}
        take_back(self.backend, stage, cache_key, stored=stored, record=record)

    def withdraw_artifacts(
        self,
        reasons: Mapping[str, str],
        *,
        files: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Take back every pointer to some artifacts, and the records of pieces they came from.

        Args:
            reasons: why, by the artifacts' ids.
            files: of artifacts of which nothing is wrong but the bytes of some files: the physical
                names of these. Only the records that name one go; other records of an artifact are
                as good as they were.
        """
        for pointer in list(self.pointers()):
            if pointer.artifact_id in reasons:
                location = pointer.manifest.rpartition("/")[0]
                objects = (files or {}).get(pointer.artifact_id)
                # Before the pointer: who finds none takes over what is left.
                withdraw_records(self.backend, pointer.stage, location, objects=objects)
                self.withdraw(pointer, reason=reasons[pointer.artifact_id])

    def conflicts(self) -> list[dict[str, Any]]:
        """Recorded determinism conflicts, each with the `stage` and the `record`'s path.

        Raises:
            ArtifactCorruptError: a record cannot be read.
        """
        return conflicts(self.backend)
