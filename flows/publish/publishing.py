"""Publishing a corpus: the ref `NAME/latest` moves to it, if it is not too unlike the one before.

    NAME/20261001    a publication: leads to the tokens, its parts to every step of the corpus
    NAME/latest      the same record, and the only one that moves

The first is written before the second moves, so that what was published stays reachable, and is
kept by garbage collection until its name is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from flows.bert import recipe_steps
from flows.publish.comparison import (
    INSTANCES,
    TOKENS,
    VOCABULARY,
    Corpus,
    CorpusComparison,
    compare_corpora,
    dump_dates,
)
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer, now, pointer_to, ref_path
from pipelines.wordpiece.vocab_files import VOCAB_FILE
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


class CorpusRefusedError(PublishError):
    """A corpus that is beyond a limit.

    Attributes:
        comparison: with what is published.
    """

    def __init__(self, message: str, comparison: CorpusComparison) -> None:
        super().__init__(message, comparison)  # both, so that it can go between processes
        self.comparison = comparison

    def __str__(self) -> str:
        return str(self.args[0])


class Publication(NamedTuple):
    """What became of a corpus that was to be published."""

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

    comparison: CorpusComparison | None = None
    """With what was published before; None for the first publication."""

    forced: bool = False
    """Whether it was published although it is beyond a limit."""

    @property
    def tokens(self) -> str:
        """The artifact id of its tokens."""
        return self.parts[TOKENS].split("/")[-2]

    @property
    def verdict(self) -> str:
        """What became of the corpus, in one sentence."""
        before = self.replaced
        if self.outcome == "same":
            return f"{self.name} leads to this content already ({before}): nothing was moved"
        text = f"{self.name} leads to {self.tokens} now, kept as {self.kept_as}"
        if self.outcome == "planned":
            text = f"{self.name} would lead to {self.tokens}"
        if self.forced:
            return f"{text}; it is beyond the limits (--force); before: {before}"
        if not before:
            return f"{text}; the first of this name, so there is nothing to compare it with"
        return f"{text}; before: {before}"

    def lines(self) -> list[str]:
        """What became of the corpus, with the comparison, as lines of plain text."""
        compared = ["", *self.comparison.lines(), ""] if self.comparison is not None else []
        return [*compared, self.verdict]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        compared = self.comparison.to_json() if self.comparison is not None else None
        return {**self._asdict(), "comparison": compared}


def publish(
    recipe: Recipe,
    made: Corpus,
    *,
    store: ArtifactStore,
    force: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Let `NAME/latest` lead to a corpus from now on.

    Where another publisher moves it meanwhile, the corpus is compared again with what is there. The
    publication is named by the date of the dump; where that has none, or the name is taken, by the
    newest run that built a part.

    Args:
        recipe: says the name and the limits.
        made: at least every step of its corpus.
        store: where they are.
        force: publish even if the corpus is beyond a limit.
        dry_run: say what would be done, and change nothing.

    Raises:
        ConfigError: the recipe publishes nothing.
        CorpusRefusedError: the corpus shrank or changed beyond a limit.
        PublishError: a part is missing or damaged, or what is published cannot be read. What was
            published before stays so.
    """
    config = publish_config(recipe)
    corpus = _whole_corpus(recipe, made, store=store)
    parts = {label: manifest.manifest_path for label, manifest in corpus.items()}
    pointer = pointer_to(corpus[TOKENS]).model_copy(update={"parts": parts})
    latest = f"{config.name}/{LATEST}"
    kept_as = ""
    while True:
        old = store.ref(latest)
        published = published_corpus(store, old, force=force)
        found = Publication(latest, "", parts, "planned", old.artifact_id if old else "")
        if old is not None and _is_same(corpus, published, store=store):
            return found._replace(outcome="same")
        if published:
            overlap = _vocabulary_overlap(corpus, published, store=store)
            compared = compare_corpora(
                corpus, published, limits=config.limits, vocabulary_overlap=overlap
            )
            if compared.problems and not force:
                if kept_as:  # it lost a race before, and is no publication after all
                    store.backend.compare_and_delete(ref_path(kept_as), expected=pointer.to_json())
                raise CorpusRefusedError(_refusal(found, compared.problems), compared)
            found = found._replace(comparison=compared, forced=bool(compared.problems))
        if dry_run:
            return found
        kept_as = _keep(store, config.name, pointer, corpus=corpus)
        if _moves(store, latest, pointer, expected=old):
            return found._replace(kept_as=kept_as, outcome="moved")


