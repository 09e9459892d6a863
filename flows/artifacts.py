"""The artifact store: immutable directories, made visible by a pointer under their cache key.

    FORMAT.json                             layout and digest of the store
    artifacts/STAGE/ATTEMPT/data/           files, written there by the stage itself, never renamed
    artifacts/STAGE/ATTEMPT/manifest.json   names the files that count
    keys/STAGE/AA/CACHE_KEY.json            pointer to a manifest, put-if-absent: THE commit
    refs/NAME.json                          names that move on, such as RECIPE/build-tokens
    runs/RUN_ID/run.json                    what a run did
    work/STAGE/CACHE_KEY/                   where a long stage keeps what it needs to go on
    quarantine/                             pointers taken back, and what was wrong with them

An attempt that no pointer leads to (a crash, a lost race) does not exist for readers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.store_backend import StoreBackend
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    DeterminismError,
    StoreError,
)
from schemas.manifest import MANIFEST_VERSION, Manifest

LAYOUT = 1
_FORMAT = {"layout": LAYOUT, "digest": "sha256"}


class Pointer(BaseModel):
    """What a cache key, or a ref, leads to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: str
    """Path of the manifest, relative to the root of the store."""

    content: str
    artifact_id: str
    stage: str
    cache_key: str
    committed: str
    """ISO 8601, UTC."""


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


