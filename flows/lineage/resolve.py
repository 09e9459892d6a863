"""Names of artifacts, as users write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from flows.store.artifact import StoredArtifact, upstream_artifacts
from flows.store.artifact_paths import artifact_of_path, stored_name
from flows.store.artifacts import ArtifactStore
from flows.store.default_store import default_store
from flows.store.pointers import REF_NAME
from flows.store.runs import RunRecord, read_run, run_ids
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest
from schemas.trial_names import entry_label

_MAX_SUGGESTIONS = 6


class Form(NamedTuple):
    """One way to name an artifact."""

    description: str
    pattern: str
    """Regular expression of the names to look for in this way."""

    find: Callable[[str, ArtifactStore], Manifest | None]


def open_store(root: str | None) -> ArtifactStore:
    """Open an existing store. None: the default one.

    Raises:
        ArtifactNotFoundError: There is no store.
    """
    return ArtifactStore(root or default_store(), create=False)


def open_artifact(name: str, store: str | None) -> StoredArtifact:
    """Return the artifact with a name, path or URL; a path needs no store.

    Args:
        name: Name as for `resolve`, or `STORE/NAME`: the folder or URL of another store before it.
        store: Store to search. None: the default one.

    Raises:
        ArtifactNotFoundError: There is no store, or none or more than one artifact has the name.
    """
    if (artifact := artifact_of_path(name)) is not None:
        return artifact
    if "/" in name and (stored := stored_name(name)) is not None:
        return stored.store.artifact(resolve(stored.name, store=stored.store))
    opened = open_store(store)
    return opened.artifact(resolve(name, store=opened))


def resolve(text: str, *, store: ArtifactStore) -> Manifest:
    """Return the artifact with a name, in one of the `FORMS`.

    Raises:
        ArtifactNotFoundError: No artifact, or more than one, has the name.
    """
    if (manifest := find_artifact(text, store)) is not None:
        return manifest
    raise ArtifactNotFoundError(
        f"{store.root}: no artifact {text!r}. {describe_names(text, store)}"
    )


def published_manifests(store: ArtifactStore) -> Iterator[Manifest]:
    """Yield every published artifact, oldest first, each after all that it was built from.

    Raises:
        ArtifactCorruptError: A manifest is corrupt.
    """
    pointers = sorted(store.pointers(), key=lambda pointer: (pointer.committed, pointer.manifest))
    artifacts = list[StoredArtifact]()
    for manifest in store.manifests(pointer.manifest for pointer in pointers).values():
        if isinstance(manifest, ArtifactCorruptError):
            raise manifest
        artifacts.append(store.artifact(manifest))
    for artifact in upstream_artifacts(artifacts).values():
        yield artifact.manifest


# Artifacts


def find_artifact(text: str, store: ArtifactStore) -> Manifest | None:
    """Return the artifact with a name in one of the `FORMS`, or None."""
    forms = (form for form in FORMS if re.fullmatch(form.pattern, text))
    return next((manifest for form in forms if (manifest := form.find(text, store))), None)


def _find_step(label: str, store: ArtifactStore) -> Manifest | None:
    run = newest_run(store)
    paths = {step.label: step.manifest for step in run.steps} if run else {}
    return store.read_manifest(paths[label]) if label in paths else None


def newest_run(store: ArtifactStore) -> RunRecord | None:
    """Return the newest run that finished a step, or None."""
    records = (read_run(store, run_id) for run_id in reversed(run_ids(store)))
    return next((record for record in records if record.steps), None)


def _find_ref(name: str, store: ArtifactStore) -> Manifest | None:
    """Return the artifact of a ref, or of a part of a publication: `corpus/NAME/latest/PART`."""
    if (pointer := store.ref(name)) is not None:
        return store.read_manifest(pointer.manifest)
    publication, _, part = name.rpartition("/")
    pointer = store.ref(publication) if publication else None
    path = pointer.parts.get(part) if pointer else None
    return store.read_manifest(path) if path else None


def _find_path(text: str, store: ArtifactStore) -> Manifest | None:
    artifact = artifact_of_path(text)
    if artifact is not None and not store.manifests([artifact.manifest.manifest_path]):
        raise ArtifactNotFoundError(
            f"{text}: expected an artifact of {store.root}, got one of {artifact.store.root}. "
            "Set --store to that store"
        )
    return artifact.manifest if artifact else None


def _find_digits(text: str, store: ArtifactStore) -> Manifest | None:
    """Return the newest artifact with an id, cache key or content that starts with the digits."""
    digits = text.lower().removeprefix("sha256:")
    matches = [
        pointer
        for pointer in store.pointers()
        if any(
            value.removeprefix("sha256:").startswith(digits)
            for value in (pointer.artifact_id, pointer.cache_key, pointer.content_digest)
        )
    ]
    if len({pointer.content_digest for pointer in matches}) > 1:
        listed = ", ".join(map(str, matches[:_MAX_SUGGESTIONS]))
        raise ArtifactNotFoundError(
            f"{text!r}: expected one artifact, got {len(matches)}: {listed}. Give more digits"
        )
    return store.read_manifest(matches[0].manifest) if matches else None


def _find_newest(stage: str, store: ArtifactStore) -> Manifest | None:
    pointers = store.pointers(stage)
    return store.read_manifest(pointers[0].manifest) if pointers else None


FORMS = (
    Form("STEP of the newest run", r"[^/:]+\.[^/:]+", _find_step),
    Form("RECIPE/STEP or another ref", REF_NAME, _find_ref),
    Form("STAGE for its newest artifact", r"[a-z0-9-]+", _find_newest),
    Form(
        "four or more digits of its id, cache key or content digest",
        r"(?i:sha256:)?[0-9a-fA-F]{4,}",
        _find_digits,
    ),
    Form("a path or URL", r"(?s:.+)", _find_path),
)
"""Ways to name an artifact. The first that has an artifact of this name applies."""


def describe_names(text: str, store: ArtifactStore) -> str:
    """Return the artifact names closest to a text, and the forms of a name."""
    names = [*store.refs(), *(pointer.stage for pointer in store.pointers())]
    publication = text.rpartition("/")[0]
    if publication in names and (pointer := store.ref(publication)) is not None:
        names += [f"{publication}/{part}" for part in pointer.parts]
    forms = ", ".join(form.description for form in FORMS)
    return f"{closest_names(text, names)}Name an artifact by {forms}"


def closest_names(text: str, names: Iterable[str]) -> str:
    """Return a sentence with the names closest to a text. A grid of trials is one name."""
    entries = sorted(set(map(entry_label, names)))
    closest = difflib.get_close_matches(text, entries, n=_MAX_SUGGESTIONS, cutoff=0)
    return f"Closest names: {', '.join(closest)}. " if closest else ""
