"""Reproduce an artifact: run its recorded recipe in another store, and compare content digests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flows.bert import recipe_steps
from flows.formatting import align_columns
from flows.lineage.queries import resolve_name
from flows.nested_values import numeric_leaves
from flows.preparation import mark_killed_runs, prepare_run
from flows.recipes.loader import recipe_from
from flows.run.cache_keys import describe_changes
from flows.run.events import Listener
from flows.run.executor import local_executor, run_steps
from flows.run.graph import Step
from flows.run.run import find_store
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_runs, run_ids
from schemas.errors import ArtifactNotFoundError, BertloomError, ConfigError, InputError, raise_all
from schemas.manifest import Manifest


class StepComparison(NamedTuple):
    """Artifact of a step next to the original one."""

    label: str
    expected: str
    """Content digest of the original."""

    content: str
    changes: list[str]
    """Differences of the cache key, the code and installed versions. []: the contents are equal."""

    @property
    def is_equal(self) -> bool:
        """True if the contents are equal to the byte."""
        return self.expected == self.content


class Reproduction(NamedTuple):
    """Result of building an artifact again."""

    target: str
    """Label of the step that builds the artifact."""

    steps: list[StepComparison]
    metrics: dict[str, tuple[float, float | None]]
    """Expected value and value of each requested metric."""

    @property
    def is_equal(self) -> bool:
        """True if all steps are equal to the byte."""
        return all(step.is_equal for step in self.steps)

    def lines(self) -> Iterator[str]:
        """Yield the comparison as text, with the changes of the first step that differs."""
        rows = [("step", "expected", "content", "")]
        for step in self.steps:
            expected, content = (d.split(":")[1][:16] for d in (step.expected, step.content))
            rows.append((step.label, expected, content, "equal" if step.is_equal else "DIFFERS"))
        yield from align_columns(rows)
        different = [step for step in self.steps if not step.is_equal]
        for step in different[:1]:
            changes = step.changes or ["same commit and versions: compare hardware and threads"]
            yield f"first difference: {step.label}: {'; '.join(changes)}"
        for name, (original, value) in self.metrics.items():
            yield f"{self.target} {name}: expected {original:.6g}, got {value}"
        yield f"{len(self.steps) - len(different)} of {len(self.steps)} steps equal"


def reproduce(
    name: str,
    *,
    store: ArtifactStore,
    into: str,
    overrides: Sequence[str] = (),
    listeners: Sequence[Listener] = (),
    **execution: Any,
) -> Reproduction:
    """Build an artifact and everything upstream of it in another store; compare every step.

    Args:
        name: Artifact or metric, see `flows.lineage.queries.resolve_name`.
        store: Store of the artifact. Only its records are read, and what the recipe names by path.
        into: Folder or URL of the other store.
        overrides: `KEY=VALUE` texts, for example new paths of raw files.
        listeners: Receive the events of the run.
        **execution: Replace fields of the recipe's `execution`, except where None.

    Raises:
        ArtifactNotFoundError: Nothing has that name, or a record of the artifact is missing.
        ConfigError: The other store has the original artifacts, this version cannot run the
            recipe, or several raw files are missing or changed.
        InputError: A raw file is missing or changed.
        BertloomError: A step failed.
    """
    resolved = resolve_name(name, store=store)
    if resolved.manifest is None:
        raise ArtifactNotFoundError(
            f"{name!r}: expected an artifact, got a raw file. Name a step, such as evaluate.cola, "
            "or a metric of one: evaluate.cola:matthews"
        )
    record, target = _find_run(resolved.manifest, store)
    recipe = recipe_from(
        json.loads(json.dumps(record.recipe).replace("$", "$$")), folder=Path.cwd(), store=into,
        where=f"recipe of run {record.run_id}", overrides=overrides, **execution,
    )  # fmt: skip
    # `until` also selects the sweep variants of an entry, which have longer labels.
    graph = recipe_steps(recipe, until=target).with_upstream([target])
    paths = {step.label: step.manifest for step in record.steps}
    originals = {step.label: store.read_manifest(paths[step.label]) for step in graph}
    if (other := find_store(recipe.store)) and other.manifests(paths.values()):
        raise ConfigError(f"--into: {into} has the original artifacts. Name another store")
    raise_all(error for step in graph for error in _raw_file_errors(step, originals[step.label]))
    copy = find_store(recipe.store)
    mark_killed_runs(recipe, store=copy)
    run = prepare_run(recipe, graph, store=copy, listeners=listeners)
    with run, local_executor(run) as submit:
        run_steps(run, submit)
    results = run.results()
    values = numeric_leaves(results[-1].manifest.statistics)
    return Reproduction(
        target=target,
        steps=[_compare(item.label, originals[item.label], item.manifest) for item in results],
        metrics={item.name: (item.value, values.get(item.name)) for item in resolved.metrics},
    )


def _find_run(manifest: Manifest, store: ArtifactStore) -> tuple[RunRecord, str]:
    """Return a run with an artifact, first the one that built it, then the newest; and its step."""
    ids = dict.fromkeys((manifest.produced_by.run_id, *reversed(run_ids(store))))
    for record in read_runs(store, ids).values():
        if isinstance(record, RunRecord):  # not a damaged one
            for step in record.steps:
                if step.manifest == manifest.manifest_path:
                    return record, step.label
    raise ArtifactNotFoundError(
        f"{store.root}: expected the record of a run with {manifest.artifact_id}, which has its "
        "recipe, got none. Run the recipe again in this store"
    )


def _raw_file_errors(step: Step, original: Manifest) -> Iterator[BertloomError]:
    """Yield an error per raw file that is missing, changed or new."""
    try:
        files = step.stage.find_raw_inputs(step.config)
    except BertloomError as error:
        yield error
        return
    before, after = (
        {item.key_digest or item.sha256: item for item in items}
        for items in (original.raw_inputs, files)
    )
    new = {item.name: item for key, item in after.items() if key not in before}
    for missing in [item for key, item in before.items() if key not in after]:
        got = f"sha256 {new.pop(missing.name).sha256}" if missing.name in new else "no file"
        yield InputError(
            f"{missing.uri}: expected sha256 {missing.sha256}, got {got}. Restore the file, or "
            "name a copy of it with --set"
        )
    for item in new.values():
        yield InputError(f"{item.uri}: expected no file, as {step.label} did not read it")


def _compare(label: str, original: Manifest, manifest: Manifest) -> StepComparison:
    changes: list[str] = []
    if original.content_digest != manifest.content_digest:
        changes = describe_changes(original.cache_key_inputs, manifest.cache_key_inputs)
        changes += describe_changes(_provenance(original), _provenance(manifest))
    return StepComparison(label, original.content_digest, manifest.content_digest, changes)


def _provenance(manifest: Manifest) -> dict[str, Any]:
    """Return what the cache key does not contain: the code, the platform and other packages."""
    code, environment = manifest.produced_by, manifest.environment.model_dump()
    for name in manifest.cache_key_inputs["environment"]:
        environment["packages"].pop(name, None)
    return {
        **code.model_dump(include={"git_commit", "git_dirty", "worker_code_digest"}),
        **environment,
    }
