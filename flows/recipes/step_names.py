"""Names of steps in place of paths: `RECIPE/STEP`, and `STORE/RECIPE/STEP` for another store."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from flows.store.artifact import StoredArtifact
from flows.store.artifact_paths import stored_name
from flows.store.artifacts import ArtifactStore
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.errors import ConfigError, StoreError

_STEP = re.compile(r".+/(?:build-vocabulary|(?:pretrain|finetune)\.[^/]+)")


def is_step_name(text: str) -> bool:
    """Return whether a text ends like the name of a step with a vocabulary or a model."""
    return _STEP.fullmatch(text) is not None


def find_step_path(text: str, path: str, store: str) -> str:
    """Return the path or URL of a model's folder or a vocabulary's file by the name of its step.

    Args:
        text: Name of the step.
        path: Absolute path or URL that the text would otherwise stand for. It is returned if it
            exists, or if there is no such step.
        store: Store of the recipe.
    """
    artifact = None if Path(path).exists() else _find_artifact(text, path, store)
    if artifact is None:
        return path
    manifest, location = artifact.manifest, artifact.manifest.data_path
    if manifest.stage == "build-vocabulary" and (entry := manifest.file(VOCAB_FILE)) is not None:
        location = f"{location}/{entry.stored_name}"
    return artifact.store.url(location)


def _find_artifact(text: str, path: str, store: str) -> StoredArtifact | None:
    # ConfigError: a text that is no name of a ref. StoreError: no store yet.
    with contextlib.suppress(ConfigError, StoreError):
        if (artifact := _of_ref(text, ArtifactStore(store, create=False))) is not None:
            return artifact
    with contextlib.suppress(ConfigError, StoreError):
        if (stored := stored_name(path)) is not None:
            return _of_ref(stored.name, stored.store)
    return None


def _of_ref(name: str, store: ArtifactStore) -> StoredArtifact | None:
    pointer = store.ref(name)
    return store.artifact(store.read_manifest(pointer.manifest)) if pointer is not None else None
