"""Publishing a corpus: the ref `NAME/latest` moves to it, if it is not too unlike the one before.

A publication has a name of its own that never moves; see `flows.publish.publications`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from flows.engine.steps import StepResult
from flows.publish.comparison import Comparison, compare_corpora, dump_dates
from flows.publish.publications import (
    LATEST,
    TOKENS,
    check_parts,
    corpus_parts,
    publication_pointer,
    publications,
    published_corpus,
)
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer, now, ref_path
from schemas.errors import ArtifactCorruptError, ConfigError, PublishError, RefConflictError
from schemas.manifest import Manifest
from schemas.publish_configs import PublishConfig
from schemas.recipe import Recipe

_VOCAB = "vocab.txt"


class CorpusRefusedError(PublishError):
    """A corpus that is beyond a limit.

    Attributes:
        comparison: with what is published.
    """

    def __init__(self, message: str, comparison: Comparison) -> None:
        super().__init__(message, comparison)  # both, so that it can go between processes
        self.comparison = comparison

    def __str__(self) -> str:
        return str(self.args[0])


class Publication(NamedTuple):
    """What publishing came to."""

    name: str
    """The ref that moves, such as `corpus/simplewiki/latest`."""

    kept_as: str
    """The ref of this publication alone, such as `corpus/simplewiki/20261001`; "" where nothing was
    moved."""

    parts: dict[str, str]
    """Path of each step's manifest, by the step's label."""

    outcome: Literal["moved", "same", "planned"]
    """`same`: it was published already; `planned`: nothing was to be changed."""

    replaced: str = ""
    """The artifact id of the tokens that were published before; "" for none."""

    comparison: Comparison | None = None
    """With what was published before; None for the first publication."""

    forced: bool = False
    """Whether it was published although it is beyond a limit."""


def publish(
    recipe: Recipe,
    results: Sequence[StepResult],
    *,
    store: ArtifactStore,
    run_id: str,
    force: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Let `NAME/latest` lead to a corpus from now on.

    Where another publisher moves it meanwhile, the corpus is compared again with what is there.

    Args:
        recipe: says the name and the limits.
        results: of every step of its corpus; those of other steps are left aside.
        store: where they are.
        run_id: names the publication where the dump has no date, or the date is taken.
        force: publish even if the corpus is beyond a limit.
        dry_run: say what would be done, and change nothing.

    Raises:
        ConfigError: the recipe publishes nothing.
        CorpusRefusedError: the corpus shrank or changed beyond a limit.
        PublishError: a part is missing or damaged, or what is published cannot be read. What was
            published before stays so.
    """
    config = _config_of(recipe)
    manifests = corpus_parts(recipe, results, store=store)
    pointer = publication_pointer(manifests)
    latest = f"{config.name}/{LATEST}"
    kept_as = ""
    while True:
        old = store.ref(latest)
        published = published_corpus(store, old, force=force)
        parts = dict(pointer.parts)
        if old is not None and _is_same(manifests, published, store=store):
            return Publication(latest, "", parts, "same", old.artifact_id)
        comparison = _compare(manifests, published, config=config, store=store)
        is_beyond = comparison is not None and bool(comparison.problems)
        if comparison is not None and is_beyond and not force:
            text = _refusal(latest, comparison.problems, manifests=manifests, old=old)
            if kept_as:  # it lost a race before, and is no publication after all
                store.backend.remove(ref_path(kept_as), expected=pointer.to_json())
            raise CorpusRefusedError(text, comparison)
        replaced = old.artifact_id if old is not None else ""
        found = Publication(latest, "", parts, "planned", replaced, comparison, forced=is_beyond)
        if dry_run:
            return found
        kept_as = _name(store, config.name, pointer, manifests=manifests, run_id=run_id)
        try:
            store.swap_ref(latest, pointer, expected=old)
        except RefConflictError:
            continue
        return found._replace(kept_as=kept_as, outcome="moved")


