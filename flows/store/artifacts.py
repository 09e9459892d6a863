"""The artifact store: immutable directories, made visible by a pointer under their cache key.

    FORMAT.json                                     layout and digest of the store
    artifacts/STAGE/ATTEMPT/data/                   files, written there by the stage itself
    artifacts/STAGE/ATTEMPT/manifest.json           names the files that count
    artifacts/STAGE/ATTEMPT/README.md               its card, see `flows.cards`
    keys/  refs/  pins/                             see `flows.store.pointers`
    runs/RUN_ID/run.json                            what a run did, see `flows.store.runs`
    leases/STAGE/CACHE_KEY.json                     who builds a key, see `flows.store.leases`
    work/STAGE/CACHE_KEY/                           what a stage needs to go on after a kill
    pieces/STAGE/DIGEST/                            finished pieces, see `flows.store.work_items`
    quarantine/STAGE/CACHE_KEY-RANDOM.json          a pointer taken back, {withdrawn, reason, ...}
    quarantine/conflicts/STAGE/ARTIFACT_ID.json     two artifacts of one key, and how they differ
    tombstones/ARTIFACT_ID.json                     being deleted by garbage collection

An attempt that no pointer leads to (a crash, a lost race) does not exist for readers.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from flows.store.backend import open_backend
from flows.store.pointers import Pointer, StorePointers, key_path, now, parse_pointer, pointer_to
from flows.store.records import content_of, parse_record, read_record
from flows.store.work_items import withdraw_pieces
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    DeterminismError,
    StoreError,
)
from schemas.manifest import MANIFEST_VERSION, Manifest
from schemas.sealed import read_sealed, sealed_json

_FORMAT = {"layout": 3, "digest": "sha256"}

CARD = "README.md"
"""Name of an artifact's card, beside its manifest."""

_CONFLICTS = "quarantine/conflicts"


class Attempt(NamedTuple):
    """A folder of its own for one execution of a stage."""

    artifact_id: str
    location: str
    """Relative to the root of the store."""

    output: str
    """URL of its `data/` folder, which is there."""


class Commit(NamedTuple):
    """What is published after a commit."""

    manifest: Manifest
    """The one that readers of the key find: this attempt's, or an equal one that was first."""

    created: bool
    replaced: Pointer | None = None
    """What the key led to before, where a rebuild put something else in its place."""


