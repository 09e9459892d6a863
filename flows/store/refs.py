"""Refs, the names that move on, and pins, which keep artifacts that nothing else does.

refs/NAME.json             pointer; moved by compare-and-swap, so that no move gets lost
pins/ARTIFACT_ID.json      {reason, pinned, pointer}
"""

from __future__ import annotations

import re
from typing import Any

from flows.store.backend import StoreBackend
from flows.store.pointers import Pointer, now, parse_pointer, pointer_to, to_json
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    RefConflictError,
)
from schemas.manifest import Manifest
from schemas.sealed import read_sealed

# Each part begins with something else than a dot: no way up, and no hidden file.
_NAME = re.compile(r"[\w@+=-][\w@+=.-]*(/[\w@+=-][\w@+=.-]*)*")
_TRIES = 100


def ref_path(name: str) -> str:
    """Where a ref lies, relative to the root of the store.

    Raises:
        ConfigError: the name cannot be that of a ref.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"ref {name!r}: expected letters, digits and any of _-.@+= in parts between /, none "
            "of them beginning with a dot"
        )
    return f"refs/{name}.json"


def read_ref(backend: StoreBackend, name: str) -> Pointer | None:
    """What a name leads to, or None.

    Raises:
        ArtifactCorruptError: the file is no pointer.
    """
    stored = _stored(backend, ref_path(name))
    return None if stored is None else _parse(stored, name)


def ref_names(backend: StoreBackend) -> list[str]:
    """Every name, sorted."""
    return [path.removeprefix("refs/").removesuffix(".json") for path in backend.names("refs")]


def swap_ref(
    backend: StoreBackend, name: str, pointer: Pointer, *, expected: Pointer | None
) -> None:
    """Let a name lead elsewhere, if it leads to where the caller thinks.

    Args:
        backend: the store's files.
        name: such as `corpus/simplewiki/latest`.
        pointer: what it leads to from now on.
        expected: what it leads to; None: there is no such name.

    Raises:
        RefConflictError: it leads elsewhere. Nothing is changed.
    """
    path = ref_path(name)
    stored = _stored(backend, path)
    found = None if stored is None else _parse(stored, name)
    if found != expected or not backend.swap(path, pointer.to_json(), expected=stored):
        if found == expected:
            found = read_ref(backend, name)
        raise RefConflictError(
            f"ref {name!r}: expected it to lead to {_shown(expected)}, found {_shown(found)}: "
            "another run moved it meanwhile. Look at what is there, and try again"
        )


def set_ref(backend: StoreBackend, name: str, manifest: Manifest) -> None:
    """Let a name lead to an artifact from now on, whatever it led to; the last caller wins.

    Nothing is written where it leads there already.
    """
    path = ref_path(name)
    for _ in range(_TRIES):
        stored = _stored(backend, path)
        if stored is not None and _leads_to(stored, manifest):
            return
        if backend.swap(path, pointer_to(manifest).to_json(), expected=stored):
            return
    raise RefConflictError(
        f"ref {name!r}: other runs moved it {_TRIES} times while this one wanted to; try again"
    )


def delete_ref(backend: StoreBackend, name: str) -> None:
    """Take a name away; it may be gone already. The artifact stays until garbage is collected."""
    backend.delete(ref_path(name))


def _stored(backend: StoreBackend, path: str) -> bytes | None:
    try:
        return backend.read(path)
    except FileNotFoundError:
        return None


def _parse(stored: bytes, name: str) -> Pointer:
    if (pointer := parse_pointer(stored)) is None:
        raise ArtifactCorruptError(
            f"ref {name!r}: expected a pointer. Delete {ref_path(name)} in the store, or run the "
            "recipe again"
        )
    return pointer


def _leads_to(stored: bytes, manifest: Manifest) -> bool:
    found = parse_pointer(stored)
    if found is None:
        return False  # a damaged ref is put right by moving it
    return (found.manifest, found.content, found.parts) == (manifest.path, manifest.content, {})


def _shown(pointer: Pointer | None) -> str:
    return "nothing" if pointer is None else f"{pointer.stage} {pointer.artifact_id}"


# Pins


def pin_path(artifact_id: str) -> str:
    """Where a pin lies, relative to the root of the store."""
    return f"pins/{artifact_id}.json"


def pin(backend: StoreBackend, manifest: Manifest, *, reason: str) -> None:
    """Keep an artifact, and all that it was made from, until it is unpinned."""
    pointer = pointer_to(manifest).model_dump(exclude_defaults=True)
    record = {"reason": reason, "pinned": now(), "pointer": pointer}
    backend.replace(pin_path(manifest.artifact_id), to_json(record))


def unpin(backend: StoreBackend, artifact_id: str) -> None:
    """Take a pin away.

    Raises:
        ArtifactNotFoundError: the artifact is not pinned.
    """
    found = pins(backend)
    if artifact_id not in found:
        raise ArtifactNotFoundError(
            f"{backend.root}: {artifact_id} is not pinned; pinned are {', '.join(found) or 'none'}"
        )
    backend.delete(pin_path(artifact_id))


def pins(backend: StoreBackend) -> dict[str, dict[str, Any]]:
    """Every pin by the artifact's id: `reason`, `pinned` (ISO 8601, UTC), `pointer`.

    Raises:
        ArtifactCorruptError: one cannot be read.
    """
    found = {}
    for path in backend.names("pins"):
        try:
            record = read_sealed(backend.read(path)).value
            Pointer.model_validate(record["pointer"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactCorruptError(
                f"{backend.url(path)}: expected a pin: {error}. Delete the file, and pin again"
            ) from error
        found[path.removeprefix("pins/").removesuffix(".json")] = record
    return found
