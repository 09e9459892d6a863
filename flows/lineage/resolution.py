"""Finding the artifact that a person means."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable
from pathlib import Path

from flows.store.artifacts import ArtifactStore, Pointer, parse_manifest
from pipelines.io.file_systems import file_system
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import Manifest

MANIFEST = "manifest.json"
_LEAST_PREFIX = 4
_SHOWN = 6
_SHOWN_NAMES = 12
_REF_NAME = re.compile(r"[\w@+=-][\w@+=.-]*(/[\w@+=-][\w@+=.-]*)*")


def resolve(text: str, *, store: ArtifactStore) -> Manifest:
    """The artifact that a text names.

    Args:
        text: the name of a ref (`sample/build-tokens`), of a publication's part
            (`corpus/simplewiki/latest/build-documents`), an artifact's id or cache key or the
            first four or more digits of one, a stage (its newest artifact), or the path or URL of
            an artifact's folder, of its manifest, or of one of its files.
        store: where to look.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one artifact is.
    """
    if _REF_NAME.fullmatch(text):
        if (pointer := store.ref(text)) is not None:
            return store.read_manifest(pointer.manifest)
        if (part := _part_of_publication(text, store)) is not None:
            return store.read_manifest(part)
    pointers = list(store.pointers())
    found = _by_stage(text, pointers) or _by_digits(text, pointers)
    if found is not None:
        return store.read_manifest(found.manifest)
    if (at_path := artifact_of_path(text)) is not None:
        return at_path[0]
    known = [*store.refs(), *(item.stage for item in pointers)]
    raise ArtifactNotFoundError(
        f"{store.root}: no artifact {text!r}.{_hint(text, known)} Expected an id or a cache key "
        f"(at least {_LEAST_PREFIX} digits), a path, or {_names_like(text, known)}"
    )


def _part_of_publication(text: str, store: ArtifactStore) -> str | None:
    """Path of the manifest of `PUBLICATION/LABEL`, or None."""
    publication, _, label = text.rpartition("/")
    pointer = store.ref(publication) if publication else None
    if pointer is None or not pointer.parts:
        return None
    if label not in pointer.parts:
        raise ArtifactNotFoundError(
            f"{store.root}: {publication} has no part {label!r}.{_hint(label, pointer.parts)} "
            f"Expected {_names_like(label, pointer.parts)}"
        )
    return pointer.parts[label]


def _hint(text: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(text, sorted(set(known)), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _names_like(text: str, known: Iterable[str]) -> str:
    """Some names, those most like the text first; the cells of a grid as one."""
    from flows.engine.task_steps import entry_label

    entries: dict[str, int] = {}
    for name in sorted(set(known)):
        entries[entry_label(name)] = entries.get(entry_label(name), 0) + 1
    if not entries:
        return "one of the names of the store, which has none"
    names = [name if count == 1 else f"{name}.CELL" for name, count in entries.items()]
    # Ties of likeness are broken by the order in memory: what is shown is in order by name.
    near = heapq.nlargest(_SHOWN_NAMES, names, key=lambda name: (_likeness(text, name), name))
    shown = sorted(near)
    more = len(names) - len(shown)
    return f"one of the names {', '.join(shown)}{f' and {more} more' if more else ''}"


def _likeness(text: str, name: str) -> float:
    return difflib.SequenceMatcher(None, text, name).ratio()


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
        fs, path = file_system(text)
    except (ValueError, ImportError):
        return None
    folder = str(path).rstrip("/")
    # The folder itself, its manifest, its data folder or a file in that or one level below.
    for _ in range(4):
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
    for entry in manifest.files:
        if path.endswith(f"/{manifest.data}/{entry.object}"):
            return manifest, ArtifactStore(root, create=False), entry.path
    if Path(path).is_file():
        raise ArtifactNotFoundError(
            f"{path}: is no part of artifact {manifest.artifact_id}, whose manifest does not list "
            "it: it was left behind by a worker that was repeated"
        )
    return None