def publish_config(recipe: Recipe) -> PublishConfig:
    """What a recipe says of publishing.

    Raises:
        ConfigError: it publishes nothing.
    """
    if recipe.publish is None:
        raise ConfigError(
            f"recipe {recipe.name!r} publishes nothing: give it a name to publish under, such as "
            "publish: {name: corpus/" + recipe.name + "}"
        )
    return recipe.publish


def _moves(store: ArtifactStore, ref: str, pointer: Pointer, *, expected: Pointer | None) -> bool:
    """Move a ref; False where another publisher moved it meanwhile."""
    try:
        store.swap_ref(ref, pointer, expected=expected)
    except RefConflictError:
        return False
    return True


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
    parts = dict(pointer.parts)
    _check_files({label: store.read_manifest(path) for label, path in parts.items()}, store=store)
    latest = f"{name}/{LATEST}"
    while True:
        old = store.ref(latest)
        found = Publication(latest, ref, parts, "planned", old.artifact_id if old else "")
        if old is not None and old.parts == parts:
            return found._replace(outcome="same")
        # The time is that of the move: `was_set_aside` tells by it what was gone back from.
        moved = pointer.model_copy(update={"committed": now()})
        if dry_run or _moves(store, latest, moved, expected=old):
            return found if dry_run else found._replace(outcome="moved")


# What is published


def publications(store: ArtifactStore, name: str) -> Iterator[tuple[str, Pointer]]:
    """Every publication under a name by its own ref, oldest name first; `latest` left out."""
    for path in store.backend.names(f"refs/{name}") if name else ():
        ref = path.removeprefix("refs/").removesuffix(".json")
        pointer = store.ref(ref) if ref != f"{name}/{LATEST}" else None
        if pointer is not None and pointer.parts:
            yield ref, pointer


def was_set_aside(store: ArtifactStore, name: str, last: str) -> bool:
    """Whether `NAME/latest` went elsewhere after the publication `NAME/LAST` was made.

    A publication whose name was written and that never came to be `latest` (a crash) was not.
    """
    made, latest = store.ref(f"{name}/{last}"), store.ref(f"{name}/{LATEST}")
    if made is None or latest is None or made.parts == latest.parts:
        return False
    return datetime.fromisoformat(latest.committed) > datetime.fromisoformat(made.committed)


def published_corpus(
    store: ArtifactStore, pointer: Pointer | None, *, force: bool = False
) -> dict[str, Manifest]:
    """The manifests that a publication leads to, by step label; none for no publication.

    Args:
        store: where they are.
        pointer: of the publication.
        force: leave out manifests that cannot be read.

    Raises:
        PublishError: one cannot be read.
    """
    if pointer is None:
        return {}
    found = {}
    for label, path in (pointer.parts or {pointer.stage: pointer.manifest}).items():
        try:
            found[label] = store.read_manifest(path)
        except (ArtifactNotFoundError, ArtifactCorruptError) as error:
            if not force:
                raise PublishError(
                    f"{label} of the published corpus cannot be read, so that there is nothing to "
                    f"compare the new one with: {error}. Look at the new one with `bertloom show`; "
                    "--force publishes it all the same"
                ) from error
    return found


def built_corpus(recipe: Recipe, *, store: ArtifactStore) -> dict[str, Manifest]:
    """The corpus that a recipe last built, as far as its refs lead to one."""
    labels = [step.label for step in recipe_steps(recipe, part="corpus")]
    refs = {label: store.ref(f"{recipe.name}/{label}") for label in labels}
    return {
        label: store.read_manifest(pointer.manifest)
        for label, pointer in refs.items()
        if pointer is not None
    }


# What is to be published


