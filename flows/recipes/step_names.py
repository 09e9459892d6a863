"""Names in place of paths: steps (`RECIPE/STEP`, or `STORE/RECIPE/STEP` for another store) and
repositories of the Hugging Face Hub (`hf://ORG/NAME`)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from flows.store.artifact import StoredArtifact
from flows.store.artifact_paths import stored_name
from flows.store.artifacts import ArtifactStore
from pipelines.io.hub import is_hub_url, pin_revision
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.errors import ConfigError, StoreError

_STEP = re.compile(r".+/(?:build-vocabulary|(?:pretrain|finetune)\.[^/]+)")


def is_name(text: str) -> bool:
    """Return whether a text is a URL of the Hub, or ends like a step with a vocabulary or model."""
    return is_hub_url(text) or _STEP.fullmatch(text) is not None


def find_path(text: str, path: str, store: str) -> str:
    """Return the path or URL of a model's folder or a vocabulary's file by its name.

    A URL of the Hub gets the commit of its branch or tag.

    Args:
        text: Name of the step, or URL of the Hub.
        path: Absolute path or URL that the text would otherwise stand for. It is returned if it
            exists, or if there is no such step.
        store: Store of the recipe.

    Raises:
        InputError: The Hub has no such repository or revision, or does not answer.
    """
    if is_hub_url(text):
        return pin_revision(text)
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