class ArtifactStore(StorePointers):
    """A store at a local folder or an fsspec URL."""

    def __init__(self, root: str, *, create: bool = True) -> None:
        """Open a store, and make it where there is none.

        Raises:
            StoreError: it cannot be reached, is none (`create=False`), or has another layout.
        """
        self.backend = open_backend(root)
        self._manifests: dict[str, Manifest] = {}
        try:
            self._open(create=create)
        except StoreError:
            raise
        except Exception as error:  # each cloud's client has exceptions of its own
            raise StoreError(self.backend.open_error(error)) from error

    def _open(self, *, create: bool) -> None:
        stored = self.backend.read_if_exists("FORMAT.json")
        if stored is None:
            if not create:
                raise ArtifactNotFoundError(
                    f"{self.root}: there is no artifact store (no FORMAT.json). Name it with "
                    "--store, or make one with `bertloom run`"
                )
            if self.backend.is_remote:
                self.backend.check_capabilities()
            self.backend.put_if_absent("FORMAT.json", sealed_json(_FORMAT))
            stored = self.backend.read("FORMAT.json")
        try:
            found = read_sealed(stored)
        except ValueError as error:
            raise StoreError(f"store {self.root}: FORMAT.json: {error}") from error
        if found != _FORMAT:
            raise StoreError(
                f"store {self.root}: FORMAT.json: expected {_FORMAT}, got {found}. Another version "
                "of bertloom wrote this store: use that version, or another folder"
            )

    @property
    def root(self) -> str:
        """Absolute path or URL."""
        return self.backend.root

    def url(self, path: str) -> str:
        """Path or URL of something in the store, given relative to its root."""
        return self.backend.url(path)

    # Reading

    def lookup(self, stage: str, cache_key: str) -> Manifest | None:
        """The artifact under a key, or None.

        Every file is looked for and must have its size; where one is missing, the pointer goes to
        quarantine, so that the stage is built again.
        """
        path = key_path(stage, cache_key)
        stored = self.backend.read_if_exists(path)
        if stored is None:
            return None
        try:
            manifest = self.read_manifest(self._parsed(path, stored).manifest)
            self.check_files(manifest)
            # For the collector of garbage: what was found just now is in use. If it took the
            # pointer away since it was read, nothing was found.
            self.backend.touch(path)
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            self._quarantine(stage, cache_key, stored=stored, reason=str(error))
            return None
        except FileNotFoundError:
            return None
        return self._remembered(manifest)

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
        """Like `read_manifest`; from S3 or GCS each is fetched once, as what is published stays."""
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

    # Building

    def begin(self, stage: str) -> Attempt:
        """A new folder for a stage to write to."""
        artifact_id = uuid.uuid4().hex[:16]
        location = f"artifacts/{stage}/{artifact_id}"
        return Attempt(artifact_id, location, self.backend.make_folder(f"{location}/data"))

    def abandon(self, attempt: Attempt) -> None:
        """Delete an attempt that will not be published."""
        self.backend.delete_folder(attempt.location)

    def work(self, stage: str, cache_key: str) -> str:
        """URL of a folder, which is there, for what a stage needs to go on under this key."""
        return self.backend.make_folder(f"work/{stage}/{cache_key}")

    def clear_work(self, stage: str, cache_key: str) -> None:
        """Delete that folder after its artifact is published. Only the lease's holder may."""
        self.backend.delete_folder(f"work/{stage}/{cache_key}")

    def pieces(self, stage: str, digest: str) -> str:
        """URL of a folder, which is there, for records of finished pieces."""
        return self.backend.make_folder(f"pieces/{stage}/{digest}")

    # Publishing

    def commit(self, manifest: Manifest, *, replace: bool = False) -> Commit:
        """Publish an attempt, whose files are all written, under its cache key.

        With `replace`, what the key leads to is taken back, as a rebuild does.

        Raises:
            ArtifactCorruptError: a file of the attempt is missing or has another size.
            DeterminismError: the key leads to an artifact with other content.
        """
        sizes = self.check_files(manifest)
        # What a repeated worker left there would be read by whoever opens the folder as a whole.
        for stray in sizes.keys() - {entry.object for entry in manifest.files}:
            self.backend.delete(f"{manifest.data}/{stray}")
        if not self.backend.put_if_absent(
            manifest.path, sealed_json(manifest.model_dump(mode="json"))
        ):
            raise StoreError(f"{self.url(manifest.path)}: this attempt is published already")
        replaced = self.pointer(manifest.stage, manifest.cache_key) if replace else None
        if replaced is not None:
            self.quarantine(replaced, reason=f"rebuilt as {manifest.artifact_id}")
        pointer = pointer_to(manifest).to_json()
        while not self.backend.put_if_absent(key_path(manifest.stage, manifest.cache_key), pointer):
            # Another run was faster. What it published may have been damaged since: then it is
            # withdrawn by the lookup, and the key is free again.
            winner = self.lookup(manifest.stage, manifest.cache_key)
            if winner is not None:
                self._refuse_conflict(winner, manifest)
                self.backend.delete_folder(manifest.location)
                return Commit(winner, created=False)
        return Commit(self._remembered(manifest), created=True, replaced=replaced)

    def _refuse_conflict(self, winner: Manifest, loser: Manifest) -> None:
        """Nothing if two artifacts of one key are the same; else record and raise it."""
        if winner.content == loser.content:
            return
        other, mine = ({e.path: e.sha256 for e in made.files} for made in (winner, loser))
        differing = [path for path in sorted({*other, *mine}) if other.get(path) != mine.get(path)]
        record = f"{_CONFLICTS}/{loser.stage}/{loser.artifact_id}.json"
        conflict = {
            "cache_key": loser.cache_key,
            "published": winner.path,
            "other": loser.path,
            "contents": [winner.content, loser.content],
            "differing_files": differing,
        }
        self.backend.put_if_absent(record, sealed_json(conflict))
        rows = "the same rows" if winner.logical_content == loser.logical_content else "other rows"
        shown = ", ".join(differing[:5]) + (" ..." if len(differing) > 5 else "")
        raise DeterminismError(
            f"{loser.stage}: two runs under the cache key {loser.cache_key[:12]} made different "
            f"files with {rows} ({shown}): {winner.artifact_id} is published, {loser.artifact_id} "
            f"is kept beside it for comparison. The stage depends on something that is not in its "
            f"key; see {self.url(record)}"
        )

    def conflicts(self) -> list[dict[str, Any]]:
        """Recorded determinism conflicts, each with the `stage` and the `record`'s path.

        Raises:
            ArtifactCorruptError: a record cannot be read.
        """
        found = []
        for path in self.backend.names(_CONFLICTS):
            record = read_record(self.backend, path)
            found.append({"stage": path.split("/")[2], "record": path, **record})
        return found

    # Taking back

    def quarantine(self, pointer: Pointer, *, reason: str) -> None:
        """Take a key's pointer back: it moves to quarantine, with the reason."""
        stored = self.backend.read_if_exists(key_path(pointer.stage, pointer.cache_key))
        # Else it was withdrawn by another run already, and perhaps built again.
        if stored is not None and parse_pointer(stored) == pointer:
            self._quarantine(pointer.stage, pointer.cache_key, stored=stored, reason=reason)

    def _quarantine(self, stage: str, cache_key: str, *, stored: bytes, reason: str) -> None:
        if self.backend.read_if_exists(key_path(stage, cache_key)) != stored:
            return  # by another run meanwhile, and perhaps built again
        record: dict[str, Any] = {"withdrawn": now(), "reason": reason}
        if parse_pointer(stored) is not None:
            record["pointer"] = read_sealed(stored)
        name = f"{cache_key}-{uuid.uuid4().hex[:8]}"
        self.backend.put_if_absent(f"quarantine/{stage}/{name}.json", sealed_json(record))
        self.backend.remove(key_path(stage, cache_key), expected=stored)

    def quarantine_artifacts(
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
                # Before the pointer: who finds none builds from the pieces that are left.
                withdraw_pieces(self.backend, pointer.stage, location, objects=objects)
                self.quarantine(pointer, reason=reasons[pointer.artifact_id])


# Manifests


def parse_manifest(stored: bytes, *, where: str) -> Manifest:
    """A manifest from the bytes of its file.

    Raises:
        ArtifactCorruptError: they are not a manifest, or one of another version.
    """
    version = raw_manifest(stored, where=where).get("manifest_version")
    if version != MANIFEST_VERSION:
        raise ArtifactCorruptError(
            f"{where}: expected manifest_version {MANIFEST_VERSION}, found {version!r}"
        )
    return parse_record(Manifest, stored, where, kind="artifacts")


def raw_manifest(stored: bytes, *, where: str) -> dict[str, Any]:
    """The fields of a manifest of any version, unchecked but for its digest.

    Raises:
        ArtifactCorruptError: it is not what was written.
    """
    return content_of(stored, where, kind="artifacts")