def roll_back(store: ArtifactStore, ref: str, *, dry_run: bool = False) -> Publication:
    """Let `NAME/latest` lead to an earlier publication again, whatever the limits say.

    Args:
        store: where it is.
        ref: the publication's own name, such as `corpus/simplewiki/20261001`.
        dry_run: say what would be done, and change nothing.

    Raises:
        PublishError: there is no such publication, or a file of it is missing.
    """
    name, _, last = ref.rpartition("/")
    pointer = store.ref(ref) if name and last != LATEST else None
    if pointer is None or not pointer.parts:
        known = ", ".join(found for found, _ in publications(store, name)) or "none"
        raise PublishError(
            f"{store.root}: no publication {ref!r}; expected its name, such as "
            f"corpus/simplewiki/20261001 (published under {name or 'that name'}: {known})"
        )
    manifests = {label: store.read_manifest(path) for label, path in pointer.parts.items()}
    check_parts(manifests, store=store)
    latest = f"{name}/{LATEST}"
    while True:
        old = store.ref(latest)
        replaced = old.artifact_id if old is not None else ""
        found = Publication(latest, ref, dict(pointer.parts), "moved", replaced)
        if old is not None and old.parts == pointer.parts:
            return found._replace(outcome="same")
        if dry_run:
            return found._replace(outcome="planned")
        # The time is that of the move: `was_set_aside` tells by it what was gone back from.
        moved = pointer.model_copy(update={"committed": now()})
        try:
            store.swap_ref(latest, moved, expected=old)
        except RefConflictError:
            continue
        return found


def _config_of(recipe: Recipe) -> PublishConfig:
    if recipe.publish is None:
        raise ConfigError(
            f"recipe {recipe.name!r} publishes nothing: give it a name to publish under, such as "
            "publish: {name: corpus/" + recipe.name + "}"
        )
    return recipe.publish


def _is_same(
    new: Mapping[str, Manifest], old: Mapping[str, Manifest], *, store: ArtifactStore
) -> bool:
    """Whether the published corpus has the same content as the new one, and all its files."""
    if {label: found.content for label, found in new.items()} != {
        label: found.content for label, found in old.items()
    }:
        return False
    try:
        for manifest in old.values():
            store.check_files(manifest)
    except ArtifactCorruptError:
        return False  # the new one has the same files, whole: let the name lead to those
    return True


def _compare(
    new: Mapping[str, Manifest],
    old: Mapping[str, Manifest],
    *,
    config: PublishConfig,
    store: ArtifactStore,
) -> Comparison | None:
    if not old:
        return None
    overlap = _vocabulary_overlap(new, old, store=store)
    return compare_corpora(new, old, limits=config.limits, vocabulary_overlap=overlap)


def _vocabulary_overlap(
    new: Mapping[str, Manifest], old: Mapping[str, Manifest], *, store: ArtifactStore
) -> float | None:
    """Share of the published word pieces that are in the new vocabulary; None if unreadable."""
    found = []
    for manifests in (new, old):
        manifest = manifests.get("build-vocabulary")
        entry = manifest.file(_VOCAB) if manifest is not None else None
        if manifest is None or entry is None:
            return None
        found.append((f"{manifest.data}/{entry.object}", entry.sha256))
    if found[0][1] == found[1][1]:
        return 1.0
    try:
        now, before = (set(store.backend.read(path).decode().splitlines()) for path, _ in found)
    except FileNotFoundError:
        return None  # the published one's file is gone; the figures are in its manifest
    return len(now & before) / len(before) if before else None


def _name(
    store: ArtifactStore,
    name: str,
    pointer: Pointer,
    *,
    manifests: Mapping[str, Manifest],
    run_id: str,
) -> str:
    """The publication's own ref, which leads to it; it may be there from an earlier try."""
    dates = set(dump_dates(manifests).values())
    dated = dates if len(dates) == 1 else set()
    candidates = [*dated, run_id, f"{run_id}-{pointer.artifact_id}"]
    for last in candidates:
        ref = f"{name}/{last}"
        try:
            store.swap_ref(ref, pointer, expected=None)
        except RefConflictError:
            there = store.ref(ref)
            if there is not None and there.parts == pointer.parts:
                return ref
            continue
        return ref
    raise PublishError(
        f"{store.root}: {name}/{candidates[-1]} leads to another corpus already, as do "
        f"{', '.join(candidates[:-1])}: delete a name that is not needed, or publish under another"
    )


def _refusal(
    latest: str,
    problems: Sequence[str],
    *,
    manifests: Mapping[str, Manifest],
    old: Pointer | None,
) -> str:
    new = manifests[TOKENS].artifact_id
    before = old.artifact_id if old is not None else "nothing"
    listed = "".join(f"\n  {problem}" for problem in problems)
    return (
        f"{latest} was not moved; it still leads to {before}. The new corpus ({new}) is beyond the "
        f"recipe's limits:{listed}\nIt is kept in the store. Look at it with `bertloom diff "
        f"{before} {new}`; if it is as it should be, --force publishes it, or raise publish.limits "
        "in the recipe"
    )
