"""Finding the artifact that a person means."""

from __future__ import annotations

import difflib
from pathlib import Path

import fsspec

from flows.artifacts import ArtifactStore, Pointer, parse_manifest
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import Manifest

MANIFEST = "manifest.json"
_LEAST_PREFIX = 4
_SHOWN = 6


def resolve(text: str, *, store: ArtifactStore) -> Manifest:
    """The artifact that a text names.

    Args:
        text: the name of a ref (`sample/build-tokens`), an artifact's id or cache key or the first
            four or more digits of one, a stage (its newest artifact), or the path or URL of an
            artifact's folder, of its manifest, or of one of its files.
        store: where to look.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one artifact is.
    """
    pointer = store.ref(text) if _is_plain(text) else None
    if pointer is None:
        pointers = list(store.pointers())
        pointer = _by_stage(text, pointers) or _by_digits(text, pointers)
    if pointer is not None:
        return store.read_manifest(pointer.manifest)
    if (at_path := artifact_of_path(text)) is not None:
        return at_path[0]
    known = sorted({*store.refs(), *(item.stage for item in pointers)})
    close = difflib.get_close_matches(text, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    names = ", ".join(known) if known else "none: the store is empty"
    raise ArtifactNotFoundError(
        f"{store.root}: no artifact {text!r}.{hint} Expected an id or a cache key (at least "
        f"{_LEAST_PREFIX} digits), a path, or one of the names {names}"
    )


def _is_plain(text: str) -> bool:
    parts = text.split("/")
    return "://" not in text and not any(part in ("", ".", "..") for part in parts)


def _by_stage(text: str, pointers: list[Pointer]) -> Pointer | None:
    of_stage = [pointer for pointer in pointers if pointer.stage == text]
    return max(of_stage, key=lambda pointer: pointer.committed, default=None)


def _by_digits(text: str, pointers: list[Pointer]) -> Pointer | None:
    digits = text.removeprefix("sha256:").lower()
    if len(digits) < _LEAST_PREFIX:
        return None
    matching = [
        pointer
        for pointer in pointers
        if pointer.artifact_id.startswith(digits) or pointer.cache_key.startswith(digits)
    ]
    if len(matching) > 1:
        listed = ", ".join(f"{item.artifact_id} ({item.stage})" for item in matching[:_SHOWN])
        raise ArtifactNotFoundError(
            f"{text!r} names {len(matching)} artifacts: {listed}. Give more digits"
        )
    return matching[0] if matching else None


def artifact_of_path(text: str) -> tuple[Manifest, str] | None:
    """The manifest of the artifact that a path or URL is of or in, with the root of its store.

    None where it is in no artifact.
    """
    try:
        fs, path = fsspec.core.url_to_fs(text)
    except (ValueError, ImportError):
        return None
    folder = str(path).rstrip("/")
    # The folder itself, its manifest, its data folder or a file in it.
    for _ in range(3):
        if fs.isfile(f"{folder}/{MANIFEST}"):
            where = str(fs.unstrip_protocol(f"{folder}/{MANIFEST}"))
            manifest = parse_manifest(fs.cat_file(f"{folder}/{MANIFEST}"), where=where)
            root = folder.removesuffix(manifest.location).rstrip("/")
            is_local = "file" in (
                fs.protocol if not isinstance(fs.protocol, str) else [fs.protocol]
            )
            return manifest, root if is_local else str(fs.unstrip_protocol(root))
        folder = folder.rpartition("/")[0]
    return None


def artifact_of_file(path: str) -> tuple[Manifest, ArtifactStore, str] | None:
    """Of a file's path: its artifact, the store and its logical name; None if it is in none.

    Raises:
        ArtifactNotFoundError: it lies in an artifact's folder but is no part of the artifact.
    """
    found = artifact_of_path(path)
    if found is None:
        return None
    manifest, root = found
    name = path.rstrip("/").rpartition("/")[2]
    for entry in manifest.files:
        if entry.object == name:
            return manifest, ArtifactStore(root, create=False), entry.path
    if Path(path).is_file():
        raise ArtifactNotFoundError(
            f"{path}: is no part of artifact {manifest.artifact_id}, whose manifest does not list "
            "it: it was left behind by a worker that was repeated"
        )
    return None
