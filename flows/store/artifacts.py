"""Artifact store: immutable folders, each published by a pointer under its cache key.

docs/running.md shows the layout. Readers see an artifact only through a pointer. A folder without
one is left over from a crash or a lost race.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from flows.store.artifact import StoredArtifact
from flows.store.backend import open_backend
from flows.store.pointers import (
    Pointer,
    Ref,
    key_path,
    now,
    pointer_to,
    ref_name,
    ref_path,
)
from flows.store.records import Record, load_records, parse_record, read_record, read_records
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    DeterminismError,
    RefConflictError,
    StoreError,
)
from schemas.json_files import dump_json, load_json
from schemas.manifest import FileEntry, InputRef, Manifest

if TYPE_CHECKING:
    from flows.store.runs import RunRecord

_FORMAT = {"layout": 5, "digest": "sha256"}

_MAX_SHOWN = 5
_LOGGER = logging.getLogger(__name__)


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


class ListedArtifact(NamedTuple):
    """Published artifact with the refs that point to it."""

    pointer: Pointer
    manifest: Manifest | None
    """None if it is missing or corrupt."""

    refs: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.manifest.size_bytes if self.manifest else 0


def size_error(entry: FileEntry, size: int | None) -> str:
    """Return the error of a file with another size, or without one; "" for none."""
    if size == entry.size_bytes:
        return ""
    got = "no file" if size is None else f"{size:,} bytes"
    return f"{entry.path}: expected {entry.size_bytes:,} bytes, got {got}"


def _holds(stored: bytes | None, record: Record | None) -> bool:
    """Return whether the bytes of a file are a record, whatever the order of its fields is.

    None stands for no file.
    """
    if stored is None or record is None:
        return stored is None and record is None
    return type(record).from_json(stored) == record


class ArtifactStore:
    """Artifact store in a local folder or at an fsspec URL.

    Methods that read a corrupt pointer or ref raise ArtifactCorruptError.
    """

    def __init__(self, root: str, *, create: bool = True) -> None:
        """Open a store, or create it.

        Raises:
            ArtifactNotFoundError: There is no store, and `create` is false.
            StoreError: It cannot be reached, or has another layout.
        """
        self.backend = open_backend(root)
        self._manifests: dict[str, Manifest] = {}
        self.ended_runs: dict[str, RunRecord] = {}
        """Records of runs that have ended, as far as `flows.store.runs` has read them."""

        self._other_stores: dict[str, ArtifactStore] = {}
        try:
            layout = load_json(self._read_format(create=create))
        except StoreError:
            raise
        except ValueError as error:
            raise StoreError(f"store {self.root}: FORMAT.json: {error}") from error
        except Exception as error:  # each client has its own exceptions
            raise self.backend.open_error(error) from error
        if layout != _FORMAT:
            raise StoreError(
                f"store {self.root}: FORMAT.json: expected {_FORMAT}, got {layout}. Use another "
                "folder"
            )

    def _read_format(self, *, create: bool) -> bytes:
        stored = self.backend.read_if_exists("FORMAT.json")
        if stored is not None:
            return stored
        if not create:
            self.backend.check_reachable()
            raise ArtifactNotFoundError(
                f"{self.root}: expected an artifact store, got no FORMAT.json. Set --store, or "
                "create a store with `bertloom run`"
            )
        if self.backend.is_remote:
            self.backend.check_capabilities()
        self.backend.put_if_absent("FORMAT.json", dump_json(_FORMAT))
        return self.backend.read("FORMAT.json")

    @property
    def root(self) -> str:
        """Absolute path or URL."""
        return self.backend.root

    def url(self, path: str) -> str:
        """Return the absolute path or URL of a path in the store."""
        return self.backend.url(path)

    # Reading

    def artifact(self, manifest: Manifest) -> StoredArtifact:
        """Return the artifact of a manifest."""
        return StoredArtifact(manifest, self)

    def input(self, ref: InputRef) -> StoredArtifact:
        """Return the artifact that an input of an artifact of this store refers to.

        Raises:
            ArtifactNotFoundError: It was deleted, or is in another store that cannot be opened.
        """
        store = self if not ref.store else self._open_other(ref.store)
        return store.artifact(store.manifest(ref.manifest))

    def _open_other(self, root: str) -> ArtifactStore:
        if root not in self._other_stores:
            try:
                self._other_stores[root] = ArtifactStore(root, create=False)
            except StoreError as error:
                raise ArtifactNotFoundError(f"another store: {error}") from error
        return self._other_stores[root]

    def list_artifacts(self, stage: str | None = None) -> list[ListedArtifact]:
        """Return every published artifact, or those of a stage, newest first."""
        refs = defaultdict(list)
        for name, ref in self.ref_pointers().items():
            refs[ref.manifest].append(name)
        pointers, listed = self.pointers(stage), []
        manifests = self.manifests(pointer.manifest for pointer in pointers)
        for pointer in pointers:
            manifest = manifests.get(pointer.manifest)
            listed.append(
                ListedArtifact(
                    pointer,
                    manifest if isinstance(manifest, Manifest) else None,
                    tuple(refs[pointer.manifest]),
                )
            )
        return listed

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
            pointer = parse_record(Pointer, stored, backend=self.backend, path=path)
            manifest = self.manifest(pointer.manifest)
            if manifest.cache_key != cache_key:
                url = self.url(pointer.manifest)
                raise ArtifactCorruptError(f"{url}: expected cache key {cache_key}")
            self.check_files(manifest)
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            self.quarantine(path, expected=stored, reason=str(error))
            return None
        return manifest

    def read_manifest(self, path: str) -> Manifest:
        """Read a manifest, also if this object has read it before.

        Raises:
            ArtifactNotFoundError: There is no such manifest.
            ArtifactCorruptError: It is corrupt.
        """
        manifest = read_record(self.backend, Manifest, path)
        if manifest is None:
            raise ArtifactNotFoundError(
                f"{self.url(path)}: expected a manifest, got no file. Run the recipe again"
            )
        return manifest

    def manifest(self, path: str) -> Manifest:
        """Return a manifest as `read_manifest` does. This object reads it only once."""
        if path not in self._manifests:
            self._manifests[path] = self.read_manifest(path)
        return self._manifests[path]

    def manifests(self, paths: Iterable[str]) -> dict[str, Manifest | ArtifactCorruptError]:
        """Return the manifests that exist, by path, or the error of a corrupt one.

        This object reads each of them only once.
        """
        listed = list(dict.fromkeys(paths))
        read = read_records(
            self.backend, Manifest, (path for path in listed if path not in self._manifests)
        )
        for path, manifest in read.items():
            if isinstance(manifest, Manifest):
                self._manifests[path] = manifest
        known = {**self._manifests, **read}
        return {path: known[path] for path in listed if path in known}

    def check_files(self, manifest: Manifest) -> dict[str, int]:
        """Compare the sizes of an artifact's files with its manifest.

        Returns:
            Size of each file of the data folder, also of files that the manifest does not list.

        Raises:
            ArtifactCorruptError: A file is missing or has another size.
        """
        sizes = self.backend.sizes(manifest.data_path)
        for entry in manifest.files:
            if error := size_error(entry, sizes.get(entry.stored_name)):
                url = self.url(f"{manifest.data_path}/{entry.stored_name}")
                raise ArtifactCorruptError(f"{url}: {error}. Run the recipe again")
        return sizes

    # Pointers and refs

    def pointer(self, stage: str, cache_key: str) -> Pointer | None:
        """Return the pointer of a cache key without a look at its artifact, None if absent."""
        return read_record(self.backend, Pointer, key_path(stage, cache_key))

    def pointers(self, stage: str | None = None) -> list[Pointer]:
        """Return every published artifact, or those of a stage, newest first.

        Corrupt pointers are logged.
        """
        pointers = []
        paths = self.backend.names(f"keys/{stage}" if stage else "keys")
        for pointer in read_records(self.backend, Pointer, paths).values():
            if isinstance(pointer, Pointer):
                pointers.append(pointer)
            else:
                _LOGGER.warning("skipped: %s", pointer)
        return sorted(pointers, key=lambda pointer: pointer.committed, reverse=True)

    def ref(self, name: str) -> Pointer | None:
        """Return what a ref points to, None if there is no such ref."""
        ref = read_record(self.backend, Ref, ref_path(name))
        return ref.pointer if ref is not None else None

    def refs(self, folder: str = "") -> list[str]:
        """Return the names of all refs, or of those in a folder, sorted."""
        return [ref_name(path) for path in self.backend.names(f"refs/{folder}".rstrip("/"))]

    def ref_pointers(self) -> dict[str, Pointer]:
        """Return what each ref points to, by name."""
        refs = load_records(self.backend, Ref, "refs").values()
        return {ref.name: ref.pointer for ref in refs}

    def set_ref(self, name: str, manifest: Manifest) -> None:
        """Point a ref such as `RECIPE/build-tokens` to an artifact. The last caller wins.

        Nothing is written if it points there already. A corrupt ref is replaced.
        """
        path, new = ref_path(name), pointer_to(manifest)
        current = Ref.from_json(self.backend.read_if_exists(path))
        if current is not None:
            committed = {"committed": current.pointer.committed}
            if current == Ref(name=name, pointer=new.model_copy(update=committed)):
                return
        self.backend.replace(path, Ref(name=name, pointer=new).to_json())

    def swap_ref(self, name: str, pointer: Pointer, *, expected: Pointer | None) -> None:
        """Move a ref such as `corpus/simplewiki/latest` if it points to `expected`.

        Raises:
            RefConflictError: It points to something else. Nothing is changed.
        """
        path, new = ref_path(name), Ref(name=name, pointer=pointer)
        old = Ref(name=name, pointer=expected) if expected is not None else None
        stored = self.backend.read_if_exists(path)
        if not _holds(stored, old) or not self.backend.compare_and_swap(
            path, new.to_json(), expected=stored
        ):
            raise RefConflictError(
                f"ref {name!r}: expected {expected or 'no ref'}, got {self.ref(name) or 'no ref'}: "
                "another run moved it. Check where it points to, then try again"
            )

    def delete_ref(self, name: str, *, expected: Pointer) -> None:
        """Delete a ref if it still points to `expected`."""
        path = ref_path(name)
        if _holds(self.backend.read_if_exists(path), Ref(name=name, pointer=expected)):
            self.backend.delete(path)

    def remove_ref(self, name: str) -> None:
        """Delete a ref.

        Raises:
            ArtifactNotFoundError: There is no such ref.
        """
        path = ref_path(name)
        if self.backend.read_if_exists(path) is None:
            raise ArtifactNotFoundError(
                f"{self.root}: expected a ref, got {name!r}. `bertloom ref ls` lists the refs"
            )
        self.backend.delete(path)

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

    def clear_pieces(self, stage: str, digest: str) -> None:
        """Delete the records of finished work items."""
        self.backend.delete_folder(f"pieces/{stage}/{digest}")

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
        self.backend.replace(manifest.manifest_path, dump_json(manifest.model_dump(mode="json")))
        path = key_path(manifest.stage, manifest.cache_key)
        replaced = None
        if replace and (stored := self.backend.read_if_exists(path)) is not None:
            replaced = Pointer.from_json(stored)
            reason = f"rebuilt as {manifest.artifact_id}"
            self.quarantine(path, expected=stored, reason=reason)
        while not self.backend.put_if_absent(path, pointer_to(manifest).to_json()):
            # Another run was first. If its artifact is corrupt, the lookup frees the key.
            winner = self.lookup(manifest.stage, manifest.cache_key)
            if winner is not None and winner.artifact_id == manifest.artifact_id:
                break  # a network file system reported the failure of a call that succeeded
            if winner is not None:
                self._check_same_content(winner, manifest)
                self.backend.delete_folder(manifest.artifact_path)
                return Commit(winner, created=False)
        return Commit(manifest, created=True, replaced=replaced)

    def _check_same_content(self, winner: Manifest, loser: Manifest) -> None:
        """Raise DeterminismError if two artifacts of one key differ."""
        if winner.content_digest == loser.content_digest:
            return
        files = [{entry.path: entry.sha256 for entry in m.files} for m in (winner, loser)]
        differing = sorted({path for path, _ in files[0].items() ^ files[1].items()})
        raise DeterminismError(
            f"{loser.stage}: expected the files of {winner.artifact_id} for cache key "
            f"{loser.cache_key[:12]}, got other content of {', '.join(differing[:_MAX_SHOWN])}. "
            f"{self.url(loser.artifact_path)} stays for comparison. The stage depends on an input "
            "that is not part of its key"
        )

    def quarantine(self, path: str, *, expected: bytes, reason: str) -> None:
        """Move a pointer below `keys/` to quarantine if it still is `expected`, corrupt or not.

        Between the comparison and the deletion, another run can replace the pointer. Then its
        artifact is built again, with equal content.
        """
        if self.backend.read_if_exists(path) != expected:
            return
        self.backend.delete(path)
        pointer = Pointer.from_json(expected)
        record = {
            "quarantined_at": now(),
            "reason": reason,
            "pointer": pointer.model_dump(exclude_defaults=True) if pointer else None,
        }
        _, stage, _, name = path.removesuffix(".json").split("/")
        copy = f"quarantine/{stage}/{name}-{uuid.uuid4().hex[:8]}.json"
        self.backend.put_if_absent(copy, dump_json(record))
