"""Publishing of a corpus: the ref `NAME/latest` moves to it, unless it changed beyond the limits.

    NAME/20261001    a version: points to the tokens, its parts to every step of the corpus
    NAME/latest      the same record, and the only ref that moves

Older versions than the newest `keep_versions` lose their ref. The version is written before
`latest` moves, so that garbage collection always reaches what was published.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from flows.bert import recipe_steps
from flows.publish.comparison import (
    INSTANCES,
    TOKENS,
    Corpus,
    CorpusComparison,
    compare_corpora,
    dump_dates,
)
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer, now, pointer_to
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    PublishError,
    RefConflictError,
)
from schemas.manifest import Manifest
from schemas.publish_configs import PublishConfig
from schemas.recipe import Recipe

LATEST = "latest"


class CorpusChangeLimitError(PublishError):
    """Corpus that changed beyond a limit of its recipe."""

    comparison: CorpusComparison
    """Comparison with the published corpus."""


class Publication(NamedTuple):
    """Result of publishing a corpus."""

    name: str
    """Ref that moves, such as `corpus/simplewiki/latest`."""

    version_ref: str
    """Ref of this version, such as `corpus/simplewiki/20261001`. "": no ref was moved."""

    parts: dict[str, str]
    """Path of each step's manifest by step label."""

    outcome: Literal["published", "unchanged", "planned"]
    """`unchanged`: this content is published already. `planned`: dry run."""

    replaced: str = ""
    """Artifact id of the tokens that were published before. "": none."""

    comparison: CorpusComparison | None = None
    """Comparison with the corpus published before. None: no such corpus, or the same one."""

    @property
    def summary(self) -> str:
        """Return the result in one sentence."""
        tokens = self.parts[TOKENS].split("/")[-2]
        if self.outcome == "unchanged":
            return f"{self.name} already points to this content ({self.replaced})"
        text = f"{self.name} now points to {tokens}, version {self.version_ref}"
        if self.outcome == "planned":
            text = f"{self.name} would point to {tokens}"
        is_forced = self.comparison is not None and self.comparison.problems
        limits = "; limits exceeded (--force)" if is_forced else ""
        return f"{text}{limits}; before: {self.replaced or 'none'}"

    def lines(self) -> list[str]:
        """Return the comparison and the summary as lines of text."""
        compared = ["", *self.comparison.lines(), ""] if self.comparison is not None else []
        return [*compared, self.summary]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        compared = self.comparison.to_json() if self.comparison is not None else None
        return {**self._asdict(), "comparison": compared}


