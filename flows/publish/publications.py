"""Publications: the refs that a published corpus is found under, and what they lead to.

    NAME/20261001    a publication: leads to the tokens, its parts to every step of the corpus
    NAME/latest      the same record, and the only one that moves

The first is written before the second moves, so that what was published stays reachable, and is
kept by garbage collection until its name is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from flows.engine.graph import steps
from flows.engine.steps import StepResult
from flows.publish.comparison import CORPUS_STAGES
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer, pointer_to
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError, PublishError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

LATEST = "latest"
TOKENS = "build-tokens"


def publications(store: ArtifactStore, name: str) -> Iterator[tuple[str, Pointer]]:
    """Every publication under a name by its own ref, oldest name first; `latest` left out."""
    for path in store.backend.names(f"refs/{name}") if name else ():
        ref = path.removeprefix("refs/").removesuffix(".json")
        if ref.rpartition("/") == (name, "/", LATEST):
            continue
        pointer = store.ref(ref)
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


def newest_run(manifests: Mapping[str, Manifest]) -> str:
    """Id of the newest run that built a part of a corpus."""
    return max(manifest.produced_by.run_id for manifest in manifests.values())


def publication_pointer(manifests: Mapping[str, Manifest]) -> Pointer:
    """A publication's record: it leads to the tokens, its parts to every step's manifest."""
    parts = {label: manifest.path for label, manifest in manifests.items()}
    return pointer_to(manifests[TOKENS]).model_copy(update={"parts": parts})


def corpus_parts(
    recipe: Recipe, results: Sequence[StepResult], *, store: ArtifactStore
) -> dict[str, Manifest]:
    """A corpus's manifests by step label, in order.

    Args:
        recipe: says which steps it has.
        results: of those steps; others are left aside.
        store: where they are.

    Raises:
        PublishError: a step is missing, a file of one is, or one was made from another artifact
            than the result of the step before.
    """
    made = {result.label: result.manifest for result in results}
    wanted = [step for step in steps(recipe) if step.stage.name in CORPUS_STAGES]
    lost = [step.label for step in wanted if step.label not in made]
    if lost or not wanted:
        what = ", ".join(lost) or "a corpus"
        raise PublishError(
            f"recipe {recipe.name!r}: nothing to publish without {what}: run it first, at least "
            "--until build-instances"
        )
    for step in wanted:
        for name, label in step.inputs.items():
            used = made[step.label].input(name)
            if used is None or used.content != made[label].content:
                found = used.artifact_id if used is not None else "nothing"
                raise PublishError(
                    f"{step.label} ({made[step.label].artifact_id}) was made from {found}, and "
                    f"{label} is {made[label].artifact_id} now: they are no one corpus. Run "
                    f"recipe {recipe.name!r} to its end first"
                )
    manifests = {step.label: made[step.label] for step in wanted}
    check_parts(manifests, store=store)
    return manifests


def check_parts(manifests: Mapping[str, Manifest], *, store: ArtifactStore) -> None:
    """Compare which files of a corpus are there, and how long they are, with the manifests.

    Raises:
        PublishError: one is missing or has another size.
    """
    for label, manifest in manifests.items():
        try:
            store.check_files(manifest)
        except ArtifactCorruptError as error:
            raise PublishError(
                f"{label} is not whole, and nothing was published: {error}. Run the recipe again, "
                "which builds anew what is damaged"
            ) from error