def _whole_corpus(recipe: Recipe, made: Corpus, *, store: ArtifactStore) -> dict[str, Manifest]:
    """A corpus's manifests by step label, in order.

    Raises:
        PublishError: a step is missing, a file of one is, or one was made from another artifact
            than the result of the step before.
    """
    wanted = recipe_steps(recipe, part="corpus")
    lost = [step.label for step in wanted if step.label not in made]
    if lost or not wanted:
        what = ", ".join(lost) or "a corpus"
        raise PublishError(
            f"recipe {recipe.name!r}: nothing to publish without {what}: run it first, at least "
            f"--until {INSTANCES}"
        )
    for step in wanted:
        for name, label in step.inputs.items():
            used = made[step.label].input(name)
            if used is None or used.content_digest != made[label].content_digest:
                found = used.artifact_id if used is not None else "nothing"
                raise PublishError(
                    f"{step.label} ({made[step.label].artifact_id}) was made from {found}, and "
                    f"{label} is {made[label].artifact_id} now: they are no one corpus. Run "
                    f"recipe {recipe.name!r} to its end first"
                )
    corpus = {step.label: made[step.label] for step in wanted}
    _check_files(corpus, store=store)
    return corpus


def _check_files(corpus: Corpus, *, store: ArtifactStore) -> None:
    """Raises PublishError where a file is missing or has another size than the manifest says."""
    for label, manifest in corpus.items():
        try:
            store.check_files(manifest)
        except ArtifactCorruptError as error:
            raise PublishError(
                f"{label} is not whole, and nothing was published: {error}. Run the recipe again, "
                "which builds anew what is damaged"
            ) from error


def _is_same(new: Corpus, old: Corpus, *, store: ArtifactStore) -> bool:
    """Whether the published corpus has the same content as the new one, and all its files."""
    contents = [{label: made.content_digest for label, made in one.items()} for one in (new, old)]
    if contents[0] != contents[1]:
        return False
    try:
        _check_files(old, store=store)
    except PublishError:
        return False  # the new one has the same files, whole: let the name lead to those
    return True


def _vocabulary_overlap(new: Corpus, old: Corpus, *, store: ArtifactStore) -> float | None:
    """Share of the published word pieces that are in the new vocabulary; None if unreadable."""
    found = []
    for corpus in (new, old):
        manifest = corpus.get(VOCABULARY)
        entry = manifest.file(VOCAB_FILE) if manifest is not None else None
        if manifest is None or entry is None:
            return None
        stored = store.backend.read_if_exists(f"{manifest.data_path}/{entry.stored_name}")
        if stored is None:
            return None  # the published one's file is gone; the figures are in its manifest
        found.append(set(stored.decode().splitlines()))
    pieces, published = found
    return len(pieces & published) / len(published) if published else None


def _keep(store: ArtifactStore, name: str, pointer: Pointer, *, corpus: Corpus) -> str:
    """Write the publication's own ref, which may be there from an earlier try; its name."""
    run_id = max(manifest.produced_by.run_id for manifest in corpus.values())
    dates = set(dump_dates(corpus).values())
    candidates = [*(dates if len(dates) == 1 else ()), run_id, f"{run_id}-{pointer.artifact_id}"]
    for ref in (f"{name}/{last}" for last in candidates):
        if _moves(store, ref, pointer, expected=None):
            return ref
        if (there := store.ref(ref)) is not None and there.parts == pointer.parts:
            return ref
    raise PublishError(
        f"{store.root}: {name}/{candidates[-1]} leads to another corpus already, as do "
        f"{', '.join(candidates[:-1])}: delete a name that is not needed, or publish under another"
    )


def _refusal(planned: Publication, problems: Sequence[str]) -> str:
    listed = "".join(f"\n  {problem}" for problem in problems)
    old, new = planned.replaced or "nothing", planned.tokens
    return (
        f"{planned.name} was not moved; it still leads to {old}. The new corpus ({new}) is beyond "
        f"the recipe's limits:{listed}\nIt is kept in the store. Look at it with `bertloom diff "
        f"{old} {new}`; if it is as it should be, --force publishes it, or raise publish.limits "
        "in the recipe"
    )
