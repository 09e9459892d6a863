"""Build the artifact of a bundle again, and compare the digests of every step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.formatting import align_columns
from flows.nested_values import flatten, numeric_leaves
from flows.recipes.loader import load_recipe
from flows.reproduction.bundle import RECIPE_FILE, Expected, ExpectedStep, read_expected
from flows.reproduction.inputs import VARIABLE, InputFile
from flows.run.cache_keys import describe_changes
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.io.raw_files import digest_file
from schemas.errors import ArtifactNotFoundError, ConfigError, InputError, raise_all
from schemas.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class StepComparison:
    """A step's artifact next to the expected one."""

    label: str
    expected: ExpectedStep
    manifest: Manifest

    @property
    def is_equal(self) -> bool:
        """Whether the contents are equal to the byte."""
        return self.expected.content_digest == self.manifest.content_digest

    @property
    def changes(self) -> list[str]:
        """Fields of the cache key that differ, such as `pyarrow 25.0.0 -> 26.0.0`."""
        return describe_changes(self.expected.cache_key_inputs, self.manifest.cache_key_inputs)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Result of building the artifact of a bundle again."""

    bundle: Expected
    store: str
    steps: tuple[StepComparison, ...]

    @property
    def is_equal(self) -> bool:
        """Whether every step is equal to the byte."""
        return all(step.is_equal for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        steps = [
            {
                "label": step.label,
                "is_equal": step.is_equal,
                "expected": step.expected.content_digest,
                "content": step.manifest.content_digest,
                "changes": step.changes,
            }
            for step in self.steps
        ]
        return {
            "is_equal": self.is_equal,
            "target": self.bundle.target,
            "store": self.store,
            "steps": steps,
        }

    def lines(self) -> Iterator[str]:
        """Yield the comparison as text."""
        rows = [("step", "expected", "content", "")]
        for step in self.steps:
            digests = (step.expected.content_digest, step.manifest.content_digest)
            before, after = (digest.removeprefix("sha256:")[:16] for digest in digests)
            rows.append((step.label, before, after, "equal" if step.is_equal else "DIFFERS"))
        yield from align_columns(rows)
        for step in self.steps:
            if not step.is_equal:
                reason = "; ".join(step.changes) or "same cache key: hardware, threads or a bug"
                yield f"{step.label}: {reason}"
        yield from self._metric_lines()
        equal = sum(step.is_equal for step in self.steps)
        yield f"{equal} of {len(self.steps)} steps equal"

    def _metric_lines(self) -> Iterator[str]:
        values = numeric_leaves(flatten(self.steps[-1].manifest.statistics))
        for name, value in self.bundle.metrics.items():
            yield f"{self.bundle.target} {name}: expected {value:.6g}, got {values.get(name)}"


def run_bundle(
    folder: Path,
    *,
    store: str | None = None,
    workers: int | None = None,
    log: Callable[[str], None] = print,
) -> Comparison:
    """Run the recipe of a bundle, and compare every step with the expected artifact.

    Args:
        folder: Bundle, with the raw files in `inputs/` or in `$BERTLOOM_INPUTS`.
        store: Store to build in. Default: the folder `store` of the bundle.
        workers: Worker processes on this machine.
        log: Takes a line about each step.

    Raises:
        ConfigError: The folder is not a bundle, several inputs are wrong, or the store has the
            original artifacts.
        InputError: A raw file is missing or has another checksum.
        BertloomError: A step failed.
    """
    expected = read_expected(folder)
    _check_inputs(expected, folder)
    where = store or str(folder.absolute() / "store")
    _check_store(expected, where)
    recipe = load_recipe(str(folder / RECIPE_FILE), store=where, workers=workers)
    results = run_recipe(recipe, log=log, engine="local", until=expected.target)
    manifests = {result.label: result.manifest for result in results}
    steps = tuple(
        StepComparison(label=label, expected=step, manifest=manifests[label])
        for label, step in expected.steps.items()
    )
    return Comparison(bundle=expected, store=where, steps=steps)


def _check_inputs(expected: Expected, folder: Path) -> None:
    root = os.environ.get(VARIABLE) or str(folder.absolute() / "inputs")
    if "://" not in root:
        root = str(folder.absolute() / root)  # as the recipe reads it
    raise_all([error for file in expected.inputs if (error := _input_error(file, root))])


def _input_error(file: InputFile, root: str) -> InputError | None:
    path = f"{root.rstrip('/')}/{file.path}"
    hint = f"The file came from {file.source}"
    try:
        if file.is_parsed:
            is_missing = "://" not in path and not Path(path).exists()
            return InputError(f"{path}: expected this input. {hint}") if is_missing else None
        sha256 = digest_file(path).digests["sha256"]
    except InputError as error:
        return InputError(f"{path}: expected sha256 {file.sha256}: {error}. {hint}")
    if sha256 == file.sha256:
        return None
    return InputError(f"{path}: expected sha256 {file.sha256}, got {sha256}. {hint}")


def _check_store(expected: Expected, root: str) -> None:
    """Refuse the store of the original artifacts: they would be compared with themselves."""
    try:
        store = ArtifactStore(root, create=False)
    except ArtifactNotFoundError:
        return
    for label, step in expected.steps.items():
        pointer = store.pointer(step.stage, step.cache_key)
        if pointer is not None and pointer.artifact_id == step.artifact_id:
            raise ConfigError(
                f"{root}: has the original {label} {step.artifact_id}: nothing would be built. "
                "Name another store with --store"
            )