def to_json(value: Any) -> bytes:
    """Indented JSON with a final line break, as every file of the store is written."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def now() -> str:
    """The time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class ArtifactStore:
    """A store at a local folder or an fsspec URL."""

    def __init__(self, root: str, *, create: bool = True) -> None:
        """Open a store, and make it where there is none.

        Raises:
            StoreError: it cannot be reached, is none (`create=False`), or has another layout.
        """
        self.backend = StoreBackend(root)
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
            self.backend.create("FORMAT.json", to_json(_FORMAT))
            stored = self.backend.read("FORMAT.json")
        try:
            found = json.loads(stored)
        except ValueError as error:
            raise StoreError(f"store {self.root}: FORMAT.json is no JSON: {error}") from error
        if found != _FORMAT:
            raise StoreError(
                f"store {self.root}: expected the layout {_FORMAT}, found {found}. It was made by "
                "another version of bertloom; use that one, or another folder"
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
            self._quarantine(stage, cache_key, {"reason": str(error)})
            return None
        if pointer is None:
            return None
        try:
            manifest = self.read_manifest(pointer.manifest)
            self.check_files(manifest)
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            self.withdraw(pointer, reason=str(error))
            return None
        return manifest

    def pointer(self, stage: str, cache_key: str) -> Pointer | None:
        """What a key leads to, unchecked; None where there is nothing."""
        path = key_path(stage, cache_key)
        try:
            stored = self.backend.read(path)
        except FileNotFoundError:
            return None
        try:
            return Pointer.model_validate_json(stored)
        except ValidationError as error:
            raise ArtifactCorruptError(
                f"{self.url(path)}: expected a pointer to a manifest: {error}. Delete the file, or "
                "run the recipe again; the stage is then built anew"
            ) from error

    def pointers(self, stage: str | None = None) -> Iterator[Pointer]:
        """Every published key, of one stage or of all, in no particular order."""
        for path in self.backend.names(f"keys/{stage}" if stage else "keys"):
            parts = path.split("/")
            pointer = self.pointer(parts[1], parts[-1].removesuffix(".json"))
            if pointer is not None:
                yield pointer

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

    def check_files(self, manifest: Manifest) -> None:
        """Compare which files are there, and how long they are, with the manifest.

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
        self.check_files(manifest)
        if not self.backend.create(manifest.path, to_json(manifest.model_dump(mode="json"))):
            raise StoreError(f"{self.url(manifest.path)}: this attempt is published already")
        replaced = None
        if replace and (old := self.pointer(manifest.stage, manifest.cache_key)):
            self.withdraw(old, reason=f"rebuilt as {manifest.artifact_id}")
            replaced = old
        pointer = pointer_to(manifest)
        path = key_path(manifest.stage, manifest.cache_key)
        while not self.backend.create(path, to_json(pointer.model_dump())):
            # Another run was faster. What it published may have been damaged since: then it is
            # withdrawn by the lookup, and the key is free again.
            winner = self.lookup(manifest.stage, manifest.cache_key)
            if winner is not None:
                self._compare(winner, manifest)
                self.backend.delete_folder(manifest.location)
                return Commit(winner, won=False)
        return Commit(manifest, won=True, replaced=replaced)

    def _compare(self, winner: Manifest, loser: Manifest) -> None:
        if winner.content == loser.content:
            return
        other = {entry.path: entry.sha256 for entry in winner.files}
        mine = {entry.path: entry.sha256 for entry in loser.files}
        paths = sorted({*other, *mine})
        differing = [path for path in paths if other.get(path) != mine.get(path)]
        record = f"quarantine/conflicts/{loser.stage}/{loser.artifact_id}.json"
        conflict = {
            "cache_key": loser.cache_key,
            "published": winner.path,
            "other": loser.path,
            "contents": [winner.content, loser.content],
            "differing_files": differing,
        }
        self.backend.create(record, to_json(conflict))
        rows = "the same rows" if winner.logical_content == loser.logical_content else "other rows"
        shown = ", ".join(differing[:5]) + (" ..." if len(differing) > 5 else "")
        raise DeterminismError(
            f"{loser.stage}: two runs under the cache key {loser.cache_key[:12]} made different "
            f"files with {rows} ({shown}): {winner.artifact_id} is published, {loser.artifact_id} "
            f"is kept beside it for comparison. The stage depends on something that is not in its "
            f"key; see {self.url(record)}"
        )

    def withdraw(self, pointer: Pointer, *, reason: str) -> None:
        """Take a pointer back: it moves to quarantine, with the reason."""
        if self.pointer(pointer.stage, pointer.cache_key) != pointer:
            return  # withdrawn by another run already, and perhaps built again
        record = {"reason": reason, "pointer": pointer.model_dump()}
        self._quarantine(pointer.stage, pointer.cache_key, record)

    def _quarantine(self, stage: str, cache_key: str, record: dict[str, Any]) -> None:
        name = f"{cache_key}-{uuid.uuid4().hex[:8]}"
        data = to_json({"withdrawn": now(), **record})
        self.backend.create(f"quarantine/{stage}/{name}.json", data)
        self.backend.delete(key_path(stage, cache_key))

    def withdraw_artifacts(self, reasons: Mapping[str, str]) -> None:
        """Take back every pointer to the artifacts with these ids, each for its reason."""
        for pointer in list(self.pointers()):
            if pointer.artifact_id in reasons:
                self.withdraw(pointer, reason=reasons[pointer.artifact_id])

    # Work that can go on

    def work(self, stage: str, cache_key: str) -> str:
        """URL of a folder, which is there, for what a stage needs to go on under this key."""
        path = f"work/{stage}/{cache_key}"
        self.backend.make_folder(path)
        return self.url(path)

    def clear_work(self, stage: str, cache_key: str) -> None:
        """Take that folder away, as its artifact is published."""
        self.backend.delete_folder(f"work/{stage}/{cache_key}")

    # Names and runs

    def set_ref(self, name: str, manifest: Manifest) -> None:
        """Let a name, such as `RECIPE/build-tokens`, lead to an artifact from now on."""
        pointer = pointer_to(manifest)
        self.backend.replace(f"refs/{name}.json", to_json(pointer.model_dump()))

    def ref(self, name: str) -> Pointer | None:
        """What a name leads to, or None."""
        try:
            stored = self.backend.read(f"refs/{name}.json")
        except FileNotFoundError:
            return None
        try:
            return Pointer.model_validate_json(stored)
        except ValidationError as error:
            raise ArtifactCorruptError(f"ref {name!r}: expected a pointer: {error}") from error

    def refs(self) -> list[str]:
        """Every name, sorted."""
        return [
            path.removeprefix("refs/").removesuffix(".json") for path in self.backend.names("refs")
        ]

    def write_report(self, name: str, text: str) -> str:
        """What people read of a recipe's last run, in place of the one before; its URL."""
        path = f"reports/{name}.txt"
        self.backend.replace(path, text.encode())
        return self.url(path)

    def write_run(self, run_id: str, record: dict[str, Any]) -> None:
        """What a run did so far, in place of what was written before."""
        self.backend.replace(f"runs/{run_id}/run.json", to_json(record))


def key_path(stage: str, cache_key: str) -> str:
    """Where the pointer of a key lies, relative to the root."""
    return f"keys/{stage}/{cache_key[:2]}/{cache_key}.json"


def pointer_to(manifest: Manifest) -> Pointer:
    """A pointer to an artifact, as of now."""
    return Pointer(
        manifest=manifest.path,
        content=manifest.content,
        artifact_id=manifest.artifact_id,
        stage=manifest.stage,
        cache_key=manifest.cache_key,
        committed=now(),
    )


def parse_manifest(stored: bytes, *, where: str) -> Manifest:
    """A manifest from the bytes of its file.

    Raises:
        ArtifactCorruptError: they are not a manifest, or one of another version.
    """
    try:
        raw = json.loads(stored)
        version = raw.get("manifest_version") if isinstance(raw, dict) else None
        if version != MANIFEST_VERSION:
            raise ArtifactCorruptError(
                f"{where}: expected manifest_version {MANIFEST_VERSION}, found {version!r}"
            )
        return Manifest.model_validate(raw)
    except ValueError as error:
        raise ArtifactCorruptError(f"{where}: expected a manifest: {error}") from error