def publish(
    recipe: Recipe,
    built: Corpus,
    *,
    store: ArtifactStore,
    force: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Move `NAME/latest` to a corpus.

    Refs of versions beyond `keep_versions` are deleted. The version is named by the date of the
    dump, or by the newest run that built a step if there is no single date or the name is taken.

    Args:
        recipe: Recipe with the name and the limits.
        built: Manifests of all steps of its corpus; others are ignored.
        store: Store of the artifacts.
        force: Publish even if the corpus exceeds a limit.
        dry_run: Compare without moving a ref.

    Raises:
        ConfigError: The recipe has no `publish`.
        CorpusChangeLimitError: The corpus exceeds a limit.
        PublishError: A step is missing, or was built from another artifact than the one to publish.
        RefConflictError: Another publisher moved the ref at the same time.
        StoreError: A file is missing, or the published corpus cannot be read.
    """
    config = publish_config(recipe)
    corpus = _complete_corpus(recipe, built, store=store)
    parts = {label: manifest.manifest_path for label, manifest in corpus.items()}
    pointer = pointer_to(corpus[TOKENS]).model_copy(update={"parts": parts})
    latest = f"{config.name}/{LATEST}"
    old = store.ref(latest)
    published = published_corpus(store, old, force=force)
    result = Publication(latest, "", parts, "planned", old.artifact_id if old else "")
    if old is not None and _is_same(corpus, published, store=store):
        return result._replace(outcome="unchanged")
    if published:
        compared = compare_corpora(corpus, published, limits=config.limits)
        if compared.problems and not force:
            raise _limit_error(result, pointer, compared)
        result = result._replace(comparison=compared)
    if dry_run:
        return result
    version = _write_version(store, config.name, pointer, corpus=corpus)
    try:
        store.swap_ref(latest, pointer, expected=old)
    except RefConflictError:
        store.delete_ref(version, expected=pointer)  # it would look as if it was rolled back
        raise
    _delete_old_versions(store, config)
    return result._replace(version_ref=version, outcome="published")


def publish_config(recipe: Recipe) -> PublishConfig:
    """Return the recipe's `publish`.

    Raises:
        ConfigError: The recipe has none.
    """
    if recipe.publish is None:
        raise ConfigError(
            f"recipe {recipe.name!r}: expected a name to publish under. Add for example publish: "
            f"{{name: corpus/{recipe.name}}}"
        )
    return recipe.publish


def roll_back(store: ArtifactStore, version: str, *, dry_run: bool = False) -> Publication:
    """Move `NAME/latest` to an earlier version, whatever the limits are.

    Args:
        store: Store of the version.
        version: Ref of the version, such as `corpus/simplewiki/20261001`.
        dry_run: Do not move the ref.

    Raises:
        PublishError: There is no such version.
        RefConflictError: Another publisher moved the ref at the same time.
        StoreError: A file of the version is missing.
    """
    name = version.rpartition("/")[0]
    versions = dict(list_versions(store, name))
    if version not in versions:
        raise PublishError(
            f"{store.root}: no version {version!r}. Expected one of {', '.join(versions) or 'none'}"
        )
    pointer, latest = versions[version], f"{name}/{LATEST}"
    for manifest in published_corpus(store, pointer).values():
        store.check_files(manifest)
    old = store.ref(latest)
    replaced = old.artifact_id if old else ""
    result = Publication(latest, version, dict(pointer.parts), "planned", replaced)
    if old is not None and old.parts == pointer.parts:
        return result._replace(outcome="unchanged")
    if dry_run:
        return result
    # `was_rolled_back` compares this time with those of the versions.
    moved = pointer.model_copy(update={"committed": now()})
    store.swap_ref(latest, moved, expected=old)
    return result._replace(outcome="published")


def list_versions(store: ArtifactStore, name: str) -> Iterator[tuple[str, Pointer]]:
    """Yield ref and pointer of each published version of a name, sorted by ref."""
    for ref in store.refs(name) if name else ():
        pointer = store.ref(ref) if ref != f"{name}/{LATEST}" else None
        if pointer is not None and pointer.parts:
            yield ref, pointer


def was_rolled_back(store: ArtifactStore, name: str, date: str) -> bool:
    """Return True if `NAME/latest` moved to another version after `NAME/DATE` was published.

    After a crash, a version can exist that `latest` never pointed to: it was not rolled back.
    """
    version, latest = store.ref(f"{name}/{date}"), store.ref(f"{name}/{LATEST}")
    if version is None or latest is None or version.parts == latest.parts:
        return False
    return datetime.fromisoformat(latest.committed) > datetime.fromisoformat(version.committed)


def published_corpus(
    store: ArtifactStore, pointer: Pointer | None, *, force: bool = False
) -> dict[str, Manifest]:
    """Return the manifests of a published corpus by step label; {} if `pointer` is None.

    Args:
        store: Store of the corpus.
        pointer: Version of the corpus.
        force: Skip manifests that cannot be read.

    Raises:
        StoreError: A manifest cannot be read.
    """
    manifests: dict[str, Manifest] = {}
    for label, path in pointer.parts.items() if pointer is not None else ():
        try:
            manifests[label] = store.read_manifest(path)
        except (ArtifactNotFoundError, ArtifactCorruptError) as error:
            if not force:
                error.add_note(f"{label} of the published corpus. --force publishes without it")
                raise
    return manifests


def built_corpus(recipe: Recipe, *, store: ArtifactStore) -> dict[str, Manifest]:
    """Return the manifests of the corpus that a recipe built last, of the steps that it has."""
    labels = [step.label for step in recipe_steps(recipe, part="corpus")]
    pointers = {label: store.ref(f"{recipe.name}/{label}") for label in labels}
    return {
        label: store.read_manifest(pointer.manifest)
        for label, pointer in pointers.items()
        if pointer is not None
    }


def _complete_corpus(recipe: Recipe, built: Corpus, *, store: ArtifactStore) -> dict[str, Manifest]:
    """Return the manifests of all steps of a corpus, after checking that they belong together."""
    steps = recipe_steps(recipe, part="corpus")
    missing = [step.label for step in steps if step.label not in built]
    if missing or not steps:
        raise PublishError(
            f"recipe {recipe.name!r}: expected a complete corpus, got none of "
            f"{', '.join(missing) or INSTANCES}. Run the recipe, at least --until {INSTANCES}"
        )
    for step in steps:
        for name, label in step.inputs.items():
            used = built[step.label].input(name)
            if used is None or used.content_digest != built[label].content_digest:
                raise PublishError(
                    f"{step.label} ({built[step.label].artifact_id}): expected {label} "
                    f"{built[label].artifact_id} as input, got "
                    f"{used.artifact_id if used is not None else 'none'}. Run recipe "
                    f"{recipe.name!r} to completion, then publish"
                )
        store.check_files(built[step.label])
    return {step.label: built[step.label] for step in steps}


def _is_same(new: Corpus, old: Corpus, *, store: ArtifactStore) -> bool:
    """Return True if the published corpus has the same content as the new one, and all files."""
    before, after = (
        {label: manifest.content_digest for label, manifest in corpus.items()}
        for corpus in (old, new)
    )
    try:
        return before == after and all(store.check_files(manifest) for manifest in old.values())
    except ArtifactCorruptError:
        return False  # the new one replaces it


def _write_version(store: ArtifactStore, name: str, pointer: Pointer, *, corpus: Corpus) -> str:
    """Write the ref of a version unless it exists from an earlier try, and return its name."""
    run_id = max(manifest.produced_by.run_id for manifest in corpus.values())
    dates = set(dump_dates(corpus).values())
    candidates = [*(dates if len(dates) == 1 else ()), run_id, f"{run_id}-{pointer.artifact_id}"]
    for ref in (f"{name}/{candidate}" for candidate in candidates):
        existing = store.ref(ref)
        if existing is None:
            store.swap_ref(ref, pointer, expected=None)
        if existing is None or existing.parts == pointer.parts:
            return ref
    raise PublishError(f"{name}: all of {', '.join(candidates)} are taken. Delete a ref")


def _delete_old_versions(store: ArtifactStore, config: PublishConfig) -> None:
    """Delete the refs of all versions but the newest `keep_versions` and the published one."""
    latest = store.ref(f"{config.name}/{LATEST}")
    versions = sorted(list_versions(store, config.name), key=lambda item: item[1].committed)
    for ref, pointer in versions[: -config.keep_versions]:
        if latest is None or pointer.parts != latest.parts:
            store.delete_ref(ref, expected=pointer)


def _limit_error(
    result: Publication, pointer: Pointer, comparison: CorpusComparison
) -> CorpusChangeLimitError:
    problems = "".join(f"\n  {problem}" for problem in comparison.problems)
    error = CorpusChangeLimitError(
        f"Not published: corpus {pointer.artifact_id} exceeds the configured limits. {result.name} "
        f"still points to {result.replaced}.{problems}\nThe corpus stays in the store. See "
        f"`bertloom diff {result.replaced} {pointer.artifact_id}`. To publish it, use --force or "
        "raise publish.limits of the recipe"
    )
    error.comparison = comparison
    return error
