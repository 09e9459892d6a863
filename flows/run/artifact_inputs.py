"""Artifacts that a step reads by path: a checkpoint to start from, a vocabulary to reuse.

They are inputs in the manifest like those that steps of the recipe build. The cache key contains
only the digests of the files, wherever they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from flows.store.artifact import StoredArtifact
from flows.store.artifact_paths import artifact_of_path
from flows.store.artifacts import ArtifactStore
from schemas.base_configs import Config
from schemas.errors import BertloomError
from schemas.manifest import InputRef, Manifest, RawInput
from schemas.redaction import public_address

REUSED_VOCABULARY = "vocab_file"
"""Name of the input that a vocabulary was copied from."""

_FIELDS = ("init_checkpoint", REUSED_VOCABULARY)
"""Fields of configurations with the path of one folder or file; they name the input."""

_FILES = "files"
"""Name of an input with data that a step reads by the paths of the files."""


@dataclass(frozen=True)
class ArtifactFiles:
    """Raw files of a step that belong to artifacts."""

    inputs: tuple[InputRef, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    """Name of the input by folder of raw files."""

    def mark(self, raw_inputs: Sequence[RawInput]) -> tuple[RawInput, ...]:
        """Return raw files with the names of the inputs that they belong to."""
        return tuple(
            item.model_copy(update={"input_name": self.names.get(_folder(item), "")})
            for item in raw_inputs
        )


def find_artifact_files(
    raw_inputs: Sequence[RawInput], *, config: Config, store: ArtifactStore
) -> ArtifactFiles:
    """Return the artifacts that the raw files of a step belong to.

    Garbage collection retains the artifacts of this store while the step runs.

    Args:
        raw_inputs: Raw files of the step.
        config: Configuration of the step.
        store: Store of the run.
    """
    first_name = next((name for name in _FIELDS if getattr(config, name, None)), _FILES)
    refs: dict[str, InputRef] = {}
    names: dict[str, str] = {}
    for folder in dict.fromkeys(map(_folder, raw_inputs)):
        if (artifact := _find_artifact(folder)) is not None:
            artifact_id = artifact.manifest.artifact_id
            if artifact_id not in refs:
                name = f"{first_name}-{len(refs) + 1}" if refs else first_name
                refs[artifact_id] = _ref(name, artifact, store)
            names[folder] = refs[artifact_id].name
    return ArtifactFiles(tuple(refs.values()), names)


def input_ref(name: str, manifest: Manifest, *, store: str = "") -> InputRef:
    """Return the reference to an artifact that manifests built from it contain.

    Args:
        name: Name of the input.
        manifest: Manifest of the artifact.
        store: Path or URL of its store. "": the store of what is built from it.
    """
    return InputRef(
        name=name,
        stage=manifest.stage,
        artifact_id=manifest.artifact_id,
        cache_key=manifest.cache_key,
        content_digest=manifest.content_digest,
        manifest=manifest.manifest_path,
        store=store,
    )


def _folder(item: RawInput) -> str:
    """Return the folder of a raw file; of a local one, behind its links."""
    path = item.uri.removeprefix("file://")
    return (path if "://" in path else os.path.realpath(path)).rpartition("/")[0]


def _find_artifact(folder: str) -> StoredArtifact | None:
    try:
        return artifact_of_path(folder)
    except (BertloomError, OSError):  # a damaged manifest: the files alone are read
        return None


def _ref(name: str, artifact: StoredArtifact, store: ArtifactStore) -> InputRef:
    """Return the reference, and mark an artifact of this store as used."""
    manifest = artifact.manifest
    # A store can have several addresses, ids of artifacts are unique.
    if store.backend.read_if_exists(manifest.manifest_path) is None:
        return input_ref(name, manifest, store=public_address(artifact.store.root))
    store.lookup(manifest.stage, manifest.cache_key)
    return input_ref(name, manifest)
