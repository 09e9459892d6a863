"""Build the artifact of a bundle again, and compare the digests of every step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, computed_field

from flows.formatting import align_columns
from flows.nested_values import numeric_leaves
from flows.recipes.loader import load_recipe
from flows.reproduction.inputs import VARIABLE, InputFile
from flows.reproduction.write_bundle import RECIPE_FILE, Expected, read_expected
from flows.run.cache_keys import describe_changes
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.io.raw_files import digest_file
from schemas.errors import (
    ArtifactNotFoundError,
    ConfigError,
    InputError,
    MissingInputError,
    raise_all,
)


class StepComparison(BaseModel):
    """A step's artifact next to the expected one."""

    label: str
    expected: str
    """Expected content digest."""

    content: str
    """Content digest."""

    changes: list[str]
    """Fields of the cache key that differ, such as `pyarrow 25.0.0 -> 26.0.0`."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_equal(self) -> bool:
        """True if the contents are equal to the byte."""
        return self.expected == self.content


class Comparison(BaseModel):
    """Result of building the artifact of a bundle again."""

    target: str
    store: str
    steps: list[StepComparison]
    metrics: dict[str, tuple[float, float | None]]
    """Expected value and value of each requested metric."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_equal(self) -> bool:
        """True if every step is equal to the byte."""
        return all(step.is_equal for step in self.steps)

    def lines(self) -> Iterator[str]:
        """Yield the comparison as text."""
        rows = [("step", "expected", "content", "")]
        for step in self.steps:
            expected, content = (d.split(":")[1][:16] for d in (step.expected, step.content))
            rows.append((step.label, expected, content, "equal" if step.is_equal else "DIFFERS"))
        yield from align_columns(rows)
        for step in self.steps:
            if not step.is_equal:
                reason = "; ".join(step.changes) or "same cache key: hardware, threads or a bug"
                yield f"{step.label}: {reason}"
        for name, (expected_value, value) in self.metrics.items():
            yield f"{self.target} {name}: expected {expected_value:.6g}, got {value}"
        yield f"{sum(step.is_equal for step in self.steps)} of {len(self.steps)} steps equal"


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
        workers: Number of worker processes on this machine.
        log: Takes a line about each step.

    Raises:
        ConfigError: The folder is not a bundle, several inputs are wrong, or the store has the
            original artifacts.
        InputError: A raw file is missing or has another checksum.
        BertloomError: A step failed.
    """
    expected = read_expected(folder)
    inputs = os.environ.get(VARIABLE) or "inputs"
    if "://" not in inputs:
        inputs = str(folder.absolute() / inputs)  # the recipe reads the same folder
    raise_all(_input_error(file, f"{inputs.rstrip('/')}/{file.path}") for file in expected.inputs)
    root = store or str(folder.absolute() / "store")
    _check_store(expected, root)
    recipe = load_recipe(str(folder / RECIPE_FILE), store=root, workers=workers)
    results = run_recipe(recipe, log=log, engine="local", until=expected.target)
    manifests = {result.label: result.manifest for result in results}
    values = numeric_leaves(manifests[expected.target].statistics)
    return Comparison(
        target=expected.target,
        store=root,
        steps=[
            StepComparison(
                label=label,
                expected=step.content_digest,
                content=manifests[label].content_digest,
                changes=describe_changes(step.cache_key_inputs, manifests[label].cache_key_inputs),
            )
            for label, step in expected.steps.items()
        ],
        metrics={name: (value, values.get(name)) for name, value in expected.metrics.items()},
    )


def _input_error(file: InputFile, path: str) -> InputError | None:
    """Return the error of a missing or changed input; None if it is as expected."""
    advice = f"Copy {file.source} there"
    try:
        if file.is_parsed:
            is_missing = "://" not in path and not Path(path).exists()
            return MissingInputError(f"{path}: no such input. {advice}") if is_missing else None
        sha256 = digest_file(path).digests["sha256"]
    except MissingInputError:
        return MissingInputError(f"{path}: no such file. {advice} (sha256 {file.sha256})")
    except InputError as error:
        return InputError(f"{path}: expected sha256 {file.sha256}: {error}. {advice}")
    if sha256 == file.sha256:
        return None
    return InputError(f"{path}: expected sha256 {file.sha256}, got {sha256}. {advice}")


def _check_store(expected: Expected, root: str) -> None:
    """Refuse the store of the original artifacts, which would be compared with themselves."""
    try:
        store = ArtifactStore(root, create=False)
    except ArtifactNotFoundError:
        return
    for label, step in expected.steps.items():
        pointer = store.pointer(step.stage, step.cache_key)
        if pointer is not None and pointer.artifact_id == step.artifact_id:
            raise ConfigError(
                f"{root}: has the original {label} {step.artifact_id}: nothing would be built. "
                "Choose another store with --store."
            )
