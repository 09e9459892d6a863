"""Taking artifacts that are there as those of today's code, as `dvc commit` does.

A key counts code, so an edit that changes no byte makes every stage that has the edited module
build again. Whoever knows that the bytes are the same says `bertloom adopt RECIPE`: each artifact
whose key differs in nothing but its code is published once more under today's key, its files linked
(on object stores copied by the server), and its manifest and lineage say so. A recipe that goes
from `code_identity: closure` to `version` says it once for all: there a stage's version stands for
its code, and runs adopt by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from flows.engine.code import changed_modules, code_of
from flows.engine.finding import find, keyed_steps
from flows.engine.keys import StepKey, pieces_digest
from flows.engine.stages import Step
from flows.engine.steps import input_ref
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import now
from pipelines.beam.piece_records import moved_record
from pipelines.beam.reuse_files import PieceFiles
from pipelines.io.file_systems import file_system
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Adoption, FileEntry, Manifest
from schemas.recipe import Recipe


class AdoptedStep(NamedTuple):
    """What `adopt` did with a step."""

    label: str
    state: Literal["cached", "adopted", "different", "unknown"]
    """`cached`: there under today's key already. `different`: what is there differs in more than
    code, or there is nothing. `unknown`: an input is not there."""

    artifact_id: str = ""
    of: str = ""
    """Id of the artifact that was adopted."""

    reason: str = ""


def adopt(recipe: Recipe, steps: Iterable[Step], *, store: ArtifactStore) -> list[AdoptedStep]:
    """Publish the artifacts of a recipe, as they are, under the keys of today's code.

    Args:
        recipe: whose last artifacts (its refs) are taken.
        steps: of the recipe, each after those it reads from.
        store: where they are.

    Raises:
        InputError: a raw file is missing or is not what its checksum list says.
        ArtifactCorruptError: a file of an artifact is not what its manifest says; those before it
            are adopted.
    """
    manifests: dict[str, Manifest] = {}
    done = []
    for step, inputs, key, missing in keyed_steps(recipe, steps, manifests=manifests):
        if key is None:
            done.append(AdoptedStep(step.label, "unknown", reason=f"after {', '.join(missing)}"))
            continue
        found = find(recipe, step, key, store=store, adopts=True)
        manifest = found.manifest
        if manifest is None:
            done.append(AdoptedStep(step.label, "different", reason=found.reason))
            continue
        if found.is_adoptable:
            of, manifest = manifest, publish(manifest, step, key, store=store, inputs=inputs)
            store.set_ref(f"{recipe.name}/{step.label}", manifest)
            done.append(AdoptedStep(step.label, "adopted", manifest.artifact_id, of=of.artifact_id))
        else:
            done.append(AdoptedStep(step.label, "cached", manifest.artifact_id))
        manifests[step.label] = manifest
    return done


def publish(
    found: Manifest,
    step: Step,
    key: StepKey,
    *,
    store: ArtifactStore,
    inputs: Mapping[str, Manifest],
) -> Manifest:
    """Publish an artifact once more, under another key that differs in its code alone.

    Its files are read to the end and must be what its manifest says.

    Raises:
        ArtifactCorruptError: one is not. Nothing is published.
    """
    stage = step.stage
    attempt = store.begin(stage.name)
    work = store.url(f"pieces/{stage.name}/{pieces_digest(key.spec)}")
    try:
        files = _linked(found, PieceFiles(pieces=work, output=attempt.output), store=store)
        code = code_of(stage).modules
        manifest = found.model_copy(
            update={
                "artifact_id": attempt.artifact_id,
                "cache_key": key.cache_key,
                "key_spec": key.spec,
                "code": code,
                "location": attempt.location,
                "files": files,
                "inputs": tuple(input_ref(name, inputs[name]) for name in step.inputs),
                "adopted": Adoption(
                    artifact_id=found.artifact_id,
                    cache_key=found.cache_key,
                    code=str(found.key_spec["code"]),
                    moment=now(),
                    changed=tuple(changed_modules(found.code, code)),
                ),
            }
        )
    except BaseException:
        store.abandon(attempt)
        raise
    commit = store.commit(manifest)
    if commit.won and stage.keeps_pieces:
        _keep_finished_work(found, manifest, store=store)
    return commit.manifest


def _linked(found: Manifest, files: PieceFiles, *, store: ArtifactStore) -> tuple[FileEntry, ...]:
    """Put an artifact's files into the output, under the names they have: others read by those."""
    fs, output = file_system(files.output)
    for entry in found.files:
        source = f"{found.data}/{entry.object}"
        there = files.restore(source, entry)
        if there is None:
            raise ArtifactCorruptError(
                f"{store.url(source)}: expected {entry.size:,} bytes of {entry.path} with sha256 "
                f"{entry.sha256}, found others. `bertloom verify --deep` looks at all of the store"
            )
        fs.mv(f"{output}/{there.object}", f"{output}/{entry.object}")
    return found.files


def _keep_finished_work(found: Manifest, adopted: Manifest, *, store: ArtifactStore) -> None:
    """Let later builds under the new key restore the splits that the artifact is made of."""
    places = {
        f"{found.data}/{entry.object}": f"{adopted.data}/{entry.object}" for entry in found.files
    }
    before = f"pieces/{found.stage}/{pieces_digest(found.key_spec)}"
    after = f"pieces/{found.stage}/{pieces_digest(adopted.key_spec)}"
    for path, stored in store.backend.read_many(store.backend.names(before)).items():
        kept = moved_record(stored, places) if path.endswith(".json") else stored
        if kept is not None:
            store.backend.create(f"{after}{path.removeprefix(before)}", kept)
